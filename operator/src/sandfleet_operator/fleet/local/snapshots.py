"""Snapshots of the sandboxes of one machine: whose they are, what they may become, and the snapshotter's work."""

import asyncio
import base64
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as executor_pb
from sandfleet_api.fleet.v1 import snapshot_pb2 as pb

from sandfleet_operator.api.limits import BOUNDS, in_numbers
from sandfleet_operator.api.validate import check_id
from sandfleet_operator.api.values import Mark, Sandbox, Template
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.client import Executors, duration
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.local.received import LocalReceived
from sandfleet_operator.fleet.local.snapshotter import Event, Snapshotter
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.plan.snapshots.claims import encode_claim
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason
from sandfleet_operator.snapshots.backends.places import may_exist

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
MAX_REFERENCE, MAX_LABELS, MAX_LABEL = 128, 64, 256
REASONS = frozenset({"manual", "suspend", "automatic", "fork"})
EXPORTED_BYTES = 1 << 20
# "deny": callers of this fleet may not bring in what was written elsewhere.
IMPORTS = "SANDFLEET_SNAPSHOT_IMPORTS"
# Of an imported file.
MAX_IMPORT_BYTES = 1 << 40


@dataclass(frozen=True)
class Sessions:
    """The sessions of this machine, and what is known of them."""

    fleet: FleetDriver
    suspender: Suspender
    executors: Executors
    received: LocalReceived


class LocalSnapshots:
    """One tenant, and one caller: the owner of this machine's fleet."""

    def __init__(
        self,
        sessions: Sessions,
        templates: Mapping[str, Template],
        caller: Caller,
        snapshotter: Snapshotter | None = None,
    ) -> None:
        self._fleet, self._suspender = sessions.fleet, sessions.suspender
        self._executors, self._received = sessions.executors, sessions.received
        self._snapshotter = snapshotter or Snapshotter()
        self._templates = templates
        self._caller = caller

    async def close(self) -> None:
        """Ends the snapshotter."""
        await self._snapshotter.close()

    async def authenticate(self, token: str) -> Caller:  # noqa: ARG002 - the transport has let the caller in
        return self._caller

    async def create(
        self, caller: Caller, request: pb.CreateSnapshotRequest
    ) -> AsyncIterator[pb.CreateSnapshotResponse]:
        _check_new(request.name, request.labels, request.reason)
        sandbox = await self._reachable(request.sandbox_id, doing="take a snapshot")
        words = {"name": request.name, "labels": dict(request.labels), "reason": request.reason or "manual"}
        async with aclosing(self.save(caller, sandbox, words)) as events:
            async for event in events:
                if event["event"] == "progress":
                    yield pb.CreateSnapshotResponse(progress=_progress(event))
                else:
                    yield pb.CreateSnapshotResponse(snapshot=_message(event["snapshot"]))

    async def save(
        self,
        caller: Caller,
        sandbox: Sandbox,
        words: Mapping[str, Any],
        *,
        hold: bool = False,
        force: bool = False,
        keep_days: float | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The snapshotter's events. `words`: name, labels and reason; `hold`: the session ends with it."""
        about = {
            "session": sandbox.sandbox_id,
            "sandbox": sandbox.sandbox_id,
            "template": sandbox.template,
            "contract": sandbox.contract,
            "received": self._marks(sandbox),
            "limits": self._limits(sandbox),
            "parents": (),
            "owner": caller.username,
            "claim": encode_claim(sandbox.claim) if sandbox.claim else "",
            "keep": {"days": keep_days},
            **words,
        }
        job = self._snapshotter.run("save", about=about, hold=hold, force=force, **self._place(sandbox))
        async with aclosing(job) as events:
            async for event in events:
                if event["event"] == "done" and self._marks(sandbox) != about["received"]:
                    await self._overtaken(sandbox, event, hold=hold)
                yield event

    def _marks(self, sandbox: Sandbox) -> list[str]:
        return sorted(one.value for one in self._received.note(sandbox.sandbox_id, frozenset()))

    async def _overtaken(self, sandbox: Sandbox, event: Event, *, hold: bool) -> None:
        """Raises FleetError: the snapshot has what came meanwhile, and not its mark."""
        await self.forget(event["snapshot"]["id"])
        if hold:
            await self._snapshotter.answer("unhold", **self._place(sandbox))
        why = f"sandbox {sandbox.sandbox_id} has received {', '.join(self._marks(sandbox))} content meanwhile"
        raise SnapshotReason.SNAPSHOT_OVERTAKEN.error(f"cannot save: {why}", sandbox.sandbox_id)

    async def keeps(self, sandbox_id: str) -> Event | None:
        """The newest snapshot with which this session goes on, and its claim. Raises FleetError."""
        if not may_exist(os.environ):
            # Nothing was ever saved: no process is started to find that out.
            return None
        found = await self._snapshotter.answer("keeps", sandbox=sandbox_id)
        return found if "snapshot" in found else None

    async def fill(
        self, sandbox: Sandbox, snapshot_id: str, told: Callable[[], None], *, undone_since: float | None
    ) -> executor_pb.RestoreResponse:
        """Puts a snapshot into a sandbox that its caller does not have yet. `told` at each progress. Raises FleetError.

        `undone_since`: the session was lost, and is told so, in seconds of the epoch.
        """
        job = self._snapshotter.run(
            "restore",
            snapshot=snapshot_id,
            force=True,
            undone_since=undone_since,
            contract=sandbox.contract,
            limits=self._limits(sandbox),
            **self._place(sandbox),
        )
        last: Event = {}
        async with aclosing(job) as events:
            async for event in events:
                told()
                last = event
        return executor_pb.RestoreResponse.FromString(base64.b64decode(last["answer"]))

    async def forget(self, snapshot_id: str) -> None:
        """Raises FleetError."""
        await self._snapshotter.answer("delete", snapshot=snapshot_id)

    async def restore(
        self,
        caller: Caller,  # noqa: ARG002 - there is one caller
        request: pb.RestoreSnapshotRequest,
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]:
        _check_reference(request.snapshot)
        sandbox = await self._reachable(request.sandbox_id, doing="restore a snapshot")
        # Before a byte of it is there: a crash in between leaves a session that is marked for nothing.
        said = (await self._snapshotter.answer("get", snapshot=request.snapshot))["snapshot"]
        self._received.note(sandbox.sandbox_id, marks_of(said["received"]))
        job = self._snapshotter.run(
            "restore",
            snapshot=said["id"],
            force=request.force,
            undone_since=None,
            contract=sandbox.contract,
            limits=self._limits(sandbox),
            **self._place(sandbox),
        )
        async with aclosing(job) as events:
            async for event in events:
                if event["event"] == "progress":
                    yield pb.RestoreSnapshotResponse(progress=_progress(event))
                else:
                    yield pb.RestoreSnapshotResponse(restored=await self._restored(sandbox, event))

    async def get(self, caller: Caller, request: pb.GetSnapshotRequest) -> pb.GetSnapshotResponse:  # noqa: ARG002 - there is one caller
        _check_reference(request.snapshot)
        event = await self._snapshotter.answer("get", snapshot=request.snapshot)
        message = _message(event["snapshot"])
        message.facts.ParseFromString(base64.b64decode(event["facts"]))
        return pb.GetSnapshotResponse(snapshot=message)

    async def list(self, caller: Caller, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:  # noqa: ARG002 - there is one caller
        found = pb.ListSnapshotsResponse()
        async for event in self._snapshotter.run("list", sandbox=request.sandbox_id):
            if event["event"] == "snapshot":
                found.snapshots.append(_message(event["snapshot"]))
        return found

    async def delete(self, caller: Caller, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:  # noqa: ARG002 - there is one caller
        _check_reference(request.snapshot)
        event = await self._snapshotter.answer("delete", snapshot=request.snapshot)
        return pb.DeleteSnapshotResponse(existed=bool(event["existed"]))

    async def export(
        self,
        caller: Caller,  # noqa: ARG002 - there is one caller
        request: pb.ExportSnapshotRequest,
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        _check_reference(request.snapshot)
        async with _scratch() as path:
            await self._snapshotter.answer("export", snapshot=request.snapshot, path=str(path))
            async with _opened(path, "rb") as file:
                while data := await asyncio.to_thread(file.read, EXPORTED_BYTES):
                    yield pb.ExportSnapshotResponse(data=data)

    async def import_(
        self, caller: Caller, requests: AsyncIterator[pb.ImportSnapshotRequest]
    ) -> pb.ImportSnapshotResponse:
        if os.environ.get(IMPORTS) == "deny":
            why = f"{IMPORTS} of this fleet denies it"
            raise SnapshotReason.SNAPSHOT_IMPORT_DENIED.error(f"cannot import: {why}")
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            why = "cannot import: the stream has to begin with a header"
            raise SnapshotReason.SNAPSHOT_INVALID.error(why)
        _check_new(first.header.name, {}, "")
        # The file asks for a contract and for limits, of which it gets what a template here has at most.
        offers = {one.contract: in_numbers(one.limits) for one in self._templates.values()}
        template = next(iter(self._templates.values())).name
        words = {"name": first.header.name, "template": template, "owner": caller.username}
        async with _scratch() as path:
            await _received_file(requests, path)
            event = await self._snapshotter.answer("import", path=str(path), words=words, offers=offers)
        return pb.ImportSnapshotResponse(snapshot=_message(event["snapshot"]))

    async def _reachable(self, sandbox_id: str, *, doing: str) -> Sandbox:
        """Raises FleetError."""
        check_id(sandbox_id, "sandbox id", doing=doing)
        await self._suspender.settled(sandbox_id, sandbox_id)
        return await self._fleet.get(sandbox_id, reachable=True)

    def _place(self, sandbox: Sandbox) -> dict[str, str]:
        return {
            "address": self._executors.address(sandbox),
            "token": self._executors.transfer_token(sandbox).text,
        }

    def _limits(self, sandbox: Sandbox) -> dict[str, float]:
        """Those in force: the template's, lowered by the claim."""
        found = in_numbers(self._templates[sandbox.pool].limits)
        asked = asdict(sandbox.claim.limits) if sandbox.claim else {}
        return found | {name: value for name, value in asked.items() if value}

    async def _restored(self, sandbox: Sandbox, event: Event) -> pb.RestoreSnapshotResponse.Restored:
        answer = executor_pb.RestoreResponse.FromString(base64.b64decode(event["answer"]))
        return pb.RestoreSnapshotResponse.Restored(
            snapshot=_message(event["snapshot"]),
            unrestored=answer.unrestored,
            ended_executions=answer.ended_executions,
            resumption=await self._suspender.resumption(sandbox.sandbox_id),
        )


async def _received_file(requests: AsyncIterator[pb.ImportSnapshotRequest], path: Path) -> None:
    size = 0
    async with _opened(path, "xb") as file:
        async for request in requests:
            size += len(request.data)
            if request.WhichOneof("part") != "data" or size > MAX_IMPORT_BYTES:
                raise SnapshotReason.SNAPSHOT_INVALID.error("cannot import: after the header only data may come")
            try:
                await asyncio.to_thread(file.write, request.data)
            except OSError as error:
                why = f"cannot import: its file has no room here: {error.strerror}"
                raise SnapshotReason.SNAPSHOT_STORE_FULL.error(why) from error


@asynccontextmanager
async def _scratch() -> AsyncGenerator[Path, None]:
    """The path of a new file of this user's alone, which is removed at the end. No disk is waited for by the loop."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="sandfleet-")
    try:
        yield Path(folder) / "snapshot"
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))


@asynccontextmanager
async def _opened(path: Path, mode: str) -> AsyncGenerator[IO[bytes], None]:
    file: IO[bytes] = await asyncio.to_thread(path.open, mode, 0)
    try:
        yield file
    finally:
        await asyncio.shield(asyncio.to_thread(file.close))


def _check_new(name: str, labels: Mapping[str, str], reason: str) -> None:
    """Raises FleetError."""
    if name and not NAME.fullmatch(name):
        why = f"cannot name a snapshot {name[:70]!r}: a name has 1 to 63 of a-z, 0-9, '-' and '.'"
        raise SnapshotReason.SNAPSHOT_INVALID.error(why)
    if len(labels) > MAX_LABELS or any(len(one) > MAX_LABEL for one in (*labels, *labels.values())):
        why = f"cannot label a snapshot: it has over {MAX_LABELS} labels, or one of over {MAX_LABEL} characters"
        raise SnapshotReason.SNAPSHOT_INVALID.error(why)
    if reason and reason not in REASONS:
        raise SnapshotReason.SNAPSHOT_INVALID.error(f"cannot take a snapshot: its reason {reason[:40]!r} is none")


def _check_reference(text: str) -> None:
    if not NAME.fullmatch(text) or len(text) > MAX_REFERENCE:
        raise SnapshotReason.SNAPSHOT_NOT_FOUND.error(f"cannot find snapshot {text[:80]!r}: it is no id and no name")


def marks_of(words: list[str]) -> frozenset[Mark]:
    """A word that is unknown counts as untrusted."""
    known = {mark.value: mark for mark in Mark}
    return frozenset(known.get(word, Mark.UNTRUSTED) for word in words)


def _progress(event: Event) -> pb.SnapshotProgress:
    return pb.SnapshotProgress(entries=event["entries"], bytes=event["bytes"], total_bytes=event["total"])


def _message(said: Mapping[str, Any]) -> pb.Snapshot:
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
    times = {"max_timeout", "default_timeout"}
    given: dict[str, Any] = {name: value for name, value in said.items() if name in BOUNDS and value}
    told: dict[str, Any] = {name: duration(value) if name in times else int(value) for name, value in given.items()}
    return common_pb2.Limits(**told)
