"""The gRPC face of snapshots. It decides nothing."""

from collections.abc import AsyncIterator
from typing import Protocol

from sandfleet_api.fleet.v1 import snapshot_pb2 as pb
from sandfleet_api.fleet.v1.snapshot_pb2_grpc import SnapshotServiceServicer

from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.calls import Answers, Context, unary
from sandfleet_operator.telemetry import tracing


class SnapshotApi(Protocol):
    """What a fleet does with snapshots. Each method raises FleetError."""

    async def authenticate(self, token: str) -> Caller:
        """Who calls. `token` is the call's bearer token, empty without one."""
        ...

    def create(self, caller: Caller, request: pb.CreateSnapshotRequest) -> AsyncIterator[pb.CreateSnapshotResponse]: ...
    def restore(
        self, caller: Caller, request: pb.RestoreSnapshotRequest
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]: ...
    async def get(self, caller: Caller, request: pb.GetSnapshotRequest) -> pb.GetSnapshotResponse: ...
    async def list(self, caller: Caller, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse: ...
    async def delete(self, caller: Caller, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse: ...
    async def undelete(self, caller: Caller, request: pb.UndeleteSnapshotRequest) -> pb.UndeleteSnapshotResponse: ...
    def export(self, caller: Caller, request: pb.ExportSnapshotRequest) -> AsyncIterator[pb.ExportSnapshotResponse]: ...
    async def import_(
        self, caller: Caller, requests: AsyncIterator[pb.ImportSnapshotRequest]
    ) -> pb.ImportSnapshotResponse: ...


class SnapshotServicer(Answers[SnapshotApi], SnapshotServiceServicer):
    GetSnapshot = unary(SnapshotApi.get)
    ListSnapshots = unary(SnapshotApi.list)
    DeleteSnapshot = unary(SnapshotApi.delete)
    UndeleteSnapshot = unary(SnapshotApi.undelete)

    async def CreateSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.CreateSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.CreateSnapshotResponse]:
        with tracing.snapshot("save", calls.metadata(context, "traceparent"), request.sandbox_id) as span:
            async for response in self.stream(context, lambda caller: self.api.create(caller, request)):
                span.told(response.snapshot)
                yield response

    async def RestoreSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.RestoreSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]:
        with tracing.snapshot("restore", calls.metadata(context, "traceparent"), request.sandbox_id) as span:
            async for response in self.stream(context, lambda caller: self.api.restore(caller, request)):
                span.told(response.restored.snapshot)
                yield response

    async def ExportSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.ExportSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        async for response in self.stream(context, lambda caller: self.api.export(caller, request)):
            yield response

    async def ImportSnapshot(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[pb.ImportSnapshotRequest], context: Context
    ) -> pb.ImportSnapshotResponse:
        return await self.answer(context, lambda caller: self.api.import_(caller, request_iterator))
