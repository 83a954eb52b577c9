"""The gRPC face of egress by name. It decides nothing."""

from typing import Protocol

from sandfleet_api.fleet.v1 import egress_pb2 as pb
from sandfleet_api.fleet.v1.egress_pb2_grpc import EgressServiceServicer

from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.calls import Answers, unary


class EgressApi(Protocol):
    """What a fleet does with egress by name. Each method raises FleetError."""

    async def authenticate(self, token: str) -> Caller: ...
    async def set_egress(self, caller: Caller, request: pb.SetEgressRequest) -> pb.SetEgressResponse: ...
    async def get_egress(self, caller: Caller, request: pb.GetEgressRequest) -> pb.GetEgressResponse: ...


class EgressServicer(Answers[EgressApi], EgressServiceServicer):
    SetEgress = unary(EgressApi.set_egress)
    GetEgress = unary(EgressApi.get_egress)
