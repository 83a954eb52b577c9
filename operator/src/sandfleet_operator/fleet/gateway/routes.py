"""Asks the fleet where a sandbox's executor is, with the caller's own token: the gateway has no rights."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import grpc
from google.protobuf.message import DecodeError
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.reasons import GatewayReason
from sandfleet_operator.fleet.calls import BEARER, DETAIL

if TYPE_CHECKING:
    # Exists in the stubs only.
    from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceAsyncStub

# Seconds that the fleet may take to answer.
ASK_SECONDS = 10.0
CODES = {code.value for code in Code}


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
    """`stub` gives the fleet's service as it is reached now."""

    def __init__(self, stub: "Callable[[], FleetServiceAsyncStub]") -> None:
        self._stub = stub

    async def find(self, sandbox_id: str, token: str) -> Route:
        request = fleet_pb2.RouteRequest(sandbox_id=sandbox_id)
        metadata = (("authorization", f"{BEARER}{token}"),)
        try:
            said = await self._stub().Route(request, metadata=metadata, timeout=ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise FleetError(problem_of(error)) from error
        return Route(said.address, said.sandbox_uid, said.caller)


def problem_of(error: grpc.aio.AioRpcError) -> Problem:
    """What the fleet said; RouteUnknown where it said nothing."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    said = next((value for key, value in pairs if key == DETAIL and isinstance(value, bytes)), None)
    code = error.code().name
    try:
        detail = ErrorDetail.FromString(said) if said is not None else None
    except DecodeError:
        detail = None
    if detail is None or code not in CODES:
        return GatewayReason.ROUTE_UNKNOWN.problem(f"cannot carry the connection: the fleet does not answer ({code})")
    subject = detail.subject.decode("utf-8", "surrogateescape")
    return Problem(Code(code), detail.reason, detail.message, subject, passing=detail.retryable)
