"""The gRPC face of snapshots. It decides nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from sandfleet_api.fleet.v1 import snapshot_pb2 as pb
from sandfleet_api.fleet.v1.snapshot_pb2_grpc import SnapshotServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.audit.calls import is_from
from sandfleet_operator.fleet.calls import Context
from sandfleet_operator.telemetry import tracing

T = TypeVar("T")


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


class SnapshotServicer(SnapshotServiceServicer):
    def __init__(self, api: SnapshotApi) -> None:
        self._api = api

    async def CreateSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.CreateSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.CreateSnapshotResponse]:
        with tracing.snapshot("save", calls.metadata(context, "traceparent"), request.sandbox_id) as span:
            async for response in self._stream(context, lambda caller: self._api.create(caller, request)):
                span.told(response.snapshot)
                yield response

    async def RestoreSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.RestoreSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]:
        with tracing.snapshot("restore", calls.metadata(context, "traceparent"), request.sandbox_id) as span:
            async for response in self._stream(context, lambda caller: self._api.restore(caller, request)):
                span.told(response.restored.snapshot)
                yield response

    async def GetSnapshot(self, request: pb.GetSnapshotRequest, context: Context) -> pb.GetSnapshotResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._api.get(caller, request))

    async def ListSnapshots(self, request: pb.ListSnapshotsRequest, context: Context) -> pb.ListSnapshotsResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._api.list(caller, request))

    async def DeleteSnapshot(self, request: pb.DeleteSnapshotRequest, context: Context) -> pb.DeleteSnapshotResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._api.delete(caller, request))

    async def UndeleteSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.UndeleteSnapshotRequest, context: Context
    ) -> pb.UndeleteSnapshotResponse:
        return await self._answer(context, lambda caller: self._api.undelete(caller, request))

    async def ExportSnapshot(  # noqa: N802 - gRPC's name
        self, request: pb.ExportSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        async for response in self._stream(context, lambda caller: self._api.export(caller, request)):
            yield response

    async def ImportSnapshot(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[pb.ImportSnapshotRequest], context: Context
    ) -> pb.ImportSnapshotResponse:
        return await self._answer(context, lambda caller: self._api.import_(caller, request_iterator))

    async def _authenticated(self, context: Context) -> Caller:
        caller = await self._api.authenticate(calls.token(context))
        is_from(caller)
        return caller

    async def _answer(self, context: Context, work: Callable[[Caller], Awaitable[T]]) -> T:
        try:
            return await work(await self._authenticated(context))
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))

    async def _stream(self, context: Context, work: Callable[[Caller], AsyncIterator[T]]) -> AsyncIterator[T]:
        try:
            async for response in work(await self._authenticated(context)):
                yield response
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))
