"""The snapshotter of a cluster in memory: what sessions have is saved, and put into other pods."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from sandfleet_api.executor.v1 import snapshot_pb2
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs, Send
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason
from transition.joint.executors import Executors, Session

# Seconds that a save and a restore take, and that an executor holds a session after its save.
TAKES, HELD = 0.5, 120.0


@dataclass
class Saved:
    sandbox: str
    reason: str
    variables: set[str] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    created_ms: int = 0


class Snapshotter(Jobs):
    """Takes the jobs of all fleets. While it is `away`, it takes none."""

    def __init__(self, executors: Executors) -> None:
        super().__init__()
        self._executors = executors
        self.away = False
        # By the tenant and the id.
        self.saved: dict[tuple[str, str], Saved] = {}
        self._number = 0

    async def reach(self) -> Send:
        raise AssertionError("not asked")

    async def run(self, op: str, **request: Any) -> AsyncGenerator[Event, None]:
        if self.away:
            raise SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error("cannot reach a snapshotter: none is connected")
        jobs: dict[str, Callable[[Event], Any]] = {
            "save": self._save,
            "restore": self._restore,
            "delete": self._delete,
            "keeps": self._keeps,
            "unhold": self._unhold,
        }
        yield {"event": "progress", "entries": 0, "bytes": 0, "total": 0}
        yield {"event": "done", **await jobs[op](request)}

    async def _save(self, request: Event) -> Event:
        about, session = request["about"], self._session(request)
        if session.busy and not request["force"]:
            raise SuspendReason.EXECUTION_RUNNING.error("cannot save: it is in use")
        if request["unused"]:
            self._executors.preempted.append(session.session_id)
        if request["hold"]:
            session.held_until = asyncio.get_running_loop().time() + HELD
        await asyncio.sleep(TAKES)
        self._number += 1
        key = request["tenant"], f"s-{self._number}"
        saved = Saved(about["sandbox"], about["reason"], set(session.variables), self._files(request))
        if about["keep"]["count"] == 1:
            # The newest of its series is kept.
            self.saved = {
                other: one
                for other, one in self.saved.items()
                if (other[0], one.sandbox, one.reason) != (key[0], saved.sandbox, saved.reason)
            }
        self.saved[key] = saved
        saved.created_ms = int(self._executors.clock() * 1000)
        facts = base64.b64encode(snapshot_pb2.SnapshotFacts().SerializeToString()).decode()
        snapshot = {"id": key[1], "created_ms": saved.created_ms}
        return {"snapshot": snapshot, "facts": facts, "held_seconds": 0.0}

    async def _restore(self, request: Event) -> Event:
        session = self._session(request)
        if (saved := self.saved.get((request["tenant"], request["snapshot"]))) is None:
            raise SnapshotReason.SNAPSHOT_NOT_FOUND.error(f"cannot find snapshot {request['snapshot']}")
        await asyncio.sleep(TAKES)
        session = self._session(request)
        session.back(saved.variables)
        self._executors.files[self._executors.volume_of(request["name"])] = dict(saved.files)
        return {"snapshot": {"id": request["snapshot"]}, "answer": ""}

    async def _keeps(self, request: Event) -> Event:
        found = [
            {"id": key[1], "created_ms": one.created_ms, "reason": one.reason}
            for key, one in self.saved.items()
            if (key[0], one.sandbox) == (request["tenant"], request["sandbox"])
        ]
        return {"snapshot": found[-1]} if found else {}

    async def _delete(self, request: Event) -> Event:
        await asyncio.sleep(TAKES)
        return {"existed": self.saved.pop((request["tenant"], request["snapshot"]), None) is not None}

    async def _unhold(self, request: Event) -> Event:
        self._session(request).held_until = 0.0
        return {}

    def _session(self, request: Event) -> Session:
        """Of the pod of this uid. Raises FleetError."""
        known = self._executors.sessions.get(request["name"])
        if known is None or self._executors.alive(request["name"]) is None:
            raise ClaimReason.EXECUTOR_UNREACHABLE.error(f"cannot reach the executor of pod {request['name']}")
        return known

    def _files(self, request: Event) -> dict[str, int]:
        return dict(self._executors.files.get(self._executors.volume_of(request["name"]), {}))
