"""What the gateway makes of the fleet's refusals."""

import grpc
import pytest
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail
from sandfleet_operator.fleet.links.fleet_link import problem_of

FORBIDDEN = ErrorDetail(reason="Forbidden", message="cannot: why", subject=b"team/one").SerializeToString()
PASSING = ErrorDetail(reason="PodStarting", message="soon", retryable=True).SerializeToString()


@pytest.mark.parametrize(
    ("code", "detail", "found"),
    [
        ("PERMISSION_DENIED", FORBIDDEN, ("PERMISSION_DENIED", "Forbidden", "cannot: why", False)),
        ("FAILED_PRECONDITION", PASSING, ("FAILED_PRECONDITION", "PodStarting", "soon", True)),
        # Of the transport, not of the fleet: nothing is known.
        ("UNAVAILABLE", None, ("UNAVAILABLE", "RouteUnknown", None, True)),
        ("DEADLINE_EXCEEDED", None, ("UNAVAILABLE", "RouteUnknown", None, True)),
        ("PERMISSION_DENIED", None, ("UNAVAILABLE", "RouteUnknown", None, True)),
        ("PERMISSION_DENIED", b"\xff", ("UNAVAILABLE", "RouteUnknown", None, True)),
        ("DATA_LOSS", FORBIDDEN, ("UNAVAILABLE", "RouteUnknown", None, True)),
    ],
)
def test_only_the_fleets_own_word_ends_a_connection_at_once(code, detail, found):
    trailing = grpc.aio.Metadata(*((("sandfleet-error-bin", detail),) if detail is not None else ()))
    error = grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), trailing, details="")
    problem = problem_of(error)
    code, reason, message, retryable = found
    assert (problem.code.name, problem.reason, problem.retryable) == (code, reason, retryable)
    assert message in {None, problem.message}
