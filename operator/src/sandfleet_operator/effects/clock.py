"""Time and chance."""

import secrets
import time


class SteadyClock:
    """Seconds since the epoch as they were at the start, and from there on as they pass: a step of the wall clock ends no lease."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


def wall_clock() -> float:
    """Seconds since the epoch, as other processes on this machine see them now."""
    return time.time()


def new_id() -> str:
    """12 characters of [0-9a-f] that nobody can guess or meet again."""
    return secrets.token_hex(6)
