"""An event loop whose clock jumps to the next timer when it is idle: minutes of back-off pass in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
# Turns of the loop at one moment, after which whatever goes on there goes on for ever.
MOST_TURNS = 5_000


class _Selector(selectors.DefaultSelector):
    """Waits for nothing outside the loop: instead of sleeping, it advances the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        # Moments that would not have ended by themselves.
        self.busy: list[float] = []
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("cannot go on: everything waits, and no timer runs")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > MOST_TURNS:
            self.busy.append(self.now)
            self._turns, timeout = 0, 1.0
        self.now += max(0.0, timeout)
        return super().select(0)


class FakeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._fake = _Selector()
        super().__init__(self._fake)

    def time(self) -> float:
        return self._fake.now

    @property
    def busy(self) -> list[float]:
        return self._fake.busy


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=FakeLoop) as runner:
        return runner.run(work)
