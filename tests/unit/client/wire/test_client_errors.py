"""Errors: one root, and what a failed call turns into."""

import errno
import inspect
import pickle
import re

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc.aio import AioRpcError, Metadata
from sandfleet import errors
from sandfleet._wire.status import never_sent, to_claim_error, to_error, to_fleet_error, told_pause
from sandfleet.values.execution import CommandResult, Outcome
from sandfleet.values.files import Transfer
from sandfleet.values.fleet import Queued
from sandfleet.values.services import Service, ServiceState
from sandfleet_api.executor.v1 import common_pb2

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]


def rpc_error(
    code: str, *, reason: str = "", message: str = "", details: str = "", raw: bytes | None = None
) -> AioRpcError:
    detail = common_pb2.ErrorDetail(reason=reason, message=message, retryable=True, subject=b"a/b")
    trailing = Metadata()
    if reason or raw is not None:
        trailing.add("sandfleet-error-bin", raw if raw is not None else detail.SerializeToString())
    return AioRpcError(grpc.StatusCode[code], Metadata(), trailing, details=details)


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_the_one_root_and_stands_in_the_tree_of_the_docstring(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.SandfleetError)
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or "")


# These are made of what they tell.
OF_VALUES = {errors.CommandFailed, errors.ExecutionFailed, errors.ServiceNotReadyError, errors.TransferIncomplete}


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in OF_VALUES])
def test_every_error_survives_pickling_with_all_it_says(kind: type[errors.SandfleetError]) -> None:
    error = pickle.loads(pickle.dumps(kind("cannot x: y", reason="Y", retryable=True, subject="s")))
    assert (str(error), error.reason, error.retryable, error.subject) == ("cannot x: y", "Y", True, "s")


def test_a_failed_command_survives_pickling_with_its_result() -> None:
    failed = errors.CommandFailed("cannot go on", CommandResult("e", Outcome.ERROR, exit_code=2))
    assert pickle.loads(pickle.dumps(failed)).result.exit_code == 2


def test_an_incomplete_transfer_survives_pickling_with_its_result() -> None:
    broken = errors.TransferIncomplete("cannot upload", Transfer(files=3), reason="NoSpace", subject="a")
    again = pickle.loads(pickle.dumps(broken))
    assert (again.transfer.files, again.reason, again.retryable, again.subject) == (3, "NoSpace", True, "a")


def test_a_service_that_is_not_ready_survives_pickling_with_its_log() -> None:
    service = Service("web", ServiceState.FAILED, reason="CrashLoop", message="it ended 10 times in a row")
    failed = pickle.loads(pickle.dumps(errors.ServiceNotReadyError(service, "boom\n")))
    assert (failed.service, failed.log, failed.reason) == (service, "boom\n", "CrashLoop")
    assert "10 times in a row" in str(failed)
    assert "boom" in str(failed)


@pytest.mark.parametrize(
    ("reason", "builtin", "number"),
    [
        ("FileNotFound", FileNotFoundError, errno.ENOENT),
        ("FileExists", FileExistsError, errno.EEXIST),
        ("IsADirectory", IsADirectoryError, errno.EISDIR),
        ("NotADirectory", NotADirectoryError, errno.ENOTDIR),
        ("FilePermission", PermissionError, errno.EACCES),
    ],
)
def test_file_errors_are_also_the_builtin_ones(reason: str, builtin: type[OSError], number: int) -> None:
    error = to_error(rpc_error("FAILED_PRECONDITION", reason=reason, message="cannot read 'a/b': so it is"))
    assert isinstance(error, errors.FileError)
    assert isinstance(error, builtin)
    assert (error.errno, error.filename, str(error)) == (number, "a/b", "cannot read 'a/b': so it is")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", errors.UnavailableError),
        ("NOT_FOUND", errors.NotFoundError),
        ("ALREADY_EXISTS", errors.AlreadyExistsError),
        ("UNAUTHENTICATED", errors.AuthenticationError),
        ("PERMISSION_DENIED", errors.AccessDenied),
        ("INVALID_ARGUMENT", errors.InvalidArgument),
        ("FAILED_PRECONDITION", errors.PreconditionFailed),
        ("RESOURCE_EXHAUSTED", errors.LimitReached),
        ("DEADLINE_EXCEEDED", errors.RpcTimeout),
        ("INTERNAL", errors.SandboxError),
    ],
)
def test_each_status_code_has_its_error(code: str, kind: type[Exception]) -> None:
    error = to_error(rpc_error(code, reason="Why", message="cannot x: why"))
    assert type(error) is kind
    assert (error.reason, error.retryable) == ("Why", True)


def test_a_failure_of_the_transport_says_what_was_tried() -> None:
    error = to_error(rpc_error("UNAVAILABLE", details="Socket closed"), "read the file")
    assert (str(error), error.reason, error.retryable) == ("cannot read the file: Socket closed", "Unavailable", True)


def test_hostile_error_details_are_cut_and_malformed_ones_ignored() -> None:
    assert len(to_error(rpc_error("INTERNAL", reason="R" * 1000, message="m" * 100_000)).message) == 4096
    assert (
        str(to_error(rpc_error("INTERNAL", details="plain", raw=b"\xff\xff\xff"))) == "cannot call the executor: plain"
    )


def test_a_request_was_not_sent_where_no_connection_was_made_or_the_server_turned_it_away() -> None:
    assert never_sent(rpc_error("UNAVAILABLE", details="failed to connect to all addresses; last error: x"))
    assert never_sent(rpc_error("UNAVAILABLE", reason="Stopping", message="cannot run it: stopping"))
    assert not never_sent(rpc_error("UNAVAILABLE", details="Socket closed"))
    assert not never_sent(rpc_error("INTERNAL", reason="Bug", message="cannot run it: a bug"))


def test_a_claim_fails_as_a_claim_and_an_unknown_sandbox_has_ended() -> None:
    assert type(to_claim_error(rpc_error("FAILED_PRECONDITION", reason="IsolationUnavailable"))) is errors.ClaimError
    assert type(to_claim_error(rpc_error("INVALID_ARGUMENT", reason="BadLabel"))) is errors.InvalidArgument
    assert type(to_claim_error(rpc_error("UNAVAILABLE"))) is errors.UnavailableError
    assert type(to_fleet_error(rpc_error("NOT_FOUND", reason="SandboxNotFound"))) is errors.SandboxEnded


def retry_info(seconds: int, name: str = "google.rpc.RetryInfo") -> bytes:
    """A google.rpc.Status with one detail."""
    status = common_pb2.RpcStatus(code=8, message="full")
    info = common_pb2.RetryInfo(retry_delay=Duration(seconds=seconds))
    status.details.add(type_url=f"type.googleapis.com/{name}", value=info.SerializeToString())
    return status.SerializeToString()


OURS = common_pb2.ErrorDetail(reason="QueueFull", retry_after=Duration(seconds=7)).SerializeToString()


@pytest.mark.parametrize(
    ("trailing", "pause"),
    [
        ({}, None),
        ({"sandfleet-error-bin": OURS}, 7.0),
        ({"grpc-status-details-bin": retry_info(3)}, 3.0),
        ({"sandfleet-error-bin": OURS, "grpc-status-details-bin": retry_info(3)}, 7.0),
        ({"sandfleet-error-bin": b"", "grpc-status-details-bin": retry_info(3)}, 3.0),
        ({"grpc-status-details-bin": retry_info(3, "google.rpc.DebugInfo")}, None),
        ({"grpc-status-details-bin": retry_info(-3)}, 0.0),
        ({"grpc-status-details-bin": retry_info(10**9)}, 86_400.0),
        ({"grpc-status-details-bin": b"\xff\xff"}, None),
        ({"grpc-status-details-bin": b"\x1a\x01\xff"}, None),
        ({"grpc-status-details-bin": "text"}, None),
    ],
)
def test_an_error_carries_when_to_come_back(trailing: dict[str, bytes | str], pause: float | None) -> None:
    error = AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, Metadata(), Metadata(*trailing.items()))
    assert told_pause(error) == to_error(error).retry_after == to_claim_error(error).retry_after == pause
    assert pickle.loads(pickle.dumps(to_error(error))).retry_after == pause


def test_the_error_of_a_claim_carries_what_it_waited_for() -> None:
    late = rpc_error("DEADLINE_EXCEEDED", reason="NotBoundInTime", message="cannot claim: no sandbox within 5 s")
    place = Queued(2, 40.0, "QuotaReached", "queue search uses 3 of 3 sandboxes of its quota", queue="search")
    error = pickle.loads(pickle.dumps(to_claim_error(late, place)))
    assert (error.reason, error.queued) == ("NotBoundInTime", place)
    assert str(error) == (
        "cannot claim: no sandbox within 5 s; it waited: queue search uses 3 of 3 sandboxes of its quota"
    )
    # What the fleet says itself is not said twice.
    full = rpc_error("DEADLINE_EXCEEDED", reason="NotBoundInTime", message=f"cannot claim: {place.message}")
    assert str(to_claim_error(full, place)) == f"cannot claim: {place.message}"
    assert to_claim_error(late).queued is None  # type: ignore[attr-defined]
