"""Background tasks, kept until they are done, and what keeps the event loop from serving others.

Python's collector of cycles looks at everything that lives: 200 ms with 10,000 pods. Here what survives a full
collection is set aside, so that the next one looks only at what is newer. Most of it is what the stores keep, which has
no cycles and goes when it is dropped. What goes in a cycle waits until all is looked at again.
"""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

# Seconds between two collections of everything.
EVERYTHING_SECONDS = 3600.0
OLDEST = 2
# New containers until the youngest is collected, and collections of each generation until the next older one is. So a
# full collection looks at about 14,000 that are new, which takes some milliseconds.
THRESHOLDS = (700, 10, 2)

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


async def in_turns(items: Iterable[T], many: int) -> AsyncIterator[T]:
    """The items; after each `many` of them others get their turn."""
    for number, item in enumerate(items, 1):
        yield item
        if number % many == 0:
            await asyncio.sleep(0)


class BackgroundTasks:
    def __init__(self) -> None:
        # The loop itself keeps tasks only weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[object, object, None], doing: str) -> None:
        task = asyncio.create_task(work, name=doing)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.warning("cannot %s: %s", task.get_name(), error)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def shorten_collections() -> None:
    """For this process, from now on. What is there already is set aside."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
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
