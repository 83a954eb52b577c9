"""Who may call what: a capability token is needed for every RPC, with the scope of its row in core/rpcs.py.

A token is looked at when an RPC starts: a stream that was allowed goes on after its token has expired.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from sandfleet_executor.core.access.token_claims import TokenError, TokenReason
from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_executor.servicers.convert.subjects import HOLDER
from sandfleet_executor.servicers.errors import ApiError, abort, drain, unwanted
from sandfleet_executor.servicers.handlers import Handler, is_upload


def check(verifier: TokenVerifier, scope: str, metadata: Any) -> None:
    """Remembers the holder of the token in a call's `metadata`. Raises TokenError where it lacks the scope."""
    token = _bearer(metadata)
    if not scope:
        raise TokenError(TokenReason.SCOPE, "cannot call this method: no scope allows it")
    HOLDER.set(verifier.verify(token, scope).holder)


def _bearer(metadata: Any) -> str:
    values = [value for key, value in metadata if key == "authorization"]
    if not values:
        raise TokenError(TokenReason.MISSING, "cannot answer without a token: send `authorization: Bearer …`")
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token:
        raise TokenError(TokenReason.INVALID, "cannot accept the token: one `authorization: Bearer …` is needed")
    return str(token)


def denial(error: TokenError, handler: Handler | None) -> Handler:
    """What serves a call that is denied."""
    denied_scope = error.reason is TokenReason.SCOPE
    status = grpc.StatusCode.PERMISSION_DENIED if denied_scope else grpc.StatusCode.UNAUTHENTICATED
    failure = ApiError(status, error.reason.value, str(error))

    async def deny(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if handler is not None and is_upload(handler):
            await unwanted(context)
            await drain(requests)
        elif handler is not None and handler.request_streaming:
            await drain(requests, most=1)
        await abort(context, failure)

    # On the wire a denial is the same for all four kinds, and this kind does not wait for a request first.
    return grpc.stream_stream_rpc_method_handler(deny)
