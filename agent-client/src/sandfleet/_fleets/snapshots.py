"""Snapshots of a fleet: taken, restored, listed, deleted, and moved as files."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import snapshots as convert
from sandfleet._wire.status import to_fleet_error
from sandfleet.errors import SandboxEnded
from sandfleet.observe import tracing
from sandfleet.values.suspension import Restoration, Snapshot, reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from typing import BinaryIO

    from sandfleet._fleets.connection import FleetConnection

_RPC_TIMEOUT = 60.0
# Of a save or a restore, whatever its size, and of a file that is moved, in seconds.
TRANSFER_TIMEOUT = 24 * 3600.0
# A fleet takes messages of a mebibyte, all fields included.
_PIECE_BYTES = 512 << 10


class AsyncSnapshots:
    """The snapshots that a fleet keeps. A snapshot outlives its sandbox, and this process."""

    def __init__(self, connection: FleetConnection, namespace: str = "") -> None:
        """Use `fleet.snapshots`. `namespace` is that of the fleet's sandboxes; "" on one machine."""
        self._connection = connection
        self._namespace = namespace

    def _within(self, namespace: str) -> AsyncSnapshots:
        """Return the snapshots of another namespace; "" means this one's."""
        return AsyncSnapshots(self._connection, namespace or self._namespace)

    @checked
    async def list(self, sandbox_id: str = "", *, deleted: bool = False) -> tuple[Snapshot, ...]:
        """List snapshots, the newest first: of one sandbox, or all. Raises UnavailableError.

        deleted: list those that `undelete` takes back, instead.
        """
        request = api.snapshots.ListSnapshotsRequest(sandbox_id=sandbox_id, namespace=self._namespace, deleted=deleted)
        return tuple(map(convert.snapshot, (await self._call("ListSnapshots", request)).snapshots))

    @checked
    async def get(self, snapshot: str | Snapshot) -> Snapshot:
        """Describe a snapshot with its contents; of a name the newest one. Raises NotFoundError."""
        request = api.snapshots.GetSnapshotRequest(snapshot=reference(snapshot), namespace=self._namespace)
        return convert.snapshot((await self._call("GetSnapshot", request)).snapshot)

    @checked
    async def delete(self, snapshot: str | Snapshot, *, now: bool = False) -> bool:
        """Delete a snapshot. Returns whether it existed; deleting one that is gone is no error.

        `undelete` takes it back for 30 days. now: delete it for good, which makes room at once.

        Raises PreconditionFailed (SnapshotNameTaken): several sessions have one of this name.
        """
        request = api.snapshots.DeleteSnapshotRequest(snapshot=reference(snapshot), namespace=self._namespace, now=now)
        return bool((await self._call("DeleteSnapshot", request)).existed)

    @checked
    async def undelete(self, snapshot: str | Snapshot) -> Snapshot:
        """Take a deleted snapshot back; of a name the newest one. Raises NotFoundError (there is none any more)."""
        request = api.snapshots.UndeleteSnapshotRequest(snapshot=reference(snapshot), namespace=self._namespace)
        return convert.snapshot((await self._call("UndeleteSnapshot", request)).snapshot)

    @checked
    async def export(self, snapshot: str | Snapshot, path: str | PathLike[str]) -> int:
        """Write a snapshot into one new file, which is not encrypted; return its size in bytes.

        The file has its name only when it is whole. Raises NotFoundError, FileExistsError.
        """
        target = Path(path)
        if await asyncio.to_thread(target.exists):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        request = api.snapshots.ExportSnapshotRequest(snapshot=reference(snapshot), namespace=self._namespace)
        unfinished = target.with_name(f".{target.name}.part")
        size = 0
        try:
            with _private(unfinished) as file:
                async with self._answers("ExportSnapshot", request) as answers:
                    async for response in answers:
                        size += await asyncio.to_thread(file.write, response.data)
            await asyncio.to_thread(unfinished.rename, target)
        finally:
            unfinished.unlink(missing_ok=True)
        return size

    @checked
    async def import_file(self, path: str | PathLike[str], *, name: str = "") -> Snapshot:
        """Make a snapshot of an exported file. A session that begins with it has received untrusted content.

        Raises InvalidArgument (it is no exported snapshot, or not a whole one).
        """
        metadata = await self._connection.metadata()
        header = api.snapshots.ImportSnapshotRequest.Header(name=name, namespace=self._namespace)
        call = self._stub.ImportSnapshot(_pieces(Path(path), header), metadata=metadata, timeout=TRANSFER_TIMEOUT)
        try:
            return convert.snapshot((await call).snapshot)
        except api.aio.AioRpcError as error:
            raise to_fleet_error(error) from error

    async def take_snapshot(self, sandbox_id: str, *, name: str, labels: Mapping[str, str], reason: str) -> Snapshot:
        """Save a sandbox. Raises SandboxEnded, PreconditionFailed, LimitReached, InvalidArgument."""
        request = api.snapshots.CreateSnapshotRequest(sandbox_id=sandbox_id, name=name, labels=labels, reason=reason)
        async with self._answers("CreateSnapshot", request) as answers:
            async for response in answers:
                if response.WhichOneof("event") == "snapshot":
                    return convert.snapshot(response.snapshot)
        raise _cut_off(sandbox_id)

    async def restore_snapshot(self, sandbox_id: str, snapshot: str | Snapshot, *, force: bool) -> Restoration:
        """Put a snapshot in the place of what a sandbox has. Raises NotFoundError, PreconditionFailed, …"""
        request = api.snapshots.RestoreSnapshotRequest(sandbox_id=sandbox_id, snapshot=reference(snapshot), force=force)
        async with self._answers("RestoreSnapshot", request) as answers:
            async for response in answers:
                if response.WhichOneof("event") == "restored":
                    return convert.restoration(response.restored)
        raise _cut_off(sandbox_id)

    @property
    def _stub(self) -> Any:
        return api.snapshots_grpc.SnapshotServiceStub(self._connection.channel)

    async def _call(self, name: str, request: api.message.Message) -> Any:
        return await self._connection.unary(
            name, request, _RPC_TIMEOUT, 0.0, stub=api.snapshots_grpc.SnapshotServiceStub
        )

    @asynccontextmanager
    async def _answers(self, name: str, request: api.message.Message) -> AsyncIterator[AsyncIterator[Any]]:
        """Open a call. Its span ends with the block, so that a reader may leave before the stream ends."""
        await self._connection.reach()
        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            # In the span, so that the fleet's own is below it.
            metadata = await self._connection.metadata()
            call = getattr(self._stub, name)(request, metadata=metadata, timeout=TRANSFER_TIMEOUT)
            try:
                yield call
            except api.aio.AioRpcError as error:
                raise self._connection.error_of(error, request) from error
            finally:
                call.cancel()


def within(snapshots: AsyncSnapshots, namespace: str) -> AsyncSnapshots:
    """Return the snapshots of another namespace; "" means the fleet's own."""
    return snapshots._within(namespace)  # noqa: SLF001 - for this package, not for its users


async def _pieces(
    path: Path, header: api.snapshots.ImportSnapshotRequest.Header
) -> AsyncIterator[api.snapshots.ImportSnapshotRequest]:
    yield api.snapshots.ImportSnapshotRequest(header=header)
    with path.open("rb") as file:
        while data := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield api.snapshots.ImportSnapshotRequest(data=data)


def _private(path: Path) -> BinaryIO:
    """Make a file for this user only: its reader has the files and the variables of the session."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _cut_off(sandbox_id: str) -> SandboxEnded:
    return SandboxEnded(f"cannot go on with sandbox {sandbox_id}: the fleet has not said the end", subject=sandbox_id)
