"""Hosts with credentials: TLS is ended at the proxy, and the secret is put in there."""

import asyncio
import contextlib
import ssl
import tempfile
from dataclasses import replace

import pytest
from sandfleet_operator.api.egress import Credential
from sandfleet_operator.fleet.egress.tls import new_authority
from support.operator.egress_bed import Bed, Server, certificate, serving

pytestmark = pytest.mark.process

SECRET, PLACEHOLDER = "secret-of-the-test", "sandfleet-credential-00"
CREDENTIAL = Credential("a.test", "Authorization", "Bearer {key}", SECRET, "KEY", PLACEHOLDER)


@contextlib.asynccontextmanager
async def bed_of(server, *, named="a.test", credentials=(CREDENTIAL,)):
    """A bed, the port of a TLS server with a certificate for `named`, and a client's context."""
    with tempfile.TemporaryDirectory() as folder:
        tls, trusting, _ = certificate(folder, named)
        async with serving(server, tls) as port:
            bed = Bed([f"a.test:{port}"], credentials=credentials, tls=trusting)
            async with bed.listening():
                yield bed, port


async def tunnel(bed, port, client):
    await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
    await client.writer.start_tls(ssl.create_default_context(cadata=bed.authority), server_hostname="a.test")


def request(port, *more, body=""):
    lines = ("POST /x HTTP/1.1", f"Host: a.test:{port}", *more, f"Content-Length: {len(body)}")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body.encode()


async def test_the_header_is_put_in_outside_for_each_request_of_a_connection():
    server = Server()
    async with bed_of(server) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        for _ in range(2):
            assert b"hello" in await client.ask(request(port))
    assert server.read.count(f"authorization: Bearer {SECRET}\r\n".encode()) == 2


@pytest.mark.attack("puts the placeholder of a key into a body", "it stays as it is", control="in it")
async def test_a_placeholder_is_replaced_in_headers_and_not_in_a_body():
    server = Server()
    async with bed_of(server) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        await client.ask(request(port, f"X-Key: {PLACEHOLDER}", body=f"key={PLACEHOLDER}"))
    assert f"x-key: {SECRET}\r\n".encode() in server.read
    assert server.read.endswith(f"key={PLACEHOLDER}".encode())


@pytest.mark.attack("has a host echo the key", "the answer has it covered")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_an_answer_that_has_the_secret_has_it_covered(defended, monkeypatch):
    from sandfleet_operator.fleet.egress import http

    if not defended:
        monkeypatch.setattr(http, "secrets", lambda *_: set())
    answer = f"HTTP/1.1 200 {SECRET}\r\nX: {SECRET}\r\nTransfer-Encoding: chunked\r\n\r\n"
    half = len(SECRET) // 2
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (SECRET[:half], SECRET[half:], "end"))
    server = Server(f"{answer}{chunks}0\r\n\r\n".encode())
    async with bed_of(server) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        client.writer.write(request(port, "Connection: close"))
        said = (await client.rest()).replace(b"\r\n", b"")
    assert b"end" in said
    assert (SECRET.encode() not in said) is defended


@pytest.mark.attack(
    "a server without the host's certificate waits for the key", "refused, it reads nothing", control="in it"
)
@pytest.mark.parametrize("named", ["b.test", "a.test"])
async def test_a_server_with_the_certificate_of_another_gets_no_secret(named):
    server = Server()
    async with bed_of(server, named=named) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        said = await client.ask(request(port))
    assert (b" 502 " in said) is (named == "b.test")
    assert (SECRET.encode() in server.read) is (named == "a.test")


@pytest.mark.attack("asks for another host where the key is put in", "refused", control="in it")
async def test_another_host_in_the_tunnel_gets_no_secret():
    server = Server()
    async with bed_of(server) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        assert b" 403 " in await client.ask(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
    assert server.read == b""


@pytest.mark.attack("asks for the key without TLS", "the request goes without it", control="in it")
async def test_a_request_without_tls_gets_no_secret():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"], credentials=(CREDENTIAL,)).listening() as bed:
        async with bed.client() as client:
            await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
            assert b"hello" in await client.ask(request(port, f"X-Key: {PLACEHOLDER}"))
        async with bed.client() as client:
            plain = request(port).replace(b"POST /x", f"POST http://a.test:{port}/x".encode())
            assert b"hello" in await client.ask(plain)
    assert SECRET.encode() not in server.read


async def test_a_host_without_credentials_is_not_looked_into():
    server = Server()
    with tempfile.TemporaryDirectory() as folder:
        tls, trusting, _ = certificate(folder, "a.test")
        other = replace(CREDENTIAL, host="c.test")
        async with serving(server, tls) as port:
            bed = Bed([f"a.test:{port}"], credentials=(other,))
            async with bed.listening(), bed.client() as client:
                await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
                # The host's own certificate comes through.
                await client.writer.start_tls(trusting, server_hostname="a.test")
                assert b"hello" in await client.ask(request(port))


async def test_a_large_answer_and_a_large_body_go_through():
    data = "x" * (1 << 20)
    server = Server(f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n{data}".encode())
    server.answer, whole = None, server.answer

    async def connected(reader, writer):
        while not server.read.endswith(b"x" * 1000) or len(server.read) < len(data):
            server.read += await reader.read(65536)
        writer.write(whole)
        await writer.drain()
        writer.close()

    server.connected = connected
    async with bed_of(server) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        client.writer.write(request(port, "Connection: close", body=data))
        said = await asyncio.wait_for(client.rest(), 30)
    assert said.endswith(data.encode())


@pytest.mark.attack("uses another session's placeholder", "it stays as it is", control="in it")
async def test_the_placeholder_of_another_session_is_not_replaced():
    server, other = Server(), replace(CREDENTIAL, value="secret-of-the-other", placeholder="sandfleet-credential-ff")
    async with bed_of(server) as (bed, port):
        key, public = new_authority()
        bed.sessions.allow("t", [f"a.test:{port}"], [other], key)
        for session, authority in (("s", bed.authority), ("t", public)):
            async with bed.client(session) as client:
                await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
                await client.writer.start_tls(ssl.create_default_context(cadata=authority), server_hostname="a.test")
                await client.ask(request(port, f"X-Key: {PLACEHOLDER}"))
        bed.sessions.end("t")
    _, mine, theirs = server.read.split(b"POST /x ")
    assert f"x-key: {SECRET}\r\n".encode() in mine
    # In the other session it is a word like any other.
    assert f"x-key: {PLACEHOLDER}\r\n".encode() in theirs
    assert SECRET.encode() not in theirs
