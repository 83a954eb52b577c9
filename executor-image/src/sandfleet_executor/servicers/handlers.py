"""Handlers of gRPC's four kinds, and the same handlers with another behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour: TypeAlias = Callable[..., Any]

# (whether the request is a stream, whether the answer is) → what makes such a handler.
_MAKERS: dict[tuple[bool, bool], Callable[..., Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def behaviour_of(handler: Handler) -> Behaviour:
    """The servicer's method."""
    ways = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    return next(way for way in ways if way is not None)


def behaving(handler: Handler, behaviour: Behaviour) -> Handler:
    """The handler with another behaviour."""
    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


def is_upload(handler: Handler) -> bool:
    """True where the client expects no answer before it has sent everything."""
    return handler.request_streaming and not handler.response_streaming
