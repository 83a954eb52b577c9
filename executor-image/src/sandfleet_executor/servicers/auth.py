"""Who may call what: a capability token is needed for every RPC, with the scope of its service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from sandfleet_executor.core.access.token_claims import TokenError, TokenReason
from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_executor.servicers.convert.subjects import HOLDER
from sandfleet_executor.servicers.errors import ApiError, abort, drain, is_upload, unwanted

PACKAGE = "sandfleet_api.executor.v1"
SCOPES_OF_SERVICES = {
    f"{PACKAGE}.InterpreterService": "interpreter",
    f"{PACKAGE}.ProcessService": "process",
    f"{PACKAGE}.ServiceManagerService": "process",
    f"{PACKAGE}.FilesystemService": "filesystem",
    f"{PACKAGE}.SessionService": "session",
    f"{PACKAGE}.PortService": "ports",
    f"{PACKAGE}.ToolBrokerService": "tools",
    f"{PACKAGE}.IdentityService": "admin",
    f"{PACKAGE}.ReviewService": "review",
    f"{PACKAGE}.JournalService": "session",
    f"{PACKAGE}.SnapshotService": "snapshot",
}
SCOPES_OF_METHODS = {
    f"/{PACKAGE}.SessionService/Open": "admin",
    f"/{PACKAGE}.SessionService/Suspend": "admin",
    f"/{PACKAGE}.SessionService/Resume": "admin",
    f"/{PACKAGE}.SessionService/ProbeEgress": "admin",
    f"/{PACKAGE}.SessionService/Close": "admin",
}


def scope_of(method: str) -> str | None:
    """The scope that a method ("/package.Service/Method") needs; None for a method that no scope allows."""
    return SCOPES_OF_METHODS.get(method) or SCOPES_OF_SERVICES.get(method[1:].rpartition("/")[0])


class AuthInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in the stubs, not when it runs
    """Denies every RPC without a token that is good for it. Put it first.

    A token is looked at when an RPC starts: a stream that was allowed goes on after its token has expired.
    """

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        try:
            self._check(handler_call_details)
        except TokenError as error:
            return _deny(error, await continuation(handler_call_details))
        return await continuation(handler_call_details)

    def _check(self, details: grpc.HandlerCallDetails) -> None:
        token = _bearer(details.invocation_metadata)
        scope = scope_of(details.method)
        if scope is None:
            raise TokenError(TokenReason.SCOPE, "cannot call this method: no scope allows it")
        HOLDER.set(self._verifier.verify(token, scope).holder)


def _bearer(metadata: Any) -> str:
    values = [value for key, value in metadata if key == "authorization"]
    if not values:
        raise TokenError(TokenReason.MISSING, "cannot answer without a token: send `authorization: Bearer …`")
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token:
        raise TokenError(TokenReason.INVALID, "cannot accept the token: one `authorization: Bearer …` is needed")
    return str(token)


def _deny(error: TokenError, handler: grpc.RpcMethodHandler[Any, Any] | None) -> grpc.RpcMethodHandler[Any, Any]:
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
