"""Connections that the spawner makes: handed over, refused, timed out."""

import select
import socket
import time

import pytest
from sandfleet_executor.worker.init import connect
from sandfleet_executor.worker.init.connect import Connections

pytestmark = pytest.mark.process


@pytest.fixture
def events():
    return []


@pytest.fixture
def connections(events):
    poller = select.poll()
    made = Connections(poller, events.append)

    def settle():
        """Until no attempt is under way."""
        while made.due != float("inf"):
            wait = max(0.0, made.due - time.monotonic()) * 1000
            for fd, _ in poller.poll(wait):
                made.ready(fd)
            made.expire()

    made.settle = settle
    return made


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(("family", "address"), connect.ADDRESSES)
def test_a_server_on_either_loopback_address_is_found(connections, events, pair, family, address):
    ours, theirs = pair
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    with server:
        connections.begin(7, server.getsockname()[1], theirs.fileno(), 5)
        connections.settle()
        assert events == [{"event": "connected", "id": 7}]
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        with socket.socket(fileno=fds[0]) as mine, server.accept()[0] as other:
            mine.sendall(b"hello")
            assert other.recv(5) == b"hello"


def test_a_connection_to_a_closed_port_is_refused_at_once(connections, events, pair):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    connections.begin(7, port, pair[1].fileno(), 5)
    connections.settle()
    assert [(one["event"], one["id"], one["reason"]) for one in events] == [("failed", 7, connect.REFUSED)]


def test_a_connection_that_is_not_accepted_times_out(connections, events, pair):
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        connections.begin(7, full.getsockname()[1], pair[1].fileno(), 0.05)
        connections.settle()
    assert [one["reason"] for one in events] == [connect.TIMED_OUT]


def test_attempts_above_the_limit_are_refused(connections, events, pair, monkeypatch):
    monkeypatch.setattr(connect, "MAX_ATTEMPTS", 0)
    connections.begin(7, 1, pair[1].fileno(), 5)
    assert [one["reason"] for one in events] == [connect.TOO_MANY]


def test_a_connection_whose_requester_has_gone_is_closed(connections, events, pair):
    ours, theirs = pair
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours.close()
        connections.begin(7, server.getsockname()[1], theirs.fileno(), 5)
        connections.settle()
        with server.accept()[0] as other:
            assert other.recv(1) == b""
