"""What programs in a session find at the proxy: CONNECT, requests in absolute form, SOCKS5, and refusals in words."""

import asyncio
import contextlib
import socket
import struct
import tempfile

import pytest
from sandfleet_operator.fleet.egress.outside import Ways
from support.operator.egress_bed import Bed, Server, certificate, serving

pytestmark = pytest.mark.process

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def get(host, port, path="/", more=""):
    return f"GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode()


def socks(host, port):
    name = host.encode()
    return b"\x05\x01\x00", b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack("!H", port)


async def test_a_request_in_absolute_form_reaches_its_host_and_the_connection_goes_on():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        for path in ("/one?x=1", "/two"):
            answer = await client.ask(get("a.test", port, path, "Proxy-Authorization: Basic eA==\r\n"))
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"hello")
    assert server.read.count(b"GET /one?x=1 HTTP/1.1\r\n") == 1
    assert server.read.count(b"Host: a.test:%d\r\n" % port) == 2
    assert b"roxy" not in server.read


async def test_a_body_is_carried_whatever_its_framing():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        head = f"POST http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n"
        assert b"hello" in await client.ask(f"{head}Content-Length: 4\r\n\r\nbody".encode())
        chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        assert b"hello" in await client.ask(chunked.encode())
    assert b"\r\n\r\nbody" in server.read
    assert b"3\r\nabc\r\n0\r\n\r\n" in server.read


async def test_tls_goes_through_a_tunnel_untouched():
    with tempfile.TemporaryDirectory() as folder:
        tls, trusting, _ = certificate(folder, "a.test")
        server = Server()
        async with serving(server, tls) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
            assert b" 200 " in await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
            await client.writer.start_tls(trusting, server_hostname="a.test")
            assert await client.ask(b"GET / HTTP/1.1\r\n\r\n") == HELLO
            [row] = bed.sessions.reports()["s"]
            assert (row["host"], row["connections"], row["open"], row["address"]) == ("a.test", 1, 1, "127.0.0.1")
            assert row["sent"] > 100
            assert row["received"] > 100


async def test_plain_http_in_a_tunnel_is_for_its_host_alone():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed:
        ends = {f"a.test:{port}": b"hello", "a.test": b"hello", "b.test": b": the Host header names another host\n"}
        for host, end in ends.items():
            async with bed.client() as client:
                await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
                answer = await client.ask(f"GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert answer.endswith(end)
    assert server.read.count(b"GET /x ") == 2


async def test_socks_with_names_reaches_hosts_and_is_refused_others():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed:
        async with bed.client() as client:
            greeting, request = socks("a.test", port)
            assert await client.ask(greeting) == b"\x05\x00"
            assert (await client.ask(request))[:2] == b"\x05\x00"
            assert b"hello" in await client.ask(f"GET / HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n".encode())
        async with bed.client() as client:
            greeting, request = socks("b.test", port)
            await client.ask(greeting)
            assert (await client.ask(request))[:2] == b"\x05\x02"
        assert bed.refused() == {"NotListed": 1}


async def test_a_refusal_says_why_in_its_reason_and_its_body():
    async with Bed(["a.test"]).listening() as bed:
        async with bed.client() as client:
            answer = await client.ask(b"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test\r\n\r\n")
            why = b"this session may not reach b.test:443: not in its egress list"
            assert answer.startswith(b"HTTP/1.1 403 " + why + b"\r\n")
            assert answer.endswith(b"\r\n\r\n" + why + b"\n")
        async with bed.client() as client:
            assert b" 403 " in await client.ask(get("b.test", 80))
        assert bed.lookups == []


@pytest.mark.parametrize(("addresses", "status"), [([], b" 502 "), (["127.0.0.1"], b" 502 ")])
async def test_a_host_that_is_not_there_is_told_as_such(addresses, status):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with Bed([f"a.test:{port}"], {"a.test": addresses}).listening() as bed, bed.client() as client:
            assert status in await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


async def test_hosts_of_an_argument_are_not_looked_up():
    server = Server()
    async with serving(server) as port:
        ways = Ways(hosts={"a.test": "127.0.0.1"})
        async with Bed([f"a.test:{port}"], ways=ways).listening() as bed, bed.client() as client:
            assert b"hello" in await client.ask(get("a.test", port))
        assert bed.lookups == []


async def test_only_a_session_that_has_a_list_is_served():
    async with Bed(["a.test"]).listening() as bed, bed.client("other") as client:
        assert await client.rest() == b""


async def test_a_narrower_list_cuts_what_it_does_not_allow_and_a_wider_one_nothing():
    server = Server(answer=None)
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        client.writer.write(b"GET /")
        bed.sessions.allow("s", [f"a.test:{port}", "b.test"])
        await asyncio.sleep(0)
        assert not client.reader.at_eof()
        bed.sessions.allow("s", ["b.test"])
        assert await client.rest() == b""
        assert bed.refused() == {"Cut": 1}


async def test_the_end_of_a_session_ends_its_connections():
    server = Server(answer=None)
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        bed.sessions.end("s")
        assert await client.rest() == b""


async def test_bytes_and_connections_of_a_session_are_bounded():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"], session_bytes=10).listening() as bed:
        async with bed.client() as client:
            assert b"hello" in await client.ask(get("a.test", port))
        bed.sessions.reports()
        async with bed.client() as client:
            assert b" 429 " in await client.ask(get("a.test", port))


async def test_a_megabyte_goes_both_ways_through_socks_and_tls():
    data = b"x" * (1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        tls, trusting, _ = certificate(folder, "a.test")

        class Echo:
            async def connected(self, reader, writer):
                while piece := await reader.read(65536):
                    writer.write(piece)
                    await writer.drain()
                writer.close()

        async with serving(Echo(), tls) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
            greeting, request = socks("a.test", port)
            await client.ask(greeting)
            await client.ask(request)
            await client.writer.start_tls(trusting, server_hostname="a.test")
            client.writer.write(data)
            assert await asyncio.wait_for(client.reader.readexactly(len(data)), 30) == data


@pytest.mark.parametrize("way", ["plain", "tunnel", "kept silent"])
async def test_a_stream_of_events_lives_as_long_as_events_come(way):
    """Twenty of them take longer than a connection may be silent. By default that is a quarter of an hour."""
    count, gap, idle = 20, 0.15, 1.5

    async def events(reader, writer):
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            for number in range(count):
                await asyncio.sleep(10 * idle if way == "kept silent" else gap)
                writer.write(f"data: {number}\n\n".encode())
            writer.close()

    server = Server()
    server.connected = events
    async with serving(server) as port, Bed([f"a.test:{port}"], idle=idle).listening() as bed, bed.client() as client:
        host = f"a.test:{port}"
        if way == "tunnel":
            assert b" 200 " in await client.ask(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            client.writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        else:
            client.writer.write(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        told = (await client.rest()).count(b"data: ")
    assert told == (0 if way == "kept silent" else count)
