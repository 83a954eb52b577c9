"""What callers say and are told about snapshots, and what is wrong with it."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import common_pb2, service_pb2, session_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as executor_pb
from sandfleet_api.fleet.v1 import snapshot_pb2 as pb

from sandfleet_operator.api.limits import BOUNDS, TIMES
from sandfleet_operator.executors.calls import duration
from sandfleet_operator.fleet.snapshots.jobs import Event
from sandfleet_operator.plan.snapshots.manifest import ID, NAME
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

MAX_REFERENCE, MAX_LABELS, MAX_LABEL = 128, 64, 256
# That callers may give. What keeps a session is the fleet's to say: it deletes those that no session needs.
REASONS = frozenset({"manual", "fork"})


def check_new(name: str, labels: Mapping[str, str], reason: str) -> None:
    """Raises FleetError."""
    if name and not NAME.fullmatch(name):
        why = f"cannot name a snapshot {name[:70]!r}: a name has 1 to 63 of a-z, 0-9, '-' and '.'"
        raise SnapshotReason.SNAPSHOT_INVALID.error(why)
    check_no_id(name)
    if len(labels) > MAX_LABELS or any(len(one) > MAX_LABEL for one in (*labels, *labels.values())):
        why = f"cannot label a snapshot: it has over {MAX_LABELS} labels, or one of over {MAX_LABEL} characters"
        raise SnapshotReason.SNAPSHOT_INVALID.error(why)
    if reason and reason not in REASONS:
        why = f"its reason {reason[:40]!r} is none that a caller may give"
        raise SnapshotReason.SNAPSHOT_INVALID.error(f"cannot take a snapshot: {why}")


def check_no_id(name: str) -> None:
    """Raises FleetError: it could be taken for the id of another snapshot."""
    if ID.fullmatch(name):
        why = "it looks like the id of one"
        raise SnapshotReason.SNAPSHOT_INVALID.error(f"cannot name a snapshot {name!r}: {why}")


def check_reference(text: str) -> None:
    if not NAME.fullmatch(text) or len(text) > MAX_REFERENCE:
        raise SnapshotReason.SNAPSHOT_NOT_FOUND.error(f"cannot find snapshot {text[:80]!r}: it is no id and no name")


def progress(event: Event) -> pb.SnapshotProgress:
    return pb.SnapshotProgress(entries=event["entries"], bytes=event["bytes"], total_bytes=event["total"])


def message(said: Mapping[str, Any]) -> pb.Snapshot:
    created = int(said["created_ms"])
    return pb.Snapshot(
        snapshot_id=said["id"],
        name=said["name"],
        sandbox_id=said["sandbox"],
        template=said["template"],
        contract=said["contract"],
        received=said["received"],
        limits=_limits_message(said["limits"]),
        labels=said["labels"],
        reason=said["reason"],
        created=Timestamp(seconds=created // 1000, nanos=created % 1000 * 1_000_000),
        entries=said["entries"],
        bytes=said["bytes"],
        new_bytes=said["new_bytes"],
        stored_bytes=said["stored_bytes"],
    )


def _limits_message(said: Mapping[str, float]) -> common_pb2.Limits:
    given: dict[str, Any] = {name: value for name, value in said.items() if name in BOUNDS and value}
    whole = BOUNDS.keys() - {*TIMES, "cpus"}
    told: dict[str, Any] = {
        name: duration(value) if name in TIMES else int(value) if name in whole else value
        for name, value in given.items()
    }
    return common_pb2.Limits(**told)


def suspension_of(facts: executor_pb.SnapshotFacts) -> session_pb2.Suspension:
    """What was kept, by the executor's word."""
    stopped = frozenset(facts.stopped_services)
    names = (_service_name(one) for one in facts.services)
    return session_pb2.Suspension(
        contexts=[one.report for one in facts.contexts],
        services=[name for name in names if name and name not in stopped],
        ended_executions=facts.ended_executions,
        ended_connections=facts.ended_connections,
        tmp_bytes=facts.tmp_bytes,
    )


def _service_name(spec: bytes) -> str:
    try:
        return service_pb2.ServiceSpec.FromString(spec).name
    except DecodeError:
        return ""
