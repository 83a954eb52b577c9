"""What is to be done once nothing has happened for a while."""

import asyncio
from collections.abc import Callable


class Pause:
    def __init__(self, seconds: Callable[[], float], then: Callable[[], None]) -> None:
        """`seconds` is how long nothing may happen, asked for each time; `then` is called once for a row of beginnings."""
        self._seconds = seconds
        self._then = then
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Something has happened: the pause begins anew."""
        self._since = asyncio.get_running_loop().time()
        self._look_again()

    def _look_again(self) -> None:
        # One timer for all of them: most pauses end with a beginning.
        if self._timer is None:
            due = self._since + self._seconds()
            self._timer = asyncio.get_running_loop().call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._timer = None
        if due < self._since + self._seconds():
            self._look_again()
        else:
            self._then()
