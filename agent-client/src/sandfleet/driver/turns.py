"""Who may execute now: executions are scheduled apart from sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# An execution that takes longer goes on without its turn, in seconds: a slow or hostile executor delays no other one.
LENT_FOR = 5.0


class Turns:
    """At most so many executions begin side by side; a session that waits for its model holds no turn."""

    def __init__(self, most: int, *, lent_for: float = LENT_FOR) -> None:
        self._free = asyncio.Semaphore(most)
        self._lent_for = lent_for
        self.running = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it during the body, for at most `lent_for` seconds."""
        await self._free.acquire()
        returned = False

        def give_back() -> None:
            nonlocal returned
            if not returned:
                returned = True
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._lent_for, give_back)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            timer.cancel()
            give_back()


class RetryAllowance:
    """How many failed sessions of one run are tried again: some, and a part of those that ended well.

    A platform that fails for all tasks is not asked `retries` times as much: the allowance is used up, and each further
    failure is final.
    """

    def __init__(self, spare: int = 10, share: float = 0.2) -> None:
        self._left = float(spare)
        self._share = share
        self.taken = 0

    def earn(self) -> None:
        """Note a session that the platform has carried to its end."""
        self._left += self._share

    def take(self) -> bool:
        """Take one retry; return whether there was one."""
        if self._left < 1:
            return False
        self._left -= 1
        self.taken += 1
        return True
