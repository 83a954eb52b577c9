"""The cell that a context runs for itself after a fork shows nothing, raises nothing, and gives way to a request."""

import builtins
import linecache
import socket

import pytest
from sandfleet_executor.worker.base import process
from sandfleet_executor.worker.python import rehearsal, signals
from sandfleet_executor.worker.python.rehearsal import NAME, Rehearsal


@pytest.fixture
def control():
    """The socket on which requests come, and the executor's end of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs, ours


@pytest.fixture
def steps(monkeypatch):
    """How far each rehearsal came."""
    seen = []
    walk = Rehearsal._steps

    def counted(self, *given):
        seen.append(0)
        for _ in walk(self, *given):
            seen[-1] += 1
            yield

    monkeypatch.setattr(Rehearsal, "_steps", counted)
    return seen


@pytest.fixture
def rehearse(control):
    made, meter = Rehearsal(signals.Interrupts(), lambda: None), process.Meter()
    yield lambda: made.run(control[0], meter)
    meter.close()


def test_it_leaves_nothing_behind(rehearse, steps, control):
    before = set(linecache.cache)
    rehearse()
    rehearse()
    assert steps[0] == steps[1] > 3
    assert set(linecache.cache) == before
    control[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        control[1].recv(1)


def test_a_request_that_comes_ends_it_at_the_next_step(rehearse, steps, control):
    control[1].send(b"x")
    rehearse()
    assert steps == [1]


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError(), KeyboardInterrupt(), ValueError("an audit hook")])
def test_what_code_has_put_in_its_way_is_not_raised(rehearse, steps, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(rehearsal.cells.Compiler, "compile", fail)
    rehearse()
    assert steps == [3]
    assert NAME not in linecache.cache


@pytest.mark.parametrize("name", ["compile", "exec", "eval", "len"])
def test_a_builtin_that_code_has_replaced_is_not_called(rehearse, steps, monkeypatch, name):
    known, called = getattr(builtins, name), []

    def replaced(*given, **named):
        called.append(name)
        return known(*given, **named)

    monkeypatch.setattr(builtins, name, replaced)
    rehearse()
    monkeypatch.undo()
    assert (steps, called) == ([], [])


def test_the_control_finds_that_it_would_call_them(rehearse, monkeypatch):
    known, called = builtins.compile, []

    def replaced(*given, **named):
        called.append(given[1])
        return known(*given, **named)

    monkeypatch.setattr(rehearsal.Rehearsal, "_are_replaced", lambda _: False)
    monkeypatch.setattr(builtins, "compile", replaced)
    rehearse()
    monkeypatch.undo()
    assert NAME in called
