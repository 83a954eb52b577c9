"""The table of what waits for approval has each RPC of the executor's API."""

from importlib import import_module
from pathlib import Path

import pytest
from sandfleet._wire.link import REVIEWED
from sandfleet_executor.core.review.methods import METHODS, Gate, gate_of
from sandfleet_executor.servicers.auth import PACKAGE, scope_of
from sandfleet_executor.servicers.convert.subjects import PARTS

ROOT = Path(__file__).parents[5]
SERVICES = [
    service
    for path in sorted((ROOT / "proto/sandfleet_api/executor/v1").glob("*.proto"))
    for service in import_module(f"{PACKAGE}.{path.stem}_pb2").DESCRIPTOR.services_by_name.values()
]
RPCS = {f"{service.name}/{method.name}": method for service in SERVICES for method in service.methods}
WAITING = {name for name, gate in METHODS.items() if gate in {Gate.CALL, Gate.EXECUTION}}


def test_the_table_has_each_rpc_of_the_protos_and_no_other() -> None:
    assert RPCS.keys() == METHODS.keys()
    assert len(RPCS) > 50


def test_an_rpc_that_the_table_lacks_is_refused() -> None:
    assert gate_of(f"/{PACKAGE}.InterpreterService/Anything") is Gate.REFUSED


def test_each_rpc_that_waits_says_what_its_reviewer_sees() -> None:
    assert PARTS.keys() == WAITING


def test_the_client_gives_each_call_that_waits_all_the_time_that_a_reviewer_takes() -> None:
    assert {RPCS[name].input_type.name for name, gate in METHODS.items() if gate is Gate.CALL} == REVIEWED


def test_calls_that_change_what_a_reviewer_has_looked_at_count() -> None:
    counted = {name for name, gate in METHODS.items() if gate is Gate.COUNTED}
    assert counted == {
        f"InterpreterService/{name}"
        for name in ("ForkContext", "RestartContext", "DeleteContext", "SaveState", "DeleteState")
    } | {"SnapshotService/Restore"}
    # The gate counts calls with one answer.
    assert not any(RPCS[name].server_streaming for name in counted)


@pytest.mark.parametrize("name", sorted(WAITING))
def test_what_runs_or_plants_code_is_within_the_callers_own_scopes(name: str) -> None:
    # What only the fleet may call is no way around a review.
    assert scope_of(f"/{PACKAGE}.{name}") in {"interpreter", "process", "filesystem"}


@pytest.mark.parametrize("name", sorted(name for name in RPCS if name.startswith("FilesystemService/")))
def test_of_files_only_reading_is_free(name: str) -> None:
    reads = {"Read", "Stat", "ListDirectory", "Watch", "Archive", "Glob", "Search"}
    assert (METHODS[name] is Gate.FREE) == (name.partition("/")[2] in reads)
