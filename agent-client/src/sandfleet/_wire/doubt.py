"""Doubt about an executor that says nothing: gRPC's own pings find a pod that is gone after forty seconds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandfleet._wire.link import answers
from sandfleet.errors import SandboxEnded, SandfleetError

if TYPE_CHECKING:
    from sandfleet._wire import api
    from sandfleet._wire.link import Connection, Link

# Seconds of silence before the executor is asked, and the longest pause between two questions: each is twice the one
# before, so that thousands of long executions cost little.
_FIRST, _LONGEST = 4.0, 32.0
# Why the control plane has replaced an executor, and the pause between two questions for it, in seconds.
_OUT_OF_MEMORY, _END_PAUSE = "OutOfMemory", 0.5


class ExecutorGoneError(Exception):
    """The executor does not answer, and its fleet says that it has ended."""


class Doubt:
    """Ends a call whose executor is gone. Made before each wait for a message; `end` it after that."""

    def __init__(self, link: Link, connection: Connection, call: api.aio.UnaryStreamCall[Any, Any]) -> None:
        """Begin to count the silence. An executor of this machine breaks its connection when it ends."""
        self._link = link
        self._connection = connection
        self._call = call
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.gone = False
        if not connection.access.address.startswith("unix:"):
            self._timer = asyncio.get_running_loop().call_later(_FIRST, self._begin)

    def end(self) -> None:
        """Stop: a message came, or the wait for one has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _begin(self) -> None:
        self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        pause = _FIRST
        while not await _is_gone(self._link, self._connection):
            pause = min(pause * 2, _LONGEST)
            await asyncio.sleep(pause)
        self.gone = True
        self._call.cancel()


async def _is_gone(link: Link, connection: Connection) -> bool:
    """Return whether the executor of this connection does not answer, and has ended by its fleet's word."""
    if await answers(connection):
        return False
    try:
        info = await link.fleet.get(link.sandbox_id)
    except SandboxEnded:
        return True
    except SandfleetError:
        return False
    return info.restarts != connection.restarts or info.sandbox_uid not in {connection.uid, ""}


async def ended_of_memory(link: Link, connection: Connection) -> bool:
    """Return whether the executor of this connection has ended since its sandbox's memory was used up."""
    info = await link.fleet.get(link.sandbox_id)
    return info.restarts == connection.restarts + 1 and info.last_restart_reason == _OUT_OF_MEMORY


async def until_ended_of_memory(link: Link, connection: Connection) -> None:
    """Return when that is known; the fleet may know it long before the next executor answers."""
    while True:
        await asyncio.sleep(_END_PAUSE)
        with suppress(SandfleetError):
            if await ended_of_memory(link, connection):
                return
