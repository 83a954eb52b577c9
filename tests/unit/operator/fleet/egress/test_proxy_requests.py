"""Methods and paths of a host: each request is read and checked, over TLS and without. Controls have no check."""

import contextlib
import ssl
import tempfile

import pytest
from sandfleet_operator.plan.egress import requests
from support.operator.egress_bed import Bed, Server, certificate, serving

pytestmark = pytest.mark.process


@contextlib.asynccontextmanager
async def bed_of(server, rule="GET {}/v1/*", *more):
    """A bed with this entry about a server that speaks TLS, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        tls, trusting, _ = certificate(folder, "a.test")
        async with serving(server, tls) as port:
            bed = Bed([rule.format(f"a.test:{port}"), *more], tls=trusting)
            async with bed.listening():
                yield bed, port


async def tunnel(bed, port, client):
    await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
    await client.writer.start_tls(ssl.create_default_context(cadata=bed.authority), server_hostname="a.test")


def request(target, port, *more, method="GET"):
    lines = (f"{method} {target} HTTP/1.1", f"Host: a.test:{port}", *more)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


async def test_requests_that_the_list_names_go_through_and_others_are_told_why():
    server = Server()
    async with bed_of(server) as (bed, port):
        async with bed.client() as client:
            await tunnel(bed, port, client)
            for target in ("/v1/models?x=/../y", "/%761/", "/v1/a%20b"):
                assert b"hello" in await client.ask(request(target, port))
            assert server.read.count(b"GET ") == 3
            said = await client.ask(request("/v2/keys?secret", port))
            why = f"this session may not reach a.test:{port}: its egress list does not allow this request: GET /v2/keys"
            assert said.startswith(b"HTTP/1.1 403 " + why.encode() + b"\r\n")
        for method in ("POST", "get"):
            async with bed.client() as client:
                await tunnel(bed, port, client)
                assert b" 403 " in await client.ask(request("/v1/models", port, "Content-Length: 0", method=method))
        assert bed.refused() == {"RequestNotListed": 3}
    assert b"/v2" not in server.read
    assert b"POST" not in server.read


ATTACKS = {
    "dots": request("/v1/../keys", 0),
    "escaped dots": request("/v1/%2e%2e/keys", 0),
    "escaped slash": request("/v1/..%2fkeys", 0),
    "twice escaped": request("/v1/%252e%252e/keys", 0),
    "parameters": request("/v1/..;/keys", 0),
    "slashes": request("//keys/v1/", 0),
    "backslash": request("/v1/..\\keys", 0),
    "method in a header": request("/v1/keys", 0, "X-HTTP-Method-Override: DELETE"),
    "path in a header": request("/v1/x", 0, "X-Original-URL: /keys"),
    "another path": request("/keys", 0),
    "another method": request("/v1/keys", 0, "Content-Length: 0", method="DELETE"),
    "second of two at once": request("/v1/x", 0) + request("/keys", 0),
    "behind a body": request("/v1/x", 0, "Content-Length: 3") + b"abc" + request("/keys", 0),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("way", ["TLS", "tunnel", "absolute form"])
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_request_that_the_list_does_not_name_never_arrives(attack, way, defended, monkeypatch):
    if not defended:
        monkeypatch.setattr(requests, "check", lambda *_: None)
    server = Server()
    async with contextlib.AsyncExitStack() as stack:
        if way == "TLS":
            bed, port = await stack.enter_async_context(bed_of(server))
        else:
            port = await stack.enter_async_context(serving(server))
            bed = await stack.enter_async_context(Bed([f"GET a.test:{port}/v1/*"]).listening())
        client = await stack.enter_async_context(bed.client())
        sent = ATTACKS[attack].replace(b"Host: a.test:0", b"Host: a.test:%d" % port)
        if way == "TLS":
            await tunnel(bed, port, client)
        elif way == "tunnel":
            await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        else:
            for method in (b"GET", b"DELETE"):
                sent = sent.replace(method + b" /", method + b" http://a.test:%d/" % port)
        client.writer.write(sent.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n")
        said = await client.rest()
    assert (b" 403 " in said) is defended
    assert (b"keys" in server.read) is not defended


async def test_a_list_that_comes_to_name_requests_cuts_what_goes_through_unread():
    server = Server()
    async with bed_of(server, "{}", "GET c.test") as (bed, port), bed.client() as client:
        await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        await client.writer.start_tls(trusting, server_hostname="a.test")
        assert b"hello" in await client.ask(request("/keys", port))
        bed.sessions.allow("s", [f"a.test:{port}", "b.test"])
        assert b"hello" in await client.ask(request("/keys", port))
        bed.sessions.allow("s", [f"GET a.test:{port}"])
        assert await client.rest() == b""


async def test_a_session_without_an_authority_is_refused_hosts_whose_requests_are_read():
    server = Server()
    async with bed_of(server, "{}") as (bed, port), bed.client() as client:
        bed.sessions.allow("s", [f"GET a.test:{port}"])
        await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        with pytest.raises(OSError):
            await client.writer.start_tls(ssl.create_default_context(), server_hostname="a.test")
        assert bed.refused() == {"RequestNotListed": 1}


async def test_another_protocol_does_not_leave_what_is_read():
    server = Server()
    async with bed_of(server) as (bed, port), bed.client() as client:
        await tunnel(bed, port, client)
        assert b" 403 " in await client.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert server.read == b""
