"""Connections of an executor that carry programs one after the other: nothing of one gets into the next."""

import asyncio
import contextlib
import json
import random
import socket
import unittest.mock

import pytest
from sandfleet_executor.effects.egress import carrying, dial
from sandfleet_executor.effects.egress.carrying import Outer
from sandfleet_executor.effects.egress.way_out import WayOut
from sandfleet_operator.fleet.egress import peer, sessions
from sandfleet_operator.fleet.egress.framed import FramedPeer
from sandfleet_rules.pieces import END, REPORT, piece
from support.operator.egress_bed import Bed, Client, Server, serving

pytestmark = pytest.mark.process


class Echo:
    """Answers each request of HTTP with its path, in pieces, and says how long it goes on."""

    connections = 0

    async def connected(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(OSError, EOFError):
            while path := (await reader.readuntil(b"\r\n\r\n")).split()[1]:
                body = path * 50
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                for at in range(0, len(body), 97):
                    writer.write(body[at : at + 97])
                    await writer.drain()
        writer.close()


class SocketWay(dial.Way):
    """As over TLS, whose certificate says whose it is, without TLS."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    greeting = b'{"session": "s", "reports": true, "again": true}\n'

    async def connect(self):
        loop = asyncio.get_running_loop()
        _, outer = await loop.create_unix_connection(lambda: Outer(self.take_back), self._path)
        outer.greet(self.greeting)
        return outer


@contextlib.asynccontextmanager
async def executor(bed):
    """The way out of session `s` over the bed's socket: opens connections of programs."""
    out = WayOut(None, lambda: None)
    out.lead(SocketWay(bed.framed))
    listener = socket.create_server(("127.0.0.1", 0))
    out.listen(listener)
    out.open("s", b"")

    @contextlib.asynccontextmanager
    async def program():
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    try:
        yield program, out
    finally:
        out.shut()


def get(host, path):
    return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def asked(program, host, path):
    async with program() as client:
        client.writer.write(get(host, path))
        head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = int(head.lower().split(b"content-length: ")[1].split()[0])
        return await asyncio.wait_for(client.reader.readexactly(length), 20)


async def idle(bed, count=1):
    while len(bed.sessions.find("s").kept) != count or bed.sessions.find("s").tasks:
        await asyncio.sleep(0)


async def test_programs_one_after_the_other_share_a_connection_and_each_is_a_connection_of_its_own():
    server = Echo()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, out):
        for number in range(5):
            assert await asked(program, f"a.test:{port}", f"/{number}") == f"/{number}".encode() * 50
            await idle(bed)
        assert (bed.accepted, server.connections) == (1, 5)
        assert [one.host for one in out.contacts.since(0)] == ["a.test"] * 5
        # The list is looked at anew.
        bed.sessions.allow("s", ["b.test"])
        async with program() as client:
            assert b" 403 " in await client.ask(get(f"a.test:{port}", "/"))
        await idle(bed)
        assert bed.accepted == 1


async def test_what_a_program_says_before_it_is_carried_is_not_lost(monkeypatch):
    async def slowly(self):
        for _ in range(50):
            await asyncio.sleep(0)
        return await connect(self)

    connect = SocketWay.connect
    monkeypatch.setattr(SocketWay, "connect", slowly)
    async with serving(Echo()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, _):
        assert await asked(program, f"a.test:{port}", "/early") == b"/early" * 50


@pytest.mark.parametrize("ends_first", [True, False])
async def test_a_program_that_reads_late_gets_all_of_a_long_answer(ends_first):
    """Also one that has said all before."""
    long = b"x" * (8 << 20)
    server = Server(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(long), long))
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, out):
        async with program() as client:
            client.writer.write(get(f"a.test:{port}", "/"))
            if ends_first:
                client.writer.write_eof()
            while not (held := [len(one._unsent) for one in out._programs]) or not held[0]:
                await asyncio.sleep(0.01)
            # What waits here is bounded, since the egress process is not read meanwhile.
            assert held[0] < len(long) // 2
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await asyncio.wait_for(client.reader.readexactly(len(long)), 20) == long
        while out._programs:
            await asyncio.sleep(0.01)


async def test_a_program_that_says_nothing_is_announced_in_a_while(monkeypatch):
    """On a connection that was kept, whose greeting waits for the first bytes."""
    monkeypatch.setattr(carrying, "SILENT_SECONDS", 0.01)
    async with serving(Echo()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, _):
        await asked(program, f"a.test:{port}", "/x")
        await idle(bed)
        async with program():
            while not bed.sessions.find("s").tasks:
                await asyncio.sleep(0.01)


async def test_a_kept_connection_ends_with_its_session_and_is_not_used():
    async with serving(Echo()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, _):
        await asked(program, f"a.test:{port}", "/x")
        await idle(bed)
        (task,) = bed.sessions.find("s").kept
        bed.sessions.end("s")
        await asyncio.wait([task])
        bed.sessions.allow("s", [f"a.test:{port}"])
        while not (await _answered(program, port)):
            pass
        assert bed.accepted == 2


async def _answered(program, port):
    try:
        return await asked(program, f"a.test:{port}", "/y")
    except (OSError, EOFError):
        # The executor has not heard yet that it is over.
        return b""


async def test_kept_connections_are_few_and_end_when_they_are_not_used(monkeypatch):
    monkeypatch.setattr(dial, "MOST_KEPT", 2)
    async with serving(Echo()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, out):
        await asyncio.gather(*[asked(program, f"a.test:{port}", f"/{number}") for number in range(5)])
        await idle(bed, 2)
        assert len(out._way._kept) == 2
        monkeypatch.setattr(dial, "KEPT_SECONDS", 0.0)
        await asked(program, f"a.test:{port}", "/last")
        await idle(bed, 1)
        monkeypatch.setattr(dial, "OLDEST_SECONDS", 0.0)
        await asked(program, f"a.test:{port}", "/old")
        await idle(bed, 0)


async def test_a_session_keeps_no_more_than_its_bound_whatever_its_executor_means_to(monkeypatch):
    monkeypatch.setattr(sessions, "MOST_KEPT", 1)
    async with serving(Echo()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, _):
        await asyncio.gather(*[asked(program, f"a.test:{port}", f"/{number}") for number in range(5)])
        await idle(bed, 1)


@pytest.mark.parametrize("seed", range(8))
async def test_however_programs_end_the_next_one_reads_its_own_answer_alone(seed):
    """Some leave in the middle, some half, some are refused and go on, some are cut."""
    chance = random.Random(seed)
    async with serving(Echo()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(bed) as (program, _):
        host = f"a.test:{port}"
        for number in range(12):
            async with program() as client:
                how = chance.choice(["all", "half", "leave", "refused", "tunnel", "reset", "cut", "silent"])
                if how == "tunnel":
                    client.writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                elif how == "refused":
                    client.writer.write(get("other.test", "/") + b"x" * chance.randrange(100_000))
                elif how != "silent":
                    client.writer.write(get(host, f"/{how}{number}"))
                if how == "half":
                    client.writer.write_eof()
                if how not in ("leave", "silent"):
                    await asyncio.wait_for(client.reader.read(chance.randrange(1, 200)), 10)
                if how == "cut":
                    bed.sessions.find("s").allow(())
                    bed.sessions.allow("s", [host])
                if how == "reset":
                    client.writer.transport.abort()
            path = f"/mine{number}"
            assert await asked(program, host, path) == path.encode() * 50, how


async def heard(reader):
    """Bytes of the egress process up to its report that another greeting may follow, or to the end."""
    data = b""
    with contextlib.suppress(EOFError, OSError):
        while True:
            size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 10))
            said = await reader.readexactly(size & ~REPORT)
            if size & REPORT and "again" in json.loads(said):
                return data
            data += b"" if size & REPORT else said
    return data


@pytest.mark.attack(
    "leaves a greeting for another session behind in a connection that is kept", "it is dropped", control="works"
)
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_what_a_program_leaves_behind_is_no_greeting(defended, monkeypatch):
    """It is refused, goes on, and what it says would be read as the words of its executor."""
    if not defended:

        async def at_once(peer):
            peer.end()
            return True

        def as_it_is(peer):
            peer._has_sent_end = False
            return peer

        monkeypatch.setattr(FramedPeer, "has_ended", at_once)
        monkeypatch.setattr(FramedPeer, "again", as_it_is)
    inside = Server()
    async with serving(inside) as port, Bed(["a.test"]).listening() as bed:
        bed.sessions.allow("other", [f"b.test:{port}"])
        reader, writer = await asyncio.open_unix_connection(bed.framed)
        greeting = json.dumps({"session": "s", "reports": True, "again": True}).encode() + b"\n"
        forged = greeting.replace(b'"s"', b'"other"')
        writer.write(
            piece(greeting) + piece(get("b.test", "/")) + piece(forged) + piece(get(f"b.test:{port}", "/")) + END
        )
        assert b" 403 " in await heard(reader)
        writer.write(piece(greeting) + piece(get("c.test", "/")) + END)
        assert (b" 403 " in await heard(reader)) is defended
        writer.close()
        bed.sessions.end("other")
    assert inside.connections == (0 if defended else 1)


async def test_a_program_that_goes_on_after_it_was_refused_costs_its_connection(monkeypatch):
    monkeypatch.setattr(peer, "MOST_UNREAD", 100)
    async with Bed(["a.test"]).listening() as bed, executor(bed) as (program, _):
        async with program() as client:
            client.writer.write(get("b.test", "/"))
            assert b" 403 " in await client.reader.read(1000)
            client.writer.write(b"x" * 1000)
            await client.writer.drain()
            await asyncio.wait_for(client.reader.read(), 10)
        while bed.sessions.find("s").tasks:
            await asyncio.sleep(0)
        assert not bed.sessions.find("s").kept


async def test_after_a_read_that_was_given_up_no_greeting_is_taken():
    """The place of the next length is lost then: bytes of the program would be read as lengths."""
    below = peer.SocketPeer()
    below.connection_made(unittest.mock.create_autospec(asyncio.Transport, instance=True))
    mine = FramedPeer(below)
    reading = asyncio.ensure_future(mine.read())
    await asyncio.sleep(0)
    below.data_received(b"\0\0\0")
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    below.data_received(END)
    mine._has_sent_end = True
    assert not await mine.has_ended()
