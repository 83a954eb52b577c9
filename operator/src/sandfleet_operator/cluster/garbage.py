"""Short pauses for Python's collector of cycles, which looks at everything that lives: 200 ms with 10,000 pods.

What survives a full collection is set aside, so that the next one looks only at what is newer. Most of it is what the
stores keep, which has no cycles and goes when it is dropped. What goes in a cycle waits until all is looked at again.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

# Seconds between two collections of everything.
EVERYTHING_SECONDS = 3600.0
OLDEST = 2


def shorten() -> None:
    """For this process, from now on."""
    gc.callbacks.append(ShortCollections())


class ShortCollections:
    """A callback of the collector."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop" or info["generation"] != OLDEST:
            return
        if self._clock() - self._since < EVERYTHING_SECONDS:
            gc.freeze()
        else:
            self._since = self._clock()
            gc.unfreeze()
