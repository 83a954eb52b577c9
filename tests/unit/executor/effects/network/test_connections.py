"""The executor's connections answer at once, and few of them come from inside of its pod."""

import contextlib
import socket
from pathlib import Path

import pytest
from sandfleet_executor.effects.network.connections import MOST_FROM_INSIDE, Connections

pytestmark = pytest.mark.process


@pytest.fixture
def connected():
    with contextlib.ExitStack() as opened, socket.create_server(("127.0.0.1", 0), backlog=100) as listener:

        def connect(count):
            clients = [opened.enter_context(socket.create_connection(listener.getsockname())) for _ in range(count)]
            accepted = [opened.enter_context(listener.accept()[0]) for _ in range(count)]
            return accepted, clients

        yield listener.getsockname()[1], connect


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def is_prompt(one):
    return bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def is_open(client):
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def test_what_was_accepted_on_the_port_answers_at_once_and_nothing_else_is_touched(connected):
    port, connect = connected
    (accepted,), (client,) = connect(1)
    with socket.socketpair()[0]:
        assert not is_prompt(accepted)
        Connections(port, inside=[]).look()
        assert is_prompt(accepted)
        assert not is_prompt(client)


def test_no_descriptor_is_closed_or_left_open(connected):
    port, connect = connected
    connect(40)
    before = descriptors()
    Connections(port, inside=["127.0.0.1"]).look()
    assert descriptors() == before


@pytest.mark.parametrize("count", [0, 1, MOST_FROM_INSIDE, MOST_FROM_INSIDE + 1, 60])
def test_connections_from_inside_are_ended_above_their_number(connected, count):
    port, connect = connected
    _, clients = connect(count)
    # Control: from elsewhere there may be as many as come.
    assert Connections(port, inside=["192.0.2.1"]).look() == 0
    assert sum(map(is_open, clients)) == count
    ended = Connections(port, inside=["127.0.0.1"]).look()
    assert ended == max(0, count - MOST_FROM_INSIDE)
    assert sum(map(is_open, clients)) == count - ended
