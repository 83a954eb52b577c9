"""This executor reads what an earlier version has written: executions, saved states and a configuration.

The files in golden/ were written by the commit before the executor's rooms; they are never written anew.
"""

import json
import os
import shutil
from pathlib import Path

from sandfleet_api.executor.v1 import common_pb2 as pb
from sandfleet_executor.core.config import ExecutorConfig, Rollback
from sandfleet_executor.core.contexts.states import Item, Manifest
from sandfleet_executor.core.executions.records import CELL, COMMAND
from sandfleet_executor.core.limits import Limits
from sandfleet_executor.core.services import parse
from sandfleet_executor.core.services.spec import Http, Restart
from sandfleet_executor.effects.contexts.state_store import NAMED, StateStore
from sandfleet_executor.effects.executions.registry import Executions
from sandfleet_executor.effects.executions.store.log import Store
from sandfleet_executor.servicers.convert import common as convert

GOLDEN = Path(__file__).parent / "golden"


def copy(tmp_path, name):
    return shutil.copytree(GOLDEN / name, tmp_path / name)


async def shown(stream):
    """The messages of an execution, by their kind."""
    events = [event async for batch in convert.streamed(stream) for event in batch]
    return [(event.sequence, event.WhichOneof("event"), event) for event in events]


async def test_a_stored_cell_is_shown_as_it_was(tmp_path):
    executions = Executions(Store(str(copy(tmp_path, "executions"))), convert.stored)
    events = await shown(executions.repeated(CELL, "cell-1", b"f" * 16))
    assert [event[:2] for event in events] == [(1, "started"), (2, "output"), (3, "error"), (4, "finished")]
    started, output, error, finished = (getattr(event, kind) for _, kind, event in events)
    assert (started.context_id, started.cell_number) == ("default", 1)
    assert (output.stream, output.data) == (pb.STREAM_STDOUT, b"hello\n")
    assert (error.name, error.value, error.frames[0].source) == ("ValueError", "no", "raise ValueError('no')")
    assert (finished.outcome, finished.blame, finished.reason) == (pb.OUTCOME_ERROR, pb.BLAME_CODE, "Exception")
    assert (finished.exit_code, finished.message) == (1, "ValueError: no")


async def test_a_stored_command_without_an_end_gets_one(tmp_path):
    executions = Executions(Store(str(copy(tmp_path, "executions"))), convert.stored)
    events = await shown(executions.find(COMMAND, "command-1"))
    assert [event[:2] for event in events] == [(1, "started"), (2, "output"), (3, "finished")]
    assert events[1][2].output.data == b"x" * 100
    assert events[2][2].finished.outcome == pb.OUTCOME_LOST


def test_a_saved_state_is_listed_and_read(tmp_path):
    copy(tmp_path, "variables")
    store = StateStore(tmp_path)
    store.open()
    expected = Manifest(
        context_id="default",
        created=1_790_000_000_000_000_000,
        cell=7,
        size=20,
        records=2,
        memo=3,
        saved=(Item("x", "value", "int", 10), Item("df", "value", "DataFrame", 10)),
        unsaved=(Item("f", "value", "TextIOWrapper", 0, "OpenFile", "it is an open file"),),
        threads=("MainThread",),
    )
    assert list(store.list()) == [("before", expected)]
    manifest, fd = store.read(NAMED, "before")
    with os.fdopen(fd, "rb") as file:
        assert (manifest, file.read(manifest.size)) == (expected, b"bytes of two records")


def test_a_configuration_is_taken_with_all_its_keys():
    values = json.loads((GOLDEN / "config.json").read_text())
    newer = {
        "contract",
        "egress_address",
        "egress_pod",
        "egress_socket",
        "keys_authority",
        "mounts",
        "preload",
        "rootfs",
    }
    assert set(values) == set(ExecutorConfig.__dataclass_fields__) - {"socket"} - newer
    # The manifest of a pod names who signs its keys in a variable of its own.
    config = ExecutorConfig.parse(values | {"keys_authority": "a-key"})
    assert config.limits == Limits(
        memory_bytes=1946157056,
        tmp_bytes=134217728,
        processes=128,
        output_bytes=8388608,
        executions=16,
        max_timeout=1800.0,
        default_timeout=200.0,
        open_files=2048,
        disk_bytes=1073741824,
    )
    assert config.rollback == Rollback(enabled=True, max_memory_bytes=1073741824)
    plain = {name: value for name, value in values.items() if name not in {"limits", "rollback"}}
    assert {name: getattr(config, name) for name in plain} == plain
    (web,) = parse.services(list(config.services), config.workspace)
    assert (web.payload, web.restart, web.readiness.interval) == (b"python\0-m\0http.server\x008000", Restart.ALWAYS, 2)
    assert web.readiness.check == Http(8000, "/")
