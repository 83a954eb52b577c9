"""The listener of a session that its executor hands to the egress process of one machine."""

import asyncio
import contextlib
import json
import socket

import pytest
from sandfleet_executor.core.egress.contacts import Contacts, denied
from sandfleet_executor.effects.egress.handing import Handing
from sandfleet_operator.fleet.egress import handed
from sandfleet_operator.fleet.egress.serve import Egress
from support.operator.egress_bed import Bed, Client, Server, serving

pytestmark = pytest.mark.process


def socket_of(bed):
    return bed.path.with_name("handed.sock")


@contextlib.asynccontextmanager
async def taking(bed):
    """The egress process at a socket of its own."""
    path = socket_of(bed)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        taking = asyncio.create_task(handed.serve(listener, Egress(bed.sessions, bed.outside).program))
        try:
            yield path
        finally:
            taking.cancel()
            path.unlink()


@contextlib.asynccontextmanager
async def executor(path, session="s"):
    """The address of the session's listener, what its executor hears, and its work."""
    contacts = Contacts()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(Handing(str(path), contacts).run(session, listener))
        try:
            yield listener.getsockname(), contacts, running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def session(*names):
    """A bed whose session has this list, its listener's address, what its executor hears, and the executor's work."""
    async with Bed(names).listening() as bed, taking(bed) as path, executor(path) as (address, contacts, running):
        yield bed, address, contacts, running


@contextlib.asynccontextmanager
async def program(address):
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def get(host):
    return f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def test_programs_are_served_and_their_executor_hears_of_it_with_the_bytes():
    async with serving(Server()) as port, session(f"a.test:{port}") as (_, address, contacts, _):
        async with program(address) as client:
            assert (await client.ask(get(f"a.test:{port}"))).startswith(b"HTTP/1.1 200 ")
            assert b" 403 " in await client.ask(get("b.test"))
        while not (one := contacts.since(0))[0].end:
            await asyncio.sleep(0)
    assert [(each.host, each.port, each.denied) for each in one] == [("a.test", port, False), ("b.test", 80, True)]
    assert one[0].sent > len("GET / HTTP/1.1")
    assert one[0].received == len(Server().answer)


async def test_what_was_told_is_heard_before_the_next_turn(tmp_path):
    """A program that has read its refusal may end before the executor's loop gets to the report."""
    with socket.socket(socket.AF_UNIX) as egress:
        egress.bind(str(tmp_path / "e.sock"))
        egress.listen()
        egress.setblocking(False)
        async with executor(tmp_path / "e.sock") as (_, contacts, _):
            control, _ = await asyncio.get_running_loop().sock_accept(egress)
            with control:
                control.send(report(0, "a.test"))
                while not contacts.count:
                    await asyncio.sleep(0)
                control.send(report(1, "b.test"))
                assert denied(contacts.since(0)) == ("a.test",)
                contacts.catch_up()
                assert denied(contacts.since(0)) == ("a.test", "b.test")


def report(number, host):
    return json.dumps({"id": number, "host": host, "port": 80, "reason": "NotListed", "denied": True}).encode() + b"\n"


async def test_a_refused_program_that_says_more_reads_why_and_no_reset():
    async with session("a.test") as (_, address, _, _), program(address) as client:
        client.writer.write(get("b.test") + b"x" * 100_000)
        assert b"not in its egress list" in await client.rest()
        client.writer.write(b"y" * 1000)
        client.writer.write_eof()
        assert await client.reader.read() == b""


@pytest.mark.parametrize("how", ["executor", "session"])
async def test_connections_end_with_their_executor_and_with_their_session(how):
    server = Server(answer=None)
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(server))
        bed, address, _, running = await stack.enter_async_context(session(f"a.test:{port}"))
        client = await stack.enter_async_context(program(address))
        host = f"a.test:{port}"
        assert b" 200 " in await client.ask(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        if how == "executor":
            running.cancel()
        else:
            bed.sessions.end("s")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(client.reader.read(), 10)


async def test_the_next_egress_process_gets_the_listener_and_what_waits_at_it():
    async with serving(Server()) as port, Bed([f"a.test:{port}"]).listening() as bed, executor(socket_of(bed)) as made:
        address, _, _ = made
        async with program(address) as client:
            client.writer.write(get(f"a.test:{port}"))
            async with taking(bed):
                assert (await asyncio.wait_for(client.reader.read(100), 10)).startswith(b"HTTP/1.1 200 ")
            async with taking(bed), program(address) as other:
                assert (await other.ask(get(f"a.test:{port}"))).startswith(b"HTTP/1.1 200 ")


async def test_one_executor_after_the_other_is_taken():
    """Also where a program of the one before has not gone yet."""
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(Server()))
        bed = await stack.enter_async_context(Bed([f"a.test:{port}"]).listening())
        path = await stack.enter_async_context(taking(bed))
        for _ in range(5):
            async with executor(path) as (address, _, _):
                client = await stack.enter_async_context(program(address))
                assert (await client.ask(get(f"a.test:{port}"))).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("said", [b"{}\n", b"no\n", b"[]\n", json.dumps({"session": "s"}).encode()])
async def test_what_hands_no_listener_over_is_let_go(said):
    async with Bed(["a.test"]).listening() as bed, taking(bed) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(said)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
