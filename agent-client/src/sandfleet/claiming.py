"""One claim, from the request to the sandbox, whatever happens to the connection in between."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet._status import to_claim_error
from sandfleet.errors import ProtocolError
from sandfleet.fleet_values import FLEET_UNAVAILABLE, OnQueued, Queued
from sandfleet.transport import receive

if TYPE_CHECKING:
    from sandfleet.door import Door, Stub
    from sandfleet.transport import Metadata

    Call = api.aio.UnaryStreamCall[api.fleet.ClaimRequest, api.fleet.ClaimResponse]

# How much longer than its wait a claim may take, in seconds: a cold start that has begun may end.
_MARGIN = 30.0
# How long the end of the stream may take after the sandbox has come.
_END = 5.0
# Those that are read to their end behind the caller's back.
_ending: set[asyncio.Task[None]] = set()


async def claim(
    door: Door, request: api.fleet.ClaimRequest, max_wait: float, on_queued: OnQueued | None
) -> api.fleet.Bound:
    """Claim a sandbox; a claim whose connection breaks is sent again under its request id, which gives the same sandbox.

    Raises ClaimError, UnavailableError when no fleet answers for `max_wait` seconds, and what `on_queued` raises.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + max_wait

    async def tell(news: Queued) -> None:
        answer = on_queued(news) if on_queued else None
        if inspect.isawaitable(answer):
            await answer

    async def attempt(stub: Stub, metadata: Metadata) -> api.fleet.Bound:
        left = max(0.0, deadline - clock())
        request.max_wait.FromNanoseconds(round(left * 1e9))
        call = stub.Claim(request, metadata=metadata, timeout=left + _MARGIN)
        try:
            while (response := await receive(call)) is not None:
                if response.WhichOneof("event") == "bound":
                    _read_to_the_end(call)
                    return response.bound
                if response.WhichOneof("event") == "queued":
                    await tell(convert.queued(response.queued))
        except BaseException:  # Nobody waits any more: the fleet undoes it.
            call.cancel()
            raise
        raise ProtocolError("cannot claim a sandbox: the fleet ended the claim without an answer", reason="NoEnd")

    try:
        return await door.call(attempt, max_wait, lambda: tell(Queued(0, None, FLEET_UNAVAILABLE)))
    except api.aio.AioRpcError as error:
        raise to_claim_error(error) from error


def _read_to_the_end(call: Call) -> None:
    """Let the fleet end the stream: to a call that is dropped before that, it would look as if the caller had gone."""

    async def read() -> None:
        try:
            async with asyncio.timeout(_END):
                await call.code()
        except TimeoutError:
            call.cancel()

    task = asyncio.ensure_future(read())
    _ending.add(task)
    task.add_done_callback(_ending.discard)
