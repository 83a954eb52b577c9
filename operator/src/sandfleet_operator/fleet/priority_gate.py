"""Interactive work goes before background work while the API server is the bottleneck."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

# Interactive work at the same time. More would wait for a connection all the same, and its time with the API server
# would run meanwhile.
AT_ONCE = 64


class PriorityGate:
    """Background work runs two at a time, and gives way to interactive work for at most `patience` seconds.

    Two at a time disturb interactive work least. For every `each` that wait one more runs, up to `most`, so that the
    latency of a slow API server does not bound the throughput.
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
    async def interactive(self) -> AsyncIterator[None]:
        """Around work that a caller waits for."""
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
    async def background(self) -> AsyncIterator[None]:
        """Around work that no caller waits for."""
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
