"""Options of malloc for processes that move much data. Only glibc has them: elsewhere they change nothing."""

import ctypes
from enum import IntEnum


class Option(IntEnum):
    """Of mallopt(3)."""

    TRIM_THRESHOLD = -1
    MMAP_THRESHOLD = -3
    ARENA_MAX = -8


def choose(**options: int) -> None:
    """By the names of `Option`. To be called before threads begin."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in options.items():
            mallopt(Option[name.upper()], value)
