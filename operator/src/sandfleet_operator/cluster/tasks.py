"""Background tasks, kept until they are done, and long work that lets the event loop serve others."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import TypeVar

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
