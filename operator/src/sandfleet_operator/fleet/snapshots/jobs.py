"""Jobs for a snapshotter, wherever it is, and the words of those that fail."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from sandfleet_operator.api.errors import CallReason, FleetError
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.executors.calls import IN_THE_WAY
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

OF_STORE = {
    "NotFound": SnapshotReason.SNAPSHOT_NOT_FOUND,
    "Exists": SnapshotReason.SNAPSHOT_INVALID,
    "Corrupt": SnapshotReason.SNAPSHOT_DAMAGED,
    "Foreign": SnapshotReason.SNAPSHOT_DAMAGED,
    "Changed": SnapshotReason.SNAPSHOT_DAMAGED,
    "Hostile": SnapshotReason.SNAPSHOT_INVALID,
    "TooLarge": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "NameTaken": SnapshotReason.SNAPSHOT_NAME_TAKEN,
    "Widened": SnapshotReason.SNAPSHOT_WIDENED,
    "Full": SnapshotReason.SNAPSHOT_STORE_FULL,
    "Denied": SnapshotReason.SNAPSHOT_STORE_DENIED,
}
OF_EXECUTOR: dict[str, CallReason] = {
    "SnapshotRunning": SnapshotReason.SNAPSHOT_RUNNING,
    "SandboxSuspended": ClaimReason.SANDBOX_SUSPENDED,
    "NoSpace": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "TooManyEntries": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "TooManyStates": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "InvalidEntry": SnapshotReason.SNAPSHOT_INVALID,
    "InvalidStream": SnapshotReason.SNAPSHOT_INVALID,
    "InvalidArgument": SnapshotReason.SNAPSHOT_INVALID,
    "StateDamaged": SnapshotReason.SNAPSHOT_INVALID,
}

Event = dict[str, Any]
# A job: what it was, its end (done, failed or left), how long it took in seconds, and the snapshot of its last event.
Ended = Callable[[str, str, float, Event | None], None]
# Takes a message for the snapshotter. One that is gone shows by the end of its events.
Send = Callable[[Event], None]


class Jobs(ABC):
    """`reach` finds a snapshotter; its messages come to `heard`, and its end to `lost`."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[Send, asyncio.Queue[Event | None]]] = {}
        self._next_id = 0
        self.ended: Ended = lambda *_: None

    @abstractmethod
    async def reach(self) -> Send:
        """Raises FleetError where there is none."""

    def heard(self, event: Event) -> None:
        """An event of any job."""
        if (job := self._jobs.get(event.get("id", 0))) is not None:
            job[1].put_nowait(event)

    def lost(self, send: Send) -> None:
        """The jobs of this snapshotter have failed."""
        for mine, events in self._jobs.values():
            if mine == send:
                events.put_nowait(None)

    def load(self, send: Send) -> int:
        """How many jobs a snapshotter has."""
        return sum(mine == send for mine, _ in self._jobs.values())

    async def run(self, op: str, **request: Any) -> AsyncGenerator[Event, None]:
        """The events of a job, up to the one that ends it. Leaving it early ends the job. Raises FleetError."""
        began, end, last = time.monotonic(), "left", dict[str, Any]()
        try:
            async with aclosing(self._run(op, request)) as events:
                async for event in events:
                    last = event
                    yield event
            end = "done"
        except FleetError:
            end = "failed"
            raise
        finally:
            self.ended(op, end, time.monotonic() - began, last.get("snapshot"))

    async def _run(self, op: str, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        send = await self.reach()
        self._next_id += 1
        number, events = self._next_id, asyncio.Queue[Event | None]()
        self._jobs[number] = send, events
        done = False
        try:
            send({"id": number, "op": op, **request})
            while not done:
                event = await events.get()
                if event is None:
                    done = True
                    raise gone()
                done = event["event"] in ("done", "failed")
                if event["event"] == "failed":
                    raise failure(event)
                yield event
        finally:
            del self._jobs[number]
            if not done:
                send({"id": number, "op": "cancel"})

    def tell(self, event: Event, op: str, **more: Any) -> None:
        """Says more to the job of an event, which runs."""
        if (job := self._jobs.get(event["id"])) is not None:
            job[0]({"id": event["id"], "op": op, **more})

    async def answer(self, op: str, **request: Any) -> Event:
        """The last event of a job. Raises FleetError."""
        last: Event = {}
        async for event in self.run(op, **request):
            last = event
        return last


def gone() -> FleetError:
    return SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error("cannot reach the snapshotter: its process has ended")


def failure(event: Event) -> FleetError:
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))
    if event.get("source") == "store":
        return OF_STORE.get(reason, SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE).error(message)
    for one in IN_THE_WAY:
        if one.value == reason:
            return FleetError(one.problem(message, passing=one is not SuspendReason.STATE_NOT_SAVED))
    return OF_EXECUTOR.get(reason, ClaimReason.EXECUTOR_UNREACHABLE).error(message)
