"""What the SandboxSnapshots of a namespace ask for, and what they say of the snapshots in the store.

    with sandboxRef      held by our finalizer ─► saved, under the object's uid ─► its status has the id
    taken over the API   ─► an object with snapshotID, held ─► its status
    deleted              the snapshot goes ─► the finalizer goes

Each step may be the last before this process ends: the next round finds in objects and store what is left to do.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sandfleet_operator.api.conditions import SavedReason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.snapshot import SandboxSnapshot, SnapshotObjectStatus

SAVED = "Saved"
# Label of a snapshot that an object has asked for: the object's uid.
OBJECT = "sandfleet.io/object-uid"
# Reasons of snapshots that are no objects: the CodeSandbox of their session names them.
KEEPING = frozenset({"suspend", "automatic"})
# Who deletes those that no CodeSandbox names.
ORPHANS = "orphans"
# A snapshot of such a reason that no CodeSandbox names is left alone for so long: it may be about to be named.
ORPHAN_SECONDS = 900.0
MAX_MESSAGE, MAX_LISTED = 1024, 64
# Of an object; a snapshot's may have dots.
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# So many parts of the snapshots that keep sessions: one goes at most in a round, by mistake too. One may always go.
ORPHAN_PARTS = 10
UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")

# What a snapshotter says of a snapshot: snapshots/worker.py.
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """What the store has of a namespace.

    Attributes:
        unread: ids of snapshots that are there and cannot be read.
        whole: not so, there are more than a listing has: what is missing may be there.

    """

    found: Sequence[Facts] = ()
    unread: frozenset[str] = frozenset()
    whole: bool = True

    def may_have(self, snapshot_id: str) -> bool:
        """Whether one that was not found may be there nevertheless."""
        return snapshot_id in self.unread or not self.whole


@dataclass(frozen=True, slots=True)
class Hold:
    """Add our finalizer."""

    obj: SandboxSnapshot


@dataclass(frozen=True, slots=True)
class Save:
    """Take the snapshot that it asks for."""

    obj: SandboxSnapshot


@dataclass(frozen=True, slots=True)
class Create:
    """Show a snapshot that was taken over the API."""

    name: str
    snapshot_id: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    obj: SandboxSnapshot
    status: SnapshotObjectStatus


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """`by` says who deletes it."""

    snapshot_id: str
    by: str = "caller"


@dataclass(frozen=True, slots=True)
class Undelete:
    """Take back what was deleted as if it kept no session."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Remove our finalizer. `drop`: the object goes as well, since it only showed what is gone."""

    obj: SandboxSnapshot
    drop: bool = False


Step = Hold | Save | Create | WriteStatus | DeleteSnapshot | Undelete | Release


def named_by(obj: Mapping[str, Any]) -> Iterator[str]:
    """The snapshots that a CodeSandbox names. It need not be one that can be read: what it names is needed."""
    status = obj.get("status")
    if isinstance(status, Mapping):
        said = status.get("snapshot")
        names = (status.get("restoresFrom"), said.get("id") if isinstance(said, Mapping) else None)
        yield from (one for one in names if isinstance(one, str))


def steps(objects: Sequence[SandboxSnapshot], listing: Listing, named: Collection[str], now: float) -> list[Step]:
    """`named`: ids of the snapshots that CodeSandboxes of the namespace name."""
    by_id = {one["id"]: one for one in listing.found}
    asked = {one["labels"][OBJECT]: one["id"] for one in by_id.values() if OBJECT in one["labels"]}
    ids = {one.meta.uid: one.snapshot_id or asked.get(one.meta.uid, "") for one in objects}
    made: list[Step] = []
    for one in objects:
        made += _of_object(one, ids[one.meta.uid], by_id, listing, now)
    shown = frozenset(ids.values())
    taken = {one.meta.name for one in objects}
    for facts in by_id.values():
        if facts["id"] not in shown and facts["reason"] not in KEEPING:
            is_free = NAME.fullmatch(facts["name"]) and facts["name"] not in taken
            name = facts["name"] if is_free else f"snapshot-{facts['id']}"
            taken.add(name)
            made.append(Create(name, facts["id"]))
    # As where two clusters, of which one was made of a backup of the other, have one store.
    back = [Undelete(one) for one in sorted(named) if one not in by_id and not listing.may_have(one)]
    return [*made, *back, *_orphans(listing.found, named, now)]


def _orphans(found: Sequence[Facts], named: Collection[str], now: float) -> list[Step]:
    """What keeps no session any more, the oldest first, and never more than a part of what keeps sessions."""
    keeping = sorted((one for one in found if one["reason"] in KEEPING), key=lambda one: one["created_ms"])
    left = [
        DeleteSnapshot(one["id"], ORPHANS)
        for one in keeping
        if one["id"] not in named and now - one["created_ms"] / 1000 > ORPHAN_SECONDS
    ]
    return list(left[: max(1, len(keeping) // ORPHAN_PARTS)])


def _of_object(
    one: SandboxSnapshot, snapshot_id: str, by_id: Mapping[str, Facts], listing: Listing, now: float
) -> list[Step]:
    facts = by_id.get(snapshot_id) if snapshot_id else None
    if one.meta.deleting:
        is_there = facts is not None or (bool(snapshot_id) and listing.may_have(snapshot_id))
        gone: list[Step] = [DeleteSnapshot(snapshot_id)] if is_there else []
        return [*gone, Release(one)] if one.is_held else []
    if not one.is_held:
        # Before anything is in the store that only it knows of.
        return [Hold(one)]
    if facts is not None:
        return _written(one, shows(one, facts, now))
    if not snapshot_id:
        return [Save(one)] if one.spec.sandbox else []
    if listing.may_have(snapshot_id):
        return []
    if not one.spec.sandbox:
        return [Release(one, drop=True)]
    return _written(one, says(one, SavedReason.SNAPSHOT_GONE, "", now))


def _written(one: SandboxSnapshot, status: SnapshotObjectStatus) -> list[Step]:
    return [] if status == one.status else [WriteStatus(one, status)]


def shows(one: SandboxSnapshot, facts: Facts, now: float) -> SnapshotObjectStatus:
    """The status of an object whose snapshot is there."""
    said = says(one, SavedReason.SAVED, "", now)
    return replace(
        said,
        snapshot_id=facts["id"],
        sandbox=facts["sandbox"].rpartition("/")[2],
        template=facts["template"],
        contract=facts["contract"],
        owner=facts["owner"][:256],
        taken=facts["reason"],
        time=float(facts["created_ms"] // 1000),
        entries=facts["entries"],
        bytes=facts["bytes"],
        size=size_text(facts["bytes"]),
        added=size_text(facts["new_bytes"]),
        parents=tuple(facts["parents"])[:MAX_LISTED],
        received=tuple(facts["received"]),
    )


def says(one: SandboxSnapshot, reason: SavedReason, message: str, now: float) -> SnapshotObjectStatus:
    """The status with this word. What does not change keeps its time."""
    is_saved = "True" if reason is SavedReason.SAVED else "False"
    before = next((known for known in one.status.conditions if known.type == SAVED), None)
    condition = Condition(
        type=SAVED,
        status=is_saved,
        reason=reason.value,
        message=(message or reason.meaning)[:MAX_MESSAGE],
        changed=before.changed if before is not None and before.status == is_saved else float(int(now)),
        observed_generation=one.meta.generation,
    )
    return replace(one.status, conditions=(condition,), observed_generation=one.meta.generation)


def size_text(value: int) -> str:
    """Of two digits or three, like 1.2Gi."""
    size, unit = float(value), 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}{UNITS[unit]}" if unit and size < 10 else f"{size:.0f}{UNITS[unit]}"
