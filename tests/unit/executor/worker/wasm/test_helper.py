"""The helper process of a skill, in this process: what it answers to each request, and when it ends."""

import json
import socket
import sys
import threading

import pytest
import wasmtime
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.wasm import helper, imports
from sandfleet_executor.worker.wasm.process import Process

MODULE = bytes(
    wasmtime.wat2wasm(
        """(module (memory (export "memory") 1)
        (func (export "seven") (result i32) (i32.const 7))
        (func (export "wide") (param i64 f32) (result i64 f64)
          (local.get 0) (f64.promote_f32 (local.get 1))))"""
    )
)
FUNCTIONS = [
    {"name": "seven", "numbers": True},
    {"name": "wide", "parameters": ["whole", "part"], "numbers": True},
]


@pytest.fixture
def control(monkeypatch):
    """The other end of a helper that runs in a thread."""
    # It is this process's.
    monkeypatch.setattr(helper.linux, "set_limit", lambda *_: None)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=helper.Helper(theirs).serve)
    thread.start()
    with ours, theirs:
        yield ours
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(control, header, payload=b""):
    frames.send(control, header, payload)
    return frames.receive(control)


def load(control, functions=FUNCTIONS, module=MODULE):
    sizes, payload = frames.joined([json.dumps({"functions": functions}).encode(), module])
    return ask(control, {"op": "load", "workspace": "/", "sizes": sizes}, payload).header


def call(control, function, **arguments):
    return ask(control, {"op": "call", "function": function}, json.dumps(arguments).encode())


def test_a_module_is_loaded_and_called(control):
    assert load(control) == {"event": "loaded"}
    assert call(control, "seven") == ({"event": "done", "dropped": 0}, b"7")
    assert call(control, "wide", whole=-(2**63), part=0.5).payload == b"[-9223372036854775808, 0.5]"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"whole": 2**63, "part": 1}, "whole is no whole number of i64"),
        ({"whole": 1.0, "part": 1}, "whole is no whole number of i64"),
        ({"whole": "1", "part": 1}, "whole is no whole number of i64"),
        ({"whole": 1, "part": "1"}, "part is no number"),
        ({"whole": 1, "part": True}, "part is no number"),
    ],
)
def test_arguments_that_are_no_numbers_of_webassembly_are_named(control, arguments, why):
    load(control)
    said = call(control, "wide", **arguments).header
    assert (said["kind"], said["message"]) == ("arguments", why)
    assert call(control, "seven").payload == b"7"


def test_a_function_that_the_manifest_does_not_name_is_not_called(control):
    load(control, FUNCTIONS[1:])
    said = call(control, "seven").header
    assert (said["kind"], said["reason"]) == ("refused", "NoFunction")


def test_without_wasmtime_it_says_so(control, monkeypatch):
    monkeypatch.delitem(sys.modules, "sandfleet_executor.worker.wasm.machine", raising=False)
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    said = load(control)
    assert (said["kind"], said["reason"]) == ("unavailable", "NoWasmtime")


def test_a_lack_of_memory_is_a_limit(control, monkeypatch):
    load(control)
    monkeypatch.setattr(helper.folders, "opened", lambda *_: bytearray(1 << 60))
    said = call(control, "seven").header
    assert (said["kind"], said["reason"]) == ("limit", "Memory")


def test_a_helper_that_is_not_used_ends(monkeypatch):
    monkeypatch.setattr(helper, "IDLE_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # Returns, although the other end is there.
        helper.Helper(theirs).serve()


def test_output_beyond_the_limit_is_dropped_and_counted():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        world = helper.World(theirs)
        data = b"x" * (helper.MOST_OUTPUT // 2 + 1)
        # The module is told that all is written.
        assert [world.output(1, data), world.output(1, data), world.output(1, data)] == [len(data)] * 3
        assert world.output(2, b"y") == 1
        assert world.dropped == 3 * len(data) - helper.MOST_OUTPUT
        theirs.close()
        sizes = []
        while frame := frames.receive(ours):
            sizes.append((frame.header["stream"], len(frame.payload)))
        assert sizes == [(1, len(data)), (1, helper.MOST_OUTPUT - len(data)), (2, 1)]


def test_what_a_module_may_import_is_what_wasmtime_has_of_wasi():
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    linker.define_wasi()
    assert {name for name in imports.KNOWN if not isinstance(linker.get(store, imports.WASI, name), wasmtime.Func)} == (
        set()
    )


@pytest.mark.process
def test_a_process_that_is_dropped_ends():
    process = Process()
    child = process._process
    assert child.poll() is None
    del process
    assert child.wait(60) == 0
