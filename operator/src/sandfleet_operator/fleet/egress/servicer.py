"""The gRPC face of egress by name. It decides nothing."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sandfleet_api.fleet.v1 import egress_pb2 as pb
from sandfleet_api.fleet.v1.egress_pb2_grpc import EgressServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.audit.calls import is_from
from sandfleet_operator.fleet.calls import Context

T = TypeVar("T")


class EgressApi(Protocol):
    """What a fleet does with egress by name. Each method raises FleetError."""

    async def authenticate(self, token: str) -> Caller: ...
    async def set_egress(self, caller: Caller, request: pb.SetEgressRequest) -> pb.SetEgressResponse: ...
    async def get_egress(self, caller: Caller, request: pb.GetEgressRequest) -> pb.GetEgressResponse: ...


class EgressServicer(EgressServiceServicer):
    def __init__(self, api: EgressApi) -> None:
        self._api = api

    async def SetEgress(self, request: pb.SetEgressRequest, context: Context) -> pb.SetEgressResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._api.set_egress(caller, request))

    async def GetEgress(self, request: pb.GetEgressRequest, context: Context) -> pb.GetEgressResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._api.get_egress(caller, request))

    async def _answer(self, context: Context, work: Callable[[Caller], Awaitable[T]]) -> T:
        try:
            caller = await self._api.authenticate(calls.token(context))
            is_from(caller)
            return await work(caller)
        except FleetError as error:
            await calls.abort(context, error.problem)
