"""Connections that the spawner makes: handed over, refused, and given up in time."""

import select
import socket
import time

import pytest
from sandfleet_executor.worker import connect
from sandfleet_executor.worker.connect import Connections


@pytest.fixture
def said():
    return []


@pytest.fixture
def made(said):
    poller = select.poll()
    connections = Connections(poller, said.append)

    def settle():
        """Until nothing is under way."""
        while connections.due != float("inf"):
            wait = max(0.0, connections.due - time.monotonic()) * 1000
            for fd, _ in poller.poll(wait):
                connections.ready(fd)
            connections.expire()

    connections.settle = settle
    return connections


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(("family", "address"), connect.ADDRESSES)
def test_whoever_listens_on_either_address_is_found(made, said, pair, family, address):
    ours, theirs = pair
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    with server:
        made.begin(7, server.getsockname()[1], theirs.fileno(), 5)
        made.settle()
        assert said == [{"event": "connected", "id": 7}]
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        with socket.socket(fileno=fds[0]) as mine, server.accept()[0] as other:
            mine.sendall(b"hello")
            assert other.recv(5) == b"hello"


def test_where_nobody_listens_it_is_refused_at_once(made, said, pair):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    made.begin(7, port, pair[1].fileno(), 5)
    made.settle()
    assert [(one["event"], one["id"], one["reason"]) for one in said] == [("failed", 7, connect.REFUSED)]


def test_whoever_does_not_answer_is_given_up_at_the_moment_that_was_asked_for(made, said, pair):
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        made.begin(7, full.getsockname()[1], pair[1].fileno(), 0.05)
        made.settle()
    assert [one["reason"] for one in said] == [connect.TIMED_OUT]


def test_there_are_never_more_under_way_than_there_may_be(made, said, pair, monkeypatch):
    monkeypatch.setattr(connect, "MOST", 0)
    made.begin(7, 1, pair[1].fileno(), 5)
    assert [one["reason"] for one in said] == [connect.TOO_MANY]


def test_what_nobody_waits_for_any_more_is_closed(made, said, pair):
    ours, theirs = pair
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours.close()
        made.begin(7, server.getsockname()[1], theirs.fileno(), 5)
        made.settle()
        with server.accept()[0] as other:
            assert other.recv(1) == b""
