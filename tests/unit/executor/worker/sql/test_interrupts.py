"""Interrupts of SQL: each is for the cell during which it came."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from sandfleet_executor.worker.sql.interrupts import Stop, StoppedError, within

INTERRUPT = bytes([signal.SIGINT])
# Far longer than it takes, only to end a test that fails.
PATIENCE = 30.0


class Statements:
    """Counts the interrupts that reach what runs."""

    def __init__(self) -> None:
        self.interrupts = 0
        self.came = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def interrupt(self) -> None:
        self.interrupts += 1
        self.came.set()
        assert self.goes_on.wait(PATIENCE)


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest.fixture
def signals() -> Iterator[tuple[int, Callable[[], object]]]:
    """Where signals are read, and what sends an interrupt."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    # They stay open: the thread of a test before may still read them.
    return iter([(woken, lambda: os.write(wake, INTERRUPT))])


@pytest.fixture
def stop(statements: Statements, signals: Iterator[tuple[int, Callable[[], object]]]) -> "Sent":
    woken, send = next(signals)
    return Sent(Stop(statements.interrupt, woken, again=0.001), send)


class Sent:
    def __init__(self, stop: Stop, send: Callable[[], object]) -> None:
        self.stop, self.send = stop, send


def test_an_interrupt_is_repeated_until_the_cell_has_ended_and_does_not_reach_the_next(
    stop: Sent, statements: Statements
) -> None:
    with stop.stop.cell():
        stop.send()
        while statements.interrupts < 3:
            assert statements.came.wait(PATIENCE)
        with pytest.raises(StoppedError):
            stop.stop.check()
    before = statements.interrupts
    with stop.stop.cell():
        # Many times as long as until the next repetition.
        assert not threading.Event().wait(0.05)
        stop.stop.check()
    assert statements.interrupts == before


def test_an_interrupt_between_two_cells_is_dropped(stop: Sent, statements: Statements) -> None:
    with stop.stop.cell():
        pass
    stop.send()
    with stop.stop.cell():
        assert not statements.came.wait(0.05)
        stop.stop.check()
        assert not stop.stop.asked
        # Control: the one after that does come.
        stop.send()
        assert statements.came.wait(PATIENCE)


def test_an_interrupt_that_is_being_passed_on_keeps_its_cell_from_ending(stop: Sent, statements: Statements) -> None:
    statements.goes_on.clear()
    ended = threading.Event()

    def run() -> None:
        with stop.stop.cell():
            stop.send()
            assert statements.came.wait(PATIENCE)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert statements.came.wait(PATIENCE)
    assert not ended.wait(0.05)
    statements.goes_on.set()
    assert ended.wait(PATIENCE)


def test_a_socket_that_is_read_is_shut_down(stop: Sent) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, stop.stop.cell(), stop.stop.reading(theirs):
        stop.send()
        assert theirs.recv(1) == b""


def test_what_takes_too_long_is_interrupted_and_nothing_after_it(statements: Statements) -> None:
    with within(0.0, statements.interrupt):
        assert statements.came.wait(PATIENCE)
    assert statements.interrupts == 1
    for _ in range(100):
        # It is over about when its time is.
        with within(0.0, statements.interrupt):
            pass
        before = statements.interrupts
        assert not threading.Event().wait(0.001)
        assert statements.interrupts == before
