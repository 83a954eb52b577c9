"""Background tasks, kept until they are done, and what keeps the event loop from serving others.

Python's collector of cycles looks at everything that lives: 200 ms with 10,000 pods. Here what survives a full
collection is set aside, so that the next one looks only at what is newer. Most of it is what the stores keep, which has
no cycles and goes when it is dropped. What goes in a cycle waits until all is looked at again, once the process has
grown.
"""

import asyncio
import gc
import logging
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

# Seconds between two questions whether to look at everything, and by how much the process has grown then since it last
# did. Of the product's own objects none was found in a cycle; of Kopf's, some kilobytes of a hundred events.
EVERYTHING_SECONDS, GROWN = 3600.0, 1.25
OLDEST = 2
# New containers until the youngest is collected, and collections of each generation until the next older one is. So a
# full collection looks at about 14,000 that are new, which takes some milliseconds.
THRESHOLDS = (700, 10, 2)
# Seconds between two counts of what is new, and how much of it makes a collection. Python counts how many more
# containers were made than were dropped: none, while new objects replace old ones, until one collection took 95 ms.
COUNT_SECONDS, MOST_NEW = 0.2, 8_000

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


async def readable(file: int | socket.socket) -> None:
    """Return when there is something to read from it: of a process's handle, when the process is gone."""
    came = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(file, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(file)


async def in_turns(items: Iterable[T], many: int) -> AsyncIterator[T]:
    """The items; before each `many` of them it waits for a turn."""
    for number, item in enumerate(items):
        if number % many == 0:
            await a_turn()
        yield item


async def a_turn() -> None:
    """Waits until a piece of long work, of some milliseconds, may begin: one does in each round of the event loop."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns()
    await turns.next()


class Turns:
    """Of one event loop, in order of asking. What many tasks do in one round is a stretch without anything else."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Whether the piece of the next round is given away.
        self._is_given = False

    async def next(self) -> None:
        loop = asyncio.get_running_loop()
        if self._is_given:
            self._waiting.append(turn := loop.create_future())
            await turn
        else:
            self._is_given = True
            loop.call_soon(self._give)
            await asyncio.sleep(0)

    def _give(self) -> None:
        self._is_given = False
        while self._waiting and not self._is_given:
            turn = self._waiting.popleft()
            # Its task may have been cancelled.
            if not turn.done():
                turn.set_result(None)
                self._is_given = True
                asyncio.get_running_loop().call_soon(self._give)


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


class Paced(Generic[T]):
    """Begins `many` of what is added in a turn, in order: thousands that come at once let others have theirs."""

    def __init__(self, begin: Callable[[T], None], many: int) -> None:
        self._begin, self._many = begin, many
        self._waiting: deque[T] = deque()

    def add(self, one: T) -> None:
        self._waiting.append(one)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def close(self) -> None:
        """What has not begun never does."""
        self._waiting.clear()

    def _next(self) -> None:
        for _ in range(min(self._many, len(self._waiting))):
            self._begin(self._waiting.popleft())
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


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


class Outliving(Generic[T]):
    """Work that goes on to its end where the caller that waits for it leaves."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[T]] = set()

    async def result(self, work: Coroutine[object, object, T]) -> T:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Where the caller has left, asyncio would log an exception that is never retrieved.
            task.exception()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


class Sweeps(Generic[T]):
    """Looks at many objects, one look after the other: one that is asked for again before it begins is made once."""

    def __init__(self, look: Callable[[T], Coroutine[object, object, None]], doing: str) -> None:
        self._look, self._doing = look, doing
        # In order of arrival.
        self._due: dict[T, None] = {}
        self._background = BackgroundTasks()
        self._is_running = False

    def add(self, what: T) -> None:
        self._due[what] = None
        if not self._is_running:
            self._is_running = True
            self._background.begin(self._run(), self._doing)

    async def _run(self) -> None:
        while self._due:
            what = next(iter(self._due))
            del self._due[what]
            try:
                await self._look(what)
            except Exception as error:  # noqa: BLE001 - later looks are about other objects
                _LOG.warning("cannot %s: %s", self._doing, error)
        self._is_running = False

    def close(self) -> None:
        self._background.close()


def shorten_collections() -> None:
    """For this process, from now on. What is there already is set aside."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(ShortCollections())


async def collect_in_time() -> None:
    """Looks at what is new before it is too much for one look. Until cancelled."""
    while True:
        await asyncio.sleep(COUNT_SECONDS)
        if sum(len(gc.get_objects(generation)) for generation in range(OLDEST + 1)) > MOST_NEW:
            gc.collect()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ShortCollections:
    """A callback of the collector. `memory` gives the bytes that the process has in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, memory: Callable[[], int] = resident_bytes) -> None:
        self._clock, self._memory = clock, memory
        self._since = clock()
        # After it last looked at everything; 0: it has been there for less than EVERYTHING_SECONDS.
        self._known = 0
        self._looks = False

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop" or info["generation"] != OLDEST:
            return
        if self._looks:
            self._looks, self._known = False, self._memory()
        elif self._is_due():
            # The next collection looks at everything.
            self._looks = True
            gc.unfreeze()
            return
        gc.freeze()

    def _is_due(self) -> bool:
        if self._clock() - self._since < EVERYTHING_SECONDS:
            return False
        self._since = self._clock()
        if not self._known:
            self._known = self._memory()
        return self._memory() > GROWN * self._known
