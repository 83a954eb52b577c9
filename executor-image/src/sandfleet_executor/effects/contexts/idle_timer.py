"""Calls a function once nothing has happened for a while."""

import asyncio
from collections.abc import Callable


class IdleTimer:
    def __init__(self, seconds: Callable[[], float], then: Callable[[], None]) -> None:
        """`seconds` is the idle time, asked for each time; `then` is called once after a row of restarts."""
        self._seconds = seconds
        self._then = then
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def restart(self) -> None:
        """Something has happened: the idle time begins anew."""
        self._since = asyncio.get_running_loop().time()
        self._look_again()

    def _look_again(self) -> None:
        # One timer for all restarts: most idle times end with the next one.
        if self._timer is None:
            due = self._since + self._seconds()
            self._timer = asyncio.get_running_loop().call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._timer = None
        if due < self._since + self._seconds():
            self._look_again()
        else:
            self._then()
