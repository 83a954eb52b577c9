"""Clocks and random ids."""

import secrets
import time


class SteadyClock:
    """Seconds since the epoch, read once and then counted monotonically: a step of the wall clock ends no lease."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


def wall_clock() -> float:
    """Seconds since the epoch, as other processes on this machine see them."""
    return time.time()


def new_id() -> str:
    """12 random characters of [0-9a-f]: unguessable and unique."""
    return secrets.token_hex(6)
