"""Runs reconciliations: at most one per key at a time, at most one per worker."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from sandfleet_rules.backoff import Backoff

Key = TypeVar("Key", bound=Hashable)
# Before a key whose round failed is looked at again.
BACKOFF = Backoff(first=0.5, longest=60.0)
# Rounds that begin before others get their turn: one that waits for nothing takes a millisecond or less.
TURN = 2
# Rounds of single keys that go before one of those that wait behind them.
PASSED = 3

_log = logging.getLogger(__name__)


class Measure(Protocol):
    """Is told how long a key waited for its round, and how long the round took; in seconds."""

    def began(self, key: Any, waited: float) -> None: ...
    def ended(self, key: Any, seconds: float, error: BaseException | None) -> None: ...


class WorkQueue(Generic[Key]):
    """`work` takes a key and returns the seconds after which to requeue it; None: not until it is added again.

    An exception is logged, and the key is requeued after a pause that doubles with each failure in a row.
    """

    def __init__(
        self, work: Callable[[Key], Awaitable[float | None]], workers: int, measure: Measure | None = None
    ) -> None:
        """`measure` is told of each round."""
        self._work = work
        self._measure = measure
        self._since: dict[Key, float] = {}
        self._workers = workers
        self._waiting: deque[Key] = deque()
        # Keys that wait behind those, and entries of such that have come to the front since.
        self._behind: deque[Key] = deque()
        self._are_behind: set[Key] = set()
        # Rounds of others since the last one of those behind.
        self._passed = 0
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._added_while_busy: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._woken = asyncio.Event()
        # Rounds that may still begin in this turn.
        self._turn = TURN

    def __len__(self) -> int:
        """Count of keys that wait for a worker or have one."""
        return len(self._queued) + len(self._busy)

    def add(self, key: Key, *, behind: bool = False) -> None:
        """`behind`: the key is one of many, and lets those that are added alone go first."""
        self._cancel(key)
        if key in self._busy:
            self._added_while_busy.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._since[key] = time.monotonic()
            (self._behind if behind else self._waiting).append(key)
            if behind:
                self._are_behind.add(key)
            self._woken.set()
        elif not behind and key in self._are_behind:
            self._are_behind.discard(key)
            self._waiting.append(key)
            if not self._are_behind:
                self._behind.clear()

    def add_later(self, key: Key, seconds: float) -> None:
        """Adds the key after a delay. Of two delays the earlier end counts."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if key in self._queued or (known is not None and known.when() <= loop.time() + seconds):
            return
        self._cancel(key)
        self._timers[key] = loop.call_later(seconds, self.add, key)

    def forget(self, key: Key) -> None:
        """Drops the key's timer and its count of failures."""
        self._cancel(key)
        self._failures.pop(key, None)

    def is_busy(self, matches: Callable[[Key], bool]) -> bool:
        """Whether a worker has a matching key."""
        return any(matches(key) for key in self._busy)

    async def run(self) -> None:
        """Runs the workers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            while not (self._queued and self._turn):
                await self._wait()
            self._begins()
            key = self._next()
            waited = time.monotonic() - self._since.pop(key)
            if self._measure is not None:
                self._measure.began(key, waited)
            self._queued.discard(key)
            self._busy.add(key)
            try:
                requeue_after = await self._once(key)
            finally:
                self._busy.discard(key)
            if key in self._added_while_busy:
                self._added_while_busy.discard(key)
                self.add(key)
            elif requeue_after is not None:
                self.add_later(key, requeue_after)
            # A round that waits for nothing has not let others have their turn.
            await asyncio.sleep(0)

    def _next(self) -> Key:
        """Of the keys that are queued: one of those behind where no other is left, and else from time to time."""
        if self._are_behind and (not self._waiting or self._passed >= PASSED):
            self._passed = 0
            while (key := self._behind.popleft()) not in self._are_behind:
                pass
            self._are_behind.discard(key)
            return key
        self._passed += 1
        return self._waiting.popleft()

    async def _wait(self) -> None:
        if self._queued:
            await asyncio.sleep(0)
            return
        self._woken.clear()
        await self._woken.wait()

    def _begins(self) -> None:
        if self._turn == TURN:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._turn -= 1

    def _next_turn(self) -> None:
        self._turn = TURN

    async def _once(self, key: Key) -> float | None:
        began = time.monotonic()
        try:
            requeue_after = await self._work(key)
            if self._measure is not None:
                self._measure.ended(key, time.monotonic() - began, None)
        except Exception as error:  # noqa: BLE001 - one bad object must not stop the others
            if self._measure is not None:
                self._measure.ended(key, time.monotonic() - began, error)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = BACKOFF.after(failures)
            told = getattr(error, "retry_after", None)
            _log.warning(
                "cannot finish %s, again in %.1f s: %s", key, pause, error, exc_info=not hasattr(error, "status")
            )
            return max(pause, told or 0.0)
        self._failures.pop(key, None)
        return requeue_after

    def _cancel(self, key: Key) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
