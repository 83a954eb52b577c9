"""A tunnel's end of a connection, with real sockets; and how the spawner makes one without waiting for it."""

import asyncio
import socket

import pytest
from sandfleet_executor.effects.network.tunnels import ConnectionIdle, OwnPortError, ResetByPeer, Tunnel, Tunnels

pytestmark = pytest.mark.process


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
