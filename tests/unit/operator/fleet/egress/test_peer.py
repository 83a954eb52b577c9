"""Ends of sockets: what flows from one to the other, and what is read of one."""

import asyncio
import contextlib
import socket

import pytest
from sandfleet_operator.fleet.egress.peer import PIECE_BYTES, SocketPeer, carrying

pytestmark = pytest.mark.process
SMALL = 64 << 10


@contextlib.asynccontextmanager
async def peer():
    """A peer, and the socket of its program."""
    own, theirs = socket.socketpair()
    for each in (own, theirs):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    theirs.setblocking(False)
    _, made = await asyncio.get_running_loop().create_connection(SocketPeer, sock=own)
    try:
        yield made, theirs
    finally:
        made.abort()
        theirs.close()


@contextlib.asynccontextmanager
async def flowing():
    """The sockets of a source and of its target, the flow's end, and the sizes of the pieces that it has carried."""
    async with peer() as (source, here), peer() as (target, there):
        moved = []
        yield here, there, carrying(source, target, moved.append), moved, target


async def received(sock, count):
    data = b""
    while len(data) < count and (piece := await asyncio.get_running_loop().sock_recv(sock, count)):
        data += piece
    return data


async def settled():
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_target_that_does_not_read_stops_its_source_and_gets_all_when_it_does():
    everything = bytes(range(256)) * (16 * PIECE_BYTES // 256)
    async with flowing() as (here, there, over, moved, target):
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(here, everything))
        await settled()
        # What is on the way here is a piece behind what the transport takes before it says that it is full.
        assert target.transport.get_write_buffer_size() <= 2 * PIECE_BYTES
        assert sum(moved) < len(everything) // 2
        assert await received(there, len(everything)) == everything
        await sending
        here.shutdown(socket.SHUT_WR)
        await over
        assert await received(there, 1) == b""
        assert sum(moved) == len(everything)


@pytest.mark.parametrize("before", [True, False])
async def test_what_was_said_before_a_flow_begins_flows_with_it_and_so_does_its_end(before):
    async with peer() as (source, here), peer() as (target, there):
        here.send(b"ahead, held")
        if before:
            here.shutdown(socket.SHUT_WR)
        await settled()
        assert await source.exactly(5) == b"ahead"
        over = carrying(source, target, lambda _: None)
        here.close()
        await over
        assert await received(there, 100) == b", held"
        # The other direction stays open.
        there.send(b"answer")
        assert await target.read() == b"answer"


@pytest.mark.parametrize("lost", ["source", "target"])
async def test_a_flow_fails_with_either_end(lost):
    async with peer() as (source, _), peer() as (target, _):
        over = carrying(source, target, lambda _: None)
        (source if lost == "source" else target).abort()
        with pytest.raises(ConnectionResetError):
            await over
        # And one that begins later.
        with pytest.raises(ConnectionResetError):
            await carrying(source, target, lambda _: None)


async def test_a_flow_that_was_cut_carries_nothing_more():
    async with flowing() as (here, there, over, moved, _):
        here.send(b"before")
        assert await received(there, 6) == b"before"
        over.cancel()
        here.send(b"after")
        await settled()
        assert moved == [6]
        with pytest.raises(BlockingIOError):
            there.recv(10)


async def test_what_is_not_read_waits_in_the_kernel_and_comes_in_pieces():
    async with peer() as (mine, theirs):
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(theirs, b"x" * (8 * PIECE_BYTES)))
        await settled()
        assert not sending.done()
        sizes = []
        while sum(sizes) < 8 * PIECE_BYTES:
            sizes.append(len(await mine.read()))
        assert max(sizes) <= PIECE_BYTES
        await sending


async def test_a_write_waits_for_room_and_fails_with_its_connection():
    async with peer() as (mine, _):
        writing = asyncio.ensure_future(mine.write(b"x" * (8 * PIECE_BYTES)))
        await settled()
        assert not writing.done()
        mine.abort()
        with pytest.raises(ConnectionResetError):
            await writing
        with pytest.raises(ConnectionResetError):
            await mine.read()
