"""The snapshots of a fleet, as callers have them, on one machine and on Kubernetes alike."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.fleet.v1 import snapshot_pb2 as pb
from sandfleet_api.fleet.v1.snapshot_pb2_grpc import SnapshotServiceServicer

from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.calls import Answers, Context, own
from sandfleet_operator.fleet.snapshots.jobs import Event
from sandfleet_operator.fleet.snapshots.messages import check_new, check_reference, message, progress
from sandfleet_operator.fleet.snapshots.transfers import Party, Transfers, restored
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason
from sandfleet_operator.telemetry import tracing

# Bytes of an imported file.
MAX_IMPORT_BYTES = 1 << 40


class SnapshotPlace(Protocol):
    """Answers for one machine, or for a cluster: whose snapshots there are, and how files come and go.

    Each method raises FleetError.
    """

    @property
    def transfers(self) -> Transfers: ...
    async def authenticate(self, token: str) -> Caller:
        """Who calls. `token` is the call's bearer token, empty without one."""
        ...

    async def tenant(self, caller: Caller, verb: str, namespace: str) -> str:
        """Whose snapshots these are, for a caller who may do so with them."""
        ...

    async def party(self, caller: Caller, sandbox_id: str, verb: str, *, doing: str) -> Party:
        """The session that the caller may save, or fill."""
        ...

    async def resumption(self, sandbox_id: str) -> session_pb2.Resumption | None:
        """What came back of the session."""
        ...

    def changed(self, tenant: str) -> None:
        """Snapshots of the tenant came, or went."""
        ...

    def exported(self, tenant: str, snapshot: str) -> AsyncGenerator[bytes, None]:
        """The pieces of a snapshot's file."""
        ...

    async def imported(
        self, caller: Caller, tenant: str, header: pb.ImportSnapshotRequest.Header, pieces: AsyncGenerator[bytes, None]
    ) -> Event:
        """The last event of the job that reads the file."""
        ...


class SnapshotServicer(Answers[SnapshotPlace], SnapshotServiceServicer):
    """Authenticated callers may save, restore and look after the snapshots of a place."""

    async def CreateSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.CreateSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.CreateSnapshotResponse]:
        with tracing.snapshot("save", calls.metadata(context, "traceparent"), request.sandbox_id) as span:
            async for response in self.stream(context, lambda caller: self._create(caller, request)):
                span.told(response.snapshot)
                yield response

    async def RestoreSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.RestoreSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]:
        with tracing.snapshot("restore", calls.metadata(context, "traceparent"), request.sandbox_id) as span:
            async for response in self.stream(context, lambda caller: self._restore(caller, request)):
                span.told(response.restored.snapshot)
                yield response

    async def ExportSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.ExportSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        async for response in self.stream(context, lambda caller: self._export(caller, request)):
            yield response

    async def ImportSnapshot(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[pb.ImportSnapshotRequest], context: Context
    ) -> pb.ImportSnapshotResponse:
        return await self.answer(context, lambda caller: self._import(caller, request_iterator))

    async def _create(
        self, caller: Caller, request: pb.CreateSnapshotRequest
    ) -> AsyncIterator[pb.CreateSnapshotResponse]:
        check_new(request.name, request.labels, request.reason)
        party = await self.api.party(caller, request.sandbox_id, "create", doing="take a snapshot")
        words = {"name": request.name, "labels": dict(request.labels), "reason": request.reason or "manual"}
        async with aclosing(self.api.transfers.save(party, caller.username, words)) as events:
            async for event in events:
                if event["event"] == "progress":
                    yield pb.CreateSnapshotResponse(progress=progress(event))
                else:
                    self.api.changed(party.tenant)
                    yield pb.CreateSnapshotResponse(snapshot=message(event["snapshot"]))

    async def _restore(
        self, caller: Caller, request: pb.RestoreSnapshotRequest
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]:
        check_reference(request.snapshot)
        party = await self.api.party(caller, request.sandbox_id, "get", doing="restore a snapshot")
        async with aclosing(self.api.transfers.restore(party, request.snapshot, force=request.force)) as events:
            async for event in events:
                if event["event"] == "progress":
                    yield pb.RestoreSnapshotResponse(progress=progress(event))
                    continue
                back = restored(event)
                if (resumption := await self.api.resumption(request.sandbox_id)) is not None:
                    back.resumption.CopyFrom(resumption)
                yield pb.RestoreSnapshotResponse(restored=back)

    async def _get(self, caller: Caller, request: pb.GetSnapshotRequest) -> pb.GetSnapshotResponse:
        check_reference(request.snapshot)
        tenant = await self.api.tenant(caller, "get", request.namespace)
        return pb.GetSnapshotResponse(snapshot=await self.api.transfers.get(tenant, request.snapshot))

    async def _list(self, caller: Caller, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        namespace = request.sandbox_id.partition("/")[0] if request.sandbox_id else request.namespace
        tenant = await self.api.tenant(caller, "list", namespace)
        found = await self.api.transfers.list(tenant, request.sandbox_id, deleted=request.deleted)
        return pb.ListSnapshotsResponse(snapshots=found)

    async def _delete(self, caller: Caller, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        check_reference(request.snapshot)
        tenant = await self.api.tenant(caller, "delete", request.namespace)
        existed = await self.api.transfers.forget(tenant, request.snapshot, now=request.now)
        self.api.changed(tenant)
        return pb.DeleteSnapshotResponse(existed=existed)

    async def _undelete(self, caller: Caller, request: pb.UndeleteSnapshotRequest) -> pb.UndeleteSnapshotResponse:
        """For callers who may delete it."""
        check_reference(request.snapshot)
        tenant = await self.api.tenant(caller, "delete", request.namespace)
        back = await self.api.transfers.undelete(tenant, request.snapshot)
        self.api.changed(tenant)
        return pb.UndeleteSnapshotResponse(snapshot=back)

    async def _export(
        self, caller: Caller, request: pb.ExportSnapshotRequest
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        check_reference(request.snapshot)
        tenant = await self.api.tenant(caller, "export", request.namespace)
        async with aclosing(self.api.exported(tenant, request.snapshot)) as pieces:
            async for data in pieces:
                yield pb.ExportSnapshotResponse(data=data)

    async def _import(
        self, caller: Caller, requests: AsyncIterator[pb.ImportSnapshotRequest]
    ) -> pb.ImportSnapshotResponse:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            why = "cannot import: the stream has to begin with a header"
            raise SnapshotReason.SNAPSHOT_INVALID.error(why)
        check_new(first.header.name, {}, "")
        tenant = await self.api.tenant(caller, "import", first.header.namespace)
        async with aclosing(_pieces(requests)) as pieces:
            event = await self.api.imported(caller, tenant, first.header, pieces)
        self.api.changed(tenant)
        return pb.ImportSnapshotResponse(snapshot=message(event["snapshot"]))

    GetSnapshot = own(_get)
    ListSnapshots = own(_list)
    DeleteSnapshot = own(_delete)
    UndeleteSnapshot = own(_undelete)


async def _pieces(requests: AsyncIterator[pb.ImportSnapshotRequest]) -> AsyncGenerator[bytes, None]:
    """Yields what comes after the header. Raises FleetError where that is too much, or no data."""
    size = 0
    async for request in requests:
        size += len(request.data)
        if request.WhichOneof("part") != "data" or size > MAX_IMPORT_BYTES:
            raise SnapshotReason.SNAPSHOT_INVALID.error("cannot import: after the header only data may come")
        yield request.data
