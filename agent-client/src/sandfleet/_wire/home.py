"""Where a connection may be used: in the process and the event loop that it was opened in."""

from __future__ import annotations

import asyncio
import os

from sandfleet.errors import PreconditionFailed, UnavailableError

_generation = 0


def _count_fork() -> None:
    global _generation  # noqa: PLW0603  of the process
    _generation += 1


os.register_at_fork(after_in_child=_count_fork)


class Home:
    """The process and the event loop in which something was opened."""

    def __init__(self) -> None:
        self._generation = _generation
        self._loop = _running_loop()

    @property
    def was_forked(self) -> bool:
        """Whether this is a child of the process that opened it."""
        return self._generation != _generation

    def check(self, what: str) -> None:
        """Raise UnavailableError in a forked child, and PreconditionFailed in another event loop."""
        if self.was_forked:
            raise UnavailableError(
                f"cannot use {what} in a forked process: its connection does not survive a fork; start processes with"
                " spawn, and connect to the sandbox by its id there",
                reason="Forked",
            )
        loop = _running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not None and loop is not self._loop:
            raise PreconditionFailed(
                f"cannot use {what} in another event loop than the one that opened it: connect to the sandbox by its id"
                " in this one, or use the sync class, which works in any thread",
                reason="OtherEventLoop",
            )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
