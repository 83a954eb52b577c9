"""Snapshots: messages as values. What stands in their contents comes from executors, which are hostile."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert.suspension import CONTEXTS_LIMIT, NAMES_LIMIT, TEXT_LIMIT, context
from sandfleet._wire.convert.variables import texts
from sandfleet.values.suspension import Restoration, Snapshot, SnapshotContents, UnsavedFile

_FILES_LIMIT = 1_000


def snapshot(message: api.snapshots.Snapshot) -> Snapshot:
    """Read a snapshot."""
    return Snapshot(
        snapshot_id=message.snapshot_id,
        name=message.name,
        sandbox_id=message.sandbox_id,
        template=message.template,
        contract=message.contract or "autonomous",
        received=tuple(message.received),
        limits=convert.limits(message.limits),
        labels=dict(message.labels),
        reason=message.reason,
        created=convert.moment(message.created),
        entries=message.entries,
        size_bytes=message.bytes,
        new_bytes=message.new_bytes,
        stored_bytes=message.stored_bytes,
        contents=_contents(message.facts) if message.HasField("facts") else None,
    )


def restoration(message: api.snapshots.RestoreSnapshotResponse.Restored) -> Restoration:
    """Read what came back."""
    back = message.resumption
    return Restoration(
        snapshot=snapshot(message.snapshot),
        contexts=tuple(map(context, back.contexts[:CONTEXTS_LIMIT])),
        services=texts(back.services, NAMES_LIMIT),
        ended_executions=texts(message.ended_executions, NAMES_LIMIT),
        unrestored=_files(message.unrestored),
    )


def _contents(facts: api.executor_snapshot.SnapshotFacts) -> SnapshotContents:
    return SnapshotContents(
        contexts=tuple(context(one.report) for one in facts.contexts[:CONTEXTS_LIMIT]),
        services=len(facts.services),
        unsaved=_files(facts.unsaved),
        unsaved_count=facts.unsaved.count,
        running=texts(facts.running_executions, NAMES_LIMIT),
        frozen=facts.frozen_seconds,
        tmp_bytes=facts.tmp_bytes,
    )


def _files(message: api.executor_snapshot.UnsavedEntries) -> tuple[UnsavedFile, ...]:
    return tuple(
        UnsavedFile(one.path.decode("utf-8", "backslashreplace")[:TEXT_LIMIT], one.reason[:TEXT_LIMIT])
        for one in message.listed[:_FILES_LIMIT]
    )
