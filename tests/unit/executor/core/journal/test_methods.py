"""The journal's table has each RPC of the executor's API: a new one is listed as changing or as reading."""

from importlib import import_module
from pathlib import Path

from sandfleet_executor.core.journal.methods import METHODS, Entry, entry_of
from sandfleet_executor.servicers.auth import PACKAGE
from sandfleet_executor.servicers.convert.journal import OPERATIONS

ROOT = Path(__file__).parents[5]
SERVICES = [
    service
    for path in sorted((ROOT / "proto/sandfleet_api/executor/v1").glob("*.proto"))
    for service in import_module(f"{PACKAGE}.{path.stem}_pb2").DESCRIPTOR.services_by_name.values()
]
RPCS = {f"{service.name}/{method.name}": method for service in SERVICES for method in service.methods}


def test_the_table_has_each_rpc_of_the_protos_and_no_other() -> None:
    assert RPCS.keys() == METHODS.keys()
    assert len(RPCS) > 50


def test_an_rpc_that_the_table_lacks_is_recorded() -> None:
    assert entry_of(f"/{PACKAGE}.InterpreterService/Anything") is Entry.CALL


def test_each_call_with_a_record_says_which_or_is_recorded_as_it_was_made() -> None:
    calls = {name for name, entry in METHODS.items() if entry is Entry.CALL}
    assert calls - OPERATIONS.keys() == {"PortService/Tunnel"}
    assert calls >= OPERATIONS.keys()
