"""Who goes first where the API server is what everybody waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

# What somebody waits for goes in the order of its coming, so many at once: more would wait for a connection all the same, and for
# that their time with the API server would run.
AT_ONCE = 64


class Turns:
    """What nobody waits for lets pass what somebody waits for: two at once, and each for `patience` seconds at most.

    Two disturb others least. For each `each` that have to wait one more goes, up to `most`, so that a slow API server's
    latency does not bound how many are done in a second.
    """

    def __init__(self, patience: float, *, each: int = 50, most: int = 16, at_once: int = AT_ONCE) -> None:
        self._patience = patience
        self._places = asyncio.Semaphore(at_once)
        self._each = each
        self._most = most
        self._turn = asyncio.Condition()
        self._waiting = self._running = 0
        self._ahead = 0
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        """Around what somebody waits for."""
        self._ahead += 1
        self._free.clear()
        try:
            async with self._places:
                yield
        finally:
            self._ahead -= 1
            if not self._ahead:
                self._free.set()

    @asynccontextmanager
    async def behind(self) -> AsyncIterator[None]:
        """Around what nobody waits for."""
        give_way_until = asyncio.get_running_loop().time() + self._patience
        async with self._turn:
            self._waiting += 1
            try:
                await self._turn.wait_for(self._has_room)
            finally:
                self._waiting -= 1
            self._running += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_way_until):
                    await self._free.wait()
            yield
        finally:
            self._running -= 1
            async with self._turn:
                self._turn.notify(2)

    def _has_room(self) -> bool:
        return self._running < min(self._most, 2 + self._waiting // self._each)
