"""How long an event loop works at a stretch: until it asks the system for news again, nothing else is served.

times = LoopTimes()
with asyncio.Runner(loop_factory=times.new_loop) as runner: ...
"""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable

from sandfleet_operator.telemetry.metrics import Gauge, Sample

# Of which the metric gives the longest stretch, in seconds.
WINDOW = 60.0
# Shorter stretches, in seconds, are not remembered.
SHORT = 0.001


class LoopTimes:
    """One loop's. `clock` gives seconds: those that pass, or those that its thread computes (`time.thread_time`).

    `now` gives the seconds that pass.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        now: Callable[[], float] = time.monotonic,
        window: float = WINDOW,
    ) -> None:
        self._clock, self._now, self._window = clock, now, window
        # Stretches of the last seconds with their ends; each is longer than all that came after it.
        self._recent: deque[tuple[float, float]] = deque()
        self._began = clock()
        self._longest = 0.0
        self._total = 0.0

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """A loop that is measured from now on."""
        self.begins()
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
        if spent >= SHORT:
            self._remember(spent)

    def recent(self) -> float:
        """Seconds of the longest stretch that has ended within the window; 0 if all were shorter than SHORT."""
        self._drop_old()
        return self._recent[0][1] if self._recent else 0.0

    def gauge(self) -> Gauge:
        return Gauge(
            name="sandfleet_event_loop_longest_stretch_seconds",
            text="Longest time of the last minute for which the event loop served nothing else.",
            samples=(Sample(self.recent()),),
        )

    def _remember(self, spent: float) -> None:
        while self._recent and self._recent[-1][1] <= spent:
            self._recent.pop()
        self._drop_old()
        self._recent.append((self._now(), spent))

    def _drop_old(self) -> None:
        end = self._now() - self._window
        while self._recent and self._recent[0][0] < end:
            self._recent.popleft()


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
