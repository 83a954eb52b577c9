"""How long an event loop works at a stretch: until it asks the system for news again, nothing else is served.

times = LoopTimes()
with asyncio.Runner(loop_factory=times.new_loop) as runner: ...
"""

import asyncio
import selectors
import time
from collections.abc import Callable


class LoopTimes:
    """One loop's. `clock` gives seconds: those that pass, or those that its thread computes (`time.thread_time`)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._longest = 0.0
        self._total = 0.0

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """A loop that is measured."""
        return asyncio.SelectorEventLoop(_Selector(self))

    def take(self) -> tuple[float, float]:
        """Seconds of the longest stretch, and of all together, since the last call."""
        self.ends()
        found = self._longest, self._total
        self._longest = self._total = 0.0
        self.begins()
        return found

    def begins(self) -> None:
        """The loop has news to work on."""
        self._began = self._clock()

    def ends(self) -> None:
        """The loop asks for news."""
        spent = self._clock() - self._began
        self._longest = max(self._longest, spent)
        self._total += spent


class _Selector(selectors.DefaultSelector):
    def __init__(self, times: LoopTimes) -> None:
        super().__init__()
        self._times = times

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._times.ends()
        try:
            return super().select(timeout)
        finally:
            self._times.begins()
