"""A tunnel's end of a connection, with real sockets; and how the spawner makes one without waiting for it."""

import asyncio
import select
import socket
import time

import pytest
from sandfleet_executor.effects.tunnels import ConnectionIdle, OwnPortError, ResetByPeer, Tunnel, Tunnels
from sandfleet_executor.worker.connect import MOST, Connections


def pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


async def test_a_connection_without_bytes_is_idle_and_one_with_them_is_not():
    ours, theirs = pair()
    used = []
    tunnel = Tunnel(ours, lambda: used.append(1), idle=0.2)
    idle = asyncio.ensure_future(tunnel.until_idle())
    for _ in range(5):
        await tunnel.write(b"x")
        await asyncio.sleep(0.05)
    assert len(used) == 5
    with pytest.raises(ConnectionIdle):
        await idle
    tunnel.close()
    theirs.close()


async def test_a_tunnel_that_is_closed_early_resets():
    ours, theirs = pair()
    tunnel = Tunnel(ours, lambda: None, idle=60)
    tunnel.close()
    with theirs, pytest.raises(ConnectionResetError):
        theirs.recv(1)


async def test_a_tunnel_whose_both_ends_have_said_all_does_not():
    ours, theirs = pair()
    tunnel = Tunnel(ours, lambda: None, idle=60)
    tunnel.end()
    theirs.shutdown(socket.SHUT_WR)
    assert [piece async for piece in tunnel.read()] == []
    assert tunnel.over
    tunnel.close()
    with theirs:
        assert theirs.recv(1) == b""


async def test_a_reset_of_the_other_end_is_told_as_one():
    ours, theirs = pair()
    Tunnel(theirs, lambda: None, idle=60).close()
    tunnel = Tunnel(ours, lambda: None, idle=60)
    with pytest.raises(ResetByPeer):
        [piece async for piece in tunnel.read()]
    tunnel.close()


async def test_the_executor_s_own_port_is_not_even_tried():
    async def never():
        raise AssertionError

    with pytest.raises(OwnPortError):
        async with Tunnels(never, 50051, lambda: None).open(50051):
            pass


class Spawner:
    def __init__(self):
        self.poller = select.poll()
        self.said = []
        self.connections = Connections(self.poller, self.said.append)

    def turn(self, seconds):
        for fd, _ in self.poller.poll(seconds * 1000):
            self.connections.ready(fd)
        self.connections.expire()

    def connect(self, port, number=1):
        ours, theirs = socket.socketpair()
        with theirs:
            self.connections.begin(number, port, theirs.fileno())
        return ours


def received(line):
    _, fds, _, _ = socket.recv_fds(line, 1, 1)
    return socket.socket(fileno=fds[0]) if fds else None


def test_a_connection_comes_back_as_a_descriptor():
    spawner = Spawner()
    with socket.create_server(("127.0.0.1", 0)) as listener, spawner.connect(listener.getsockname()[1]) as line:
        while not spawner.said:
            spawner.turn(1)
        assert spawner.said == [{"event": "connected", "id": 1}]
        with received(line) as made:
            other, _ = listener.accept()
            with other:
                other.sendall(b"hello")
                assert made.recv(5) == b"hello"


def test_a_port_that_nobody_listens_on_is_refused():
    spawner = Spawner()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with spawner.connect(port) as line:
        while not spawner.said:
            spawner.turn(1)
        assert (spawner.said[0]["event"], spawner.said[0]["reason"]) == ("failed", "refused")
        assert received(line) is None


def full_listener():
    """One whose backlog is full, with what fills it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    filling = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
        filling.append(one)
    return listener, filling


def test_one_that_is_not_accepted_waits_without_holding_anybody_up_and_gives_up(monkeypatch):
    monkeypatch.setattr("sandfleet_executor.worker.connect.PATIENCE", 0.5)
    listener, filling = full_listener()
    spawner = Spawner()
    begun = time.monotonic()
    with spawner.connect(listener.getsockname()[1]):
        assert spawner.said == []
        assert begun < spawner.connections.due <= time.monotonic() + 0.5
        while not spawner.said:
            spawner.turn(0.1)
    assert (spawner.said[0]["event"], spawner.said[0]["reason"]) == ("failed", "timeout")
    assert spawner.connections.due == float("inf")
    for one in (listener, *filling):
        one.close()


def test_only_so_many_are_under_way():
    listener, filling = full_listener()
    spawner = Spawner()
    lines = [spawner.connect(listener.getsockname()[1], number) for number in range(MOST + 1)]
    assert [(said["id"], said["reason"]) for said in spawner.said] == [(MOST, "many")]
    spawner.connections.close()
    for one in (listener, *filling, *lines):
        one.close()


def test_what_nobody_waits_for_any_more_is_closed():
    spawner = Spawner()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        spawner.connect(listener.getsockname()[1]).close()
        while not spawner.said:
            spawner.turn(1)
        other, _ = listener.accept()
        with other:
            other.settimeout(10)
            assert other.recv(1) == b""
