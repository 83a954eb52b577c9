"""What the API server has written down of itself: who was admitted, what ended, and what the queues granted."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandfleet_operator.api.kinds.queue import QueueSpec, queue_spec
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState

Json = dict[str, Any]
WRITES = ("create", "update", "patch", "delete", "deletecollection")
# With what was answered, where the answer proves something; all other writes by their names.
POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {
            "level": "RequestResponse",
            "verbs": ["patch", "update", "delete"],
            "resources": [{"group": "", "resources": ["pods"]}],
        },
        {
            "level": "RequestResponse",
            "verbs": ["create", "patch"],
            "resources": [{"group": "sandfleet.io", "resources": ["sandboxqueues"]}],
        },
        {"level": "Metadata", "verbs": list(WRITES)},
    ],
}


@dataclass(frozen=True)
class Event:
    """`revision` is the order in which the API server has written; `at` is in seconds since the epoch."""

    revision: int
    at: float


@dataclass(frozen=True)
class Admitted(Event):
    """A pod was bound to a claim."""

    pod: str
    request: tuple[str, str]
    queue: str


@dataclass(frozen=True)
class Gone(Event):
    """A pod does not exist any more."""

    pod: str


@dataclass(frozen=True)
class Granted(Event):
    """What a queue grants from now on."""

    queue: str
    spec: QueueSpec


@dataclass(frozen=True)
class Log:
    events: list[Event]
    # Verb and resource → writes that were done.
    writes: Counter[tuple[str, str]]


def read(path: Path) -> Log:
    """The events in the order in which the API server has written them."""
    events: list[Event] = []
    writes: Counter[tuple[str, str]] = Counter()
    for line in _lines(path):
        if line["responseStatus"].get("code", 500) >= 300 or "objectRef" not in line:
            continue
        ref = line["objectRef"]
        what = "/".join(part for part in (ref["resource"], ref.get("subresource")) if part)
        writes[line["verb"], what] += 1
        if what == "pods":
            events.extend(_of_pod(line))
        elif what == "sandboxqueues":
            events.extend(_of_queue(line))
    return Log(_first_of_each(sorted(events, key=lambda one: one.revision)), writes)


def _lines(path: Path) -> Iterator[Json]:
    with path.open() as log:
        for text in log:
            try:
                yield json.loads(text)
            except ValueError:
                # The last line of a server that was stopped.
                return


def _of_pod(line: Json) -> Iterator[Event]:
    pod = line.get("responseObject") or {}
    meta = pod.get("metadata") or {}
    # Without a revision it answers that another deletion was faster.
    if "uid" not in meta or "resourceVersion" not in meta:
        return
    at, revision, uid = _at(line), int(meta["resourceVersion"]), meta["uid"]
    if line["verb"] == "delete":
        # A pod that has time to end is answered as it is, and deleted again by its node.
        if meta.get("deletionGracePeriodSeconds", 0) == 0:
            yield Gone(revision, at, uid)
        return
    record = read_record(meta.get("annotations", {}).get(names.CLAIM, ""))
    if record is not None and meta.get("labels", {}).get(names.STATE) == PodState.CLAIMED.value:
        yield Admitted(revision, at, uid, (record.holder, record.request), record.queue)


def _of_queue(line: Json) -> Iterator[Event]:
    found = line.get("responseObject") or {}
    if "spec" in found:
        meta = found["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"
        yield Granted(int(meta["resourceVersion"]), _at(line), name, queue_spec(found["spec"]))


def _at(line: Json) -> float:
    return dt.datetime.fromisoformat(line["stageTimestamp"]).timestamp()


def _first_of_each(events: list[Event]) -> list[Event]:
    """Later patches of a bound pod bind it no more; of several deletions of a pod the last one counts."""
    bound: set[str] = set()
    last = {one.pod: one.revision for one in events if isinstance(one, Gone)}
    found: list[Event] = []
    for one in events:
        if isinstance(one, Admitted):
            if one.pod in bound:
                continue
            bound.add(one.pod)
        if not isinstance(one, Gone) or last[one.pod] == one.revision:
            found.append(one)
    return found
