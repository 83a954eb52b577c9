"""Who goes first where the API server is what everybody waits for."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress


class Turns:
    """What nobody waits for lets pass what somebody waits for: a few at once, and each for `patience` seconds at most."""

    def __init__(self, at_once: int, patience: float) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._patience = patience
        self._ahead = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def first(self) -> Iterator[None]:
        """Around what somebody waits for."""
        self._ahead += 1
        self._free.clear()
        try:
            yield
        finally:
            self._ahead -= 1
            if not self._ahead:
                self._free.set()

    @asynccontextmanager
    async def behind(self) -> AsyncIterator[None]:
        """Around what nobody waits for."""
        give_way_until = asyncio.get_running_loop().time() + self._patience
        async with self._slots:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_way_until):
                    await self._free.wait()
            yield
