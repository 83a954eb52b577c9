"""The table of RPCs has each one of the protos, and says of each what callers and reviewers rely on."""

from importlib import import_module
from pathlib import Path
from typing import get_args

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from sandfleet._wire.link import REVIEWED
from sandfleet_executor.core.errors import Code
from sandfleet_executor.core.rpcs import PACKAGE, RPCS, Entry, Gate, Rpc, Use, rpc_of
from sandfleet_executor.servicers.convert.subjects import PARTS

ROOT = Path(__file__).parents[4]
SERVICES = [
    service
    for path in sorted((ROOT / "proto/sandfleet_api/executor/v1").glob("*.proto"))
    for service in import_module(f"{PACKAGE}.{path.stem}_pb2").DESCRIPTOR.services_by_name.values()
]
METHODS = {f"{service.name}/{method.name}": method for service in SERVICES for method in service.methods}
WAITING = {name for name, rpc in RPCS.items() if rpc.gate in {Gate.CALL, Gate.EXECUTION}}


def test_the_table_has_each_rpc_of_the_protos_and_no_other() -> None:
    assert METHODS.keys() == RPCS.keys()
    assert len(METHODS) > 50


@pytest.mark.parametrize("rpc", [rpc for rpc in RPCS.values() if rpc.subject], ids=lambda rpc: rpc.name)
def test_errors_are_about_a_text_of_their_request(rpc: Rpc) -> None:
    method = METHODS[rpc.name]
    assert not method.client_streaming
    assert method.input_type.fields_by_name[rpc.subject].cpp_type == FieldDescriptor.CPPTYPE_STRING


def test_errors_end_calls_with_a_status_of_grpc() -> None:
    assert set(get_args(Code)) <= set(grpc.StatusCode.__members__)


def test_an_rpc_that_the_table_lacks_is_refused_and_recorded() -> None:
    rpc = rpc_of(f"/{PACKAGE}.InterpreterService/Anything")
    assert (rpc.gate, rpc.entry, rpc.use) == (Gate.REFUSED, Entry.CALL, Use.WORK)
    assert (rpc.scope, rpc.name) == ("interpreter", "InterpreterService/Anything")


@pytest.mark.parametrize(
    "path",
    [f"/{PACKAGE}.OtherService/Execute", "/other.v1.InterpreterService/Execute", "InterpreterService/Execute", ""],
)
def test_no_scope_allows_an_rpc_of_another_service(path: str) -> None:
    assert not rpc_of(path).scope


def test_only_the_fleet_opens_and_ends_sessions() -> None:
    assert {name for name, rpc in RPCS.items() if rpc.scope == "admin"} == {
        "IdentityService/GetSigningRequest",
        "IdentityService/InstallCertificate",
        "SessionService/Close",
        "SessionService/Open",
        "SessionService/ProbeEgress",
        "SessionService/Resume",
        "SessionService/Suspend",
    }


def test_only_rpcs_that_look_are_no_use() -> None:
    assert {name for name, rpc in RPCS.items() if rpc.use is Use.LOOKING} == {
        "JournalService/Head",
        "JournalService/Read",
        "ReviewService/WatchPending",
        "ServiceManagerService/List",
        "SessionService/Describe",
        "SessionService/Health",
        "SessionService/ProbeEgress",
        "SessionService/Usage",
        "SessionService/WatchUsage",
        "SnapshotService/Save",
        "ToolBrokerService/Serve",
    }


def test_each_call_with_a_record_says_which_or_is_recorded_as_it_was_made() -> None:
    assert {name for name, rpc in RPCS.items() if rpc.entry is Entry.CALL and rpc.kind == "call"} == {
        "PortService/Tunnel"
    }
    assert all(rpc.entry is Entry.CALL for rpc in RPCS.values() if rpc.kind != "call")


def test_each_rpc_that_waits_says_what_its_reviewer_sees() -> None:
    assert PARTS.keys() == WAITING


def test_the_client_gives_each_call_that_waits_all_the_time_that_a_reviewer_takes() -> None:
    assert {METHODS[name].input_type.name for name, rpc in RPCS.items() if rpc.gate is Gate.CALL} == REVIEWED


def test_calls_that_change_what_a_reviewer_has_looked_at_count() -> None:
    counted = {name for name, rpc in RPCS.items() if rpc.gate is Gate.COUNTED}
    assert counted == {
        f"InterpreterService/{name}"
        for name in ("ForkContext", "RestartContext", "DeleteContext", "SaveState", "DeleteState")
    } | {"SnapshotService/Restore"}
    # The gate counts calls with one answer.
    assert not any(METHODS[name].server_streaming for name in counted)


@pytest.mark.parametrize("name", sorted(WAITING))
def test_what_runs_or_plants_code_is_within_the_callers_own_scopes(name: str) -> None:
    # What only the fleet may call is no way around a review.
    assert RPCS[name].scope in {"interpreter", "process", "filesystem"}


@pytest.mark.parametrize("name", sorted(name for name in METHODS if name.startswith("FilesystemService/")))
def test_of_files_only_reading_is_free(name: str) -> None:
    reads = {"Read", "Stat", "ListDirectory", "Watch", "Archive", "Glob", "Search"}
    assert (RPCS[name].gate is Gate.FREE) == (name.partition("/")[2] in reads)
