"""Asks the fleet where a sandbox's executor is, with the caller's own token: the gateway has no rights on sandboxes."""

from dataclasses import dataclass
from typing import Protocol

from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

from sandfleet_operator.fleet.links.fleet_link import FleetLink


@dataclass(frozen=True, slots=True)
class Route:
    """`address` is HOST:PORT of the executor; `caller` is the name that the API server knows the caller by."""

    address: str
    sandbox_uid: str
    caller: str


class Routes(Protocol):
    async def find(self, sandbox_id: str, token: str) -> Route:
        """Raises FleetError where the caller may not connect, or the sandbox cannot be reached."""
        ...


class FleetRoutes:
    def __init__(self, fleet: FleetLink) -> None:
        self._fleet = fleet

    async def find(self, sandbox_id: str, token: str) -> Route:
        request = fleet_pb2.RouteRequest(sandbox_id=sandbox_id)
        said = await self._fleet.call(lambda channel: FleetServiceStub(channel).Route, request, token)
        return Route(said.address, said.sandbox_uid, said.caller)
