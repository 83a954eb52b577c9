"""Snapshots ↔ the messages of the API. What comes is input: a snapshot may have been written by anyone."""

from collections.abc import Sequence

from sandfleet_api.executor.v1 import interpreter_pb2
from sandfleet_api.executor.v1 import session_pb2 as session_messages
from sandfleet_api.executor.v1 import snapshot_pb2 as pb

from sandfleet_executor import __version__
from sandfleet_executor.core import requests
from sandfleet_executor.core.contexts import states
from sandfleet_executor.core.contexts.states import Bounds
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.snapshots.entries import Entry, InvalidEntry, Kind, Totals, Tree, Unsaved, shown, whole
from sandfleet_executor.core.snapshots.session import Found, Restored, Wanted
from sandfleet_executor.core.suspension.record import ContextReport, KeptContext, Record
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.convert import contexts

# Of one restore.
MAX_CONTEXTS, MAX_SERVICES, MAX_TEXT = 64, 256, 4096
# The last second of the year 9999.
MAX_TIME = 253402300799.0
# Executions that a save names.
MAX_NAMED = 100
TREES = {Tree.VARIABLES: pb.SNAPSHOT_TREE_VARIABLES, Tree.WORKSPACE: pb.SNAPSHOT_TREE_WORKSPACE}
KINDS = {
    Kind.FILE: pb.SNAPSHOT_ENTRY_KIND_FILE,
    Kind.DIRECTORY: pb.SNAPSHOT_ENTRY_KIND_DIRECTORY,
    Kind.SYMLINK: pb.SNAPSHOT_ENTRY_KIND_SYMLINK,
    Kind.HARD_LINK: pb.SNAPSHOT_ENTRY_KIND_HARD_LINK,
}
TREE_OF = {number: tree for tree, number in TREES.items()}
KIND_OF = {number: kind for kind, number in KINDS.items()}
ORIGINS = {"image": session_messages.PACKAGE_ORIGIN_IMAGE, "workspace": session_messages.PACKAGE_ORIGIN_WORKSPACE}


def entry_message(entry: Entry) -> pb.SnapshotEntry:
    sparse = entry.extents != whole(entry.size)
    return pb.SnapshotEntry(
        tree=TREES[entry.tree],
        path=entry.path,
        kind=KINDS[entry.kind],
        mode=entry.mode,
        modified_ns=entry.modified_ns,
        target=entry.target,
        attributes=[pb.ExtendedAttribute(name=name, value=value) for name, value in entry.attributes],
        size=entry.size,
        sparse=sparse,
        extents=[pb.Extent(offset=at, length=length) for at, length in entry.extents] if sparse else (),
        linked=entry.linked,
        known=entry.known,
    )


def entry_of(message: pb.SnapshotEntry) -> Entry:
    """Raises InvalidEntry for a tree or a kind that is none; the rest is checked where it is used."""
    if message.tree not in TREE_OF or message.kind not in KIND_OF:
        raise InvalidEntry(f"cannot restore {shown(message.path)}: it is neither a file, a folder nor a link")
    extents = tuple((one.offset, one.length) for one in message.extents) if message.sparse else whole(message.size)
    return Entry(
        tree=TREE_OF[message.tree],
        path=message.path,
        kind=KIND_OF[message.kind],
        mode=message.mode,
        modified_ns=message.modified_ns,
        target=message.target,
        attributes=tuple((one.name, one.value) for one in message.attributes),
        size=message.size,
        extents=extents if KIND_OF[message.kind] is Kind.FILE else (),
        linked=message.linked,
    )


def piece_message(entries: Sequence[Entry], data: bytes) -> pb.SnapshotPart:
    return pb.SnapshotPart(entries=map(entry_message, entries), data=data)


def piece_of(message: pb.SnapshotPart) -> tuple[list[Entry], bytes]:
    """Raises InvalidEntry."""
    return [entry_of(one) for one in message.entries], message.data


def totals_message(totals: Totals) -> pb.SnapshotTotals:
    return pb.SnapshotTotals(entries=totals.entries, bytes=totals.bytes)


def unsaved_message(unsaved: Unsaved) -> pb.UnsavedEntries:
    listed = [pb.UnsavedEntry(path=path, reason=reason) for path, reason in unsaved.listed]
    return pb.UnsavedEntries(listed=listed, count=unsaved.count)


def facts_message(found: Found) -> pb.SnapshotFacts:
    record = found.record
    reports = {one.id: one for one in found.reports}
    return pb.SnapshotFacts(
        contexts=[_context_message(one, reports[one.id]) for one in record.contexts],
        services=record.services,
        stopped_services=record.stopped,
        unsaved=unsaved_message(found.unsaved),
        session_id=record.session_id,
        contract=found.contract,
        limits=convert.limits_message(found.limits),
        created=convert.timestamp(found.created),
        journal_number=found.journal[0],
        journal_hash=found.journal[1] if found.journal[0] else "",
        python_version=found.python,
        packages=[
            session_messages.Package(name=name, version=version, origin=ORIGINS[origin])
            for name, version, origin in found.packages
        ],
        running_executions=found.running,
        frozen_seconds=found.frozen_seconds,
        walk_seconds=found.walk_seconds,
        tmp_bytes=found.tmp_bytes,
        executor_version=__version__,
        ended_executions=found.ended[:MAX_NAMED],
        ended_connections=found.ended_connections,
        save_id=found.save_id,
    )


def _context_message(kept: KeptContext, report: ContextReport) -> pb.SavedContext:
    bounds = kept.autosave
    autosave = None
    if bounds is not None:
        autosave = interpreter_pb2.Autosave(max_bytes=bounds.total, timeout=convert.duration(bounds.seconds))
    return pb.SavedContext(report=contexts.report(report), cwd=kept.cwd, envs=kept.envs, autosave=autosave)


def wanted(header: pb.RestoreRequest.Header) -> Wanted:
    """Raises BadRequest."""
    facts = header.facts
    if len(facts.contexts) > MAX_CONTEXTS or len(facts.services) > MAX_SERVICES:
        raise BadRequest(f"cannot restore more than {MAX_CONTEXTS} contexts or {MAX_SERVICES} services")
    record = Record(
        session_id="",
        contexts=tuple(map(_kept, facts.contexts)),
        services=tuple(facts.services),
        stopped=tuple(one[:MAX_TEXT] for one in facts.stopped_services[:MAX_SERVICES]),
    )
    if len({one.id for one in record.contexts}) != len(record.contexts):
        raise BadRequest("cannot restore: two contexts have one id")
    since = None
    if header.HasField("undone_since"):
        since = min(max(0.0, header.undone_since.seconds + header.undone_since.nanos / 1e9), MAX_TIME)
    prepare = requests.check_id("snapshot id", header.prepare) if header.prepare else ""
    return Wanted(record, replace=header.replace, force=header.force, undone_since=since, prepare=prepare)


def _kept(message: pb.SavedContext) -> KeptContext:
    report = message.report
    if "\0" in message.cwd or len(message.cwd) > MAX_TEXT:
        raise BadRequest("cannot restore a context: its folder is none")
    return KeptContext(
        id=requests.check_id("context id", report.context_id),
        language=report.language[:MAX_TEXT],
        cwd=message.cwd,
        envs=requests.check_envs(message.envs),
        autosave=_autosave(message),
        # Which have variables is seen when they have come.
        saved=False,
        reason=report.reason[: states.MAX_REASON],
        message=report.message[: states.MAX_MESSAGE],
    )


def _autosave(message: pb.SavedContext) -> Bounds | None:
    if not message.HasField("autosave"):
        return None
    wish = message.autosave
    seconds = convert.seconds(wish, "timeout")
    return states.check_bounds(
        wish.max_bytes or states.AUTOSAVE_BYTES, 0, states.AUTOSAVE_SECONDS if seconds is None else seconds
    )


def restored_message(restored: Restored) -> pb.RestoreResponse:
    return pb.RestoreResponse(
        totals=totals_message(restored.totals),
        unrestored=unsaved_message(restored.unrestored),
        ended_executions=restored.ended_executions,
    )
