"""The edge of the API: what each call passes on its way to its servicer.

1. `auth`: the caller's token has the scope of the RPC.
2. The call counts as use of the sandbox, or does not.
3. `errors`: whatever is raised further in ends the call with a typed status.
4. `gate`: in a reviewed sandbox the call waits for its approval.
5. `recording`: it has its record in the journal.

Steps 3 to 5 wrap the servicer's method once, when the RPC is called first. `core/rpcs.py` is the table of all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import grpc
import grpc.aio

from sandfleet_executor.core.access.token_claims import TokenError
from sandfleet_executor.core.rpcs import Rpc, Use, rpc_of
from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_executor.servicers import auth
from sandfleet_executor.servicers.errors import guarded
from sandfleet_executor.servicers.handlers import Handler

# What wraps a handler, by the row of its RPC.
Layer: TypeAlias = Callable[[Handler, Rpc], Handler]


class Edge(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in the stubs, not when it runs
    """The one interceptor of the executor's server."""

    def __init__(self, verifier: TokenVerifier, touch: Callable[[Use], None], layers: Sequence[Layer] = ()) -> None:
        """`touch` hears of each call with a good token; `layers` wrap a method from the inside out."""
        self._verifier = verifier
        self._touch = touch
        self._layers = (*layers, guarded)
        # Path of an RPC → its handler, and the wrapped one. Bounded by the API.
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """The handler that serves the call, or denies it."""
        rpc = rpc_of(details.method)
        try:
            auth.check(self._verifier, rpc.scope, details.invocation_metadata)
        except TokenError as error:
            return auth.denial(error, await continuation(details))
        self._touch(rpc.use)
        handler = await continuation(details)
        # The type says otherwise, but an unknown method comes as None and has to stay None (UNIMPLEMENTED).
        if handler is None:
            return handler
        before, wrapped = self._wrapped.get(details.method, (None, None))
        if wrapped is None or before is not handler:
            wrapped = handler
            for layer in self._layers:
                wrapped = layer(wrapped, rpc)
            self._wrapped[details.method] = (handler, wrapped)
        return wrapped
