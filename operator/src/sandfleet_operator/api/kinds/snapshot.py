"""SandboxSnapshot: a snapshot of a session, as kubectl shows, takes and deletes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Condition, Meta, meta_of, part
from sandfleet_operator.api.table import at, decode, moment


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSpec:
    """Spec of a SandboxSnapshot: either the sandbox to save, or the id of a snapshot that is there."""

    sandbox: Annotated[str, at("sandboxRef.name")] = ""
    snapshot_id: Annotated[str, at("snapshotID")] = ""
    # Retention; None: no limit.
    count: Annotated[int | None, at("retention.count")] = None
    days: Annotated[int | None, at("retention.days")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotObjectStatus:
    """Status of a SandboxSnapshot; the fleet is its only writer."""

    conditions: Annotated[tuple[Condition, ...], at("conditions")] = ()
    observed_generation: Annotated[int, at("observedGeneration")] = 0
    snapshot_id: Annotated[str, at("snapshotID", empty="left out")] = ""
    sandbox: Annotated[str, at("sandbox", empty="left out")] = ""
    template: Annotated[str, at("template", empty="left out")] = ""
    contract: Annotated[str, at("contract", empty="left out")] = ""
    owner: Annotated[str, at("owner", empty="left out")] = ""
    taken: Annotated[str, at("taken", empty="left out")] = ""
    time: Annotated[float | None, at("time", moment, empty="left out")] = None
    entries: Annotated[int, at("entries")] = 0
    bytes: Annotated[int, at("bytes")] = 0
    # For people.
    size: Annotated[str, at("size", empty="left out")] = ""
    added: Annotated[str, at("added", empty="left out")] = ""
    parents: Annotated[tuple[str, ...], at("parents", empty="left out")] = ()
    received: Annotated[tuple[str, ...], at("received", empty="left out")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSnapshot:
    meta: Meta
    spec: SnapshotSpec
    status: SnapshotObjectStatus = SnapshotObjectStatus()
    # Whether the fleet has a say in its deletion.
    is_held: bool = False

    @property
    def snapshot_id(self) -> str:
        """Empty: it is still to be taken."""
        return self.status.snapshot_id or self.spec.snapshot_id


FINALIZER = "sandfleet.io/snapshot"


def sandbox_snapshot(value: object) -> SandboxSnapshot:
    """Raises FleetError."""
    metadata = part(value, "metadata")
    finalizers = metadata.get("finalizers") if isinstance(metadata, Mapping) else None
    return SandboxSnapshot(
        meta=meta_of(value),
        spec=decode(SnapshotSpec, part(value, "spec"), "spec"),
        status=decode(SnapshotObjectStatus, part(value, "status"), "status"),
        is_held=isinstance(finalizers, list) and FINALIZER in finalizers,
    )


def readable(value: object) -> SandboxSnapshot | None:
    """None if it cannot be read."""
    try:
        return sandbox_snapshot(value)
    except FleetError:
        return None
