"""Connections to hosts whose requests are read: which requests share one, and WebSocket. Controls lack the defence."""

import base64
import contextlib
import hashlib
import ssl
import tempfile
from dataclasses import replace
from types import SimpleNamespace

import h11
import pytest
from sandfleet_operator.api.egress import Credential
from sandfleet_operator.fleet.egress import upstream
from sandfleet_operator.plan.egress import websocket
from support.operator.egress_bed import Bed, certificate, serving

pytestmark = pytest.mark.process

SECRET = "secret-of-the-test"
CREDENTIAL = Credential("a.test", "Authorization", "Bearer {key}", SECRET)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Host:
    """Reads requests one after the other, and answers each with `answer`.

    `reads_bodies`: whether it reads the body of a request; one that does not takes it for the next request.
    `then`: what it does behind each answer: "wait", "close", or "say" more than was asked for.
    """

    def __init__(self, answer=OK, *, reads_bodies=True, then="wait"):
        self.answer, self.reads_bodies, self.then = answer, reads_bodies, then
        self.connections, self.requests = 0, []

    async def connected(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ")[1]
                sizes = [int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")]
                # A POST to /paste has a body in any case.
                body = await reader.readexactly(sum(sizes)) if self.reads_bodies or path == "/paste" else b""
                self.requests.append((path, head, body.decode()))
                writer.write(self.answer)
                if self.then == "say":
                    writer.write(self.answer)
                if self.then == "close" or "connection: close" in head.lower():
                    break
        writer.close()


@contextlib.asynccontextmanager
async def bed_of(host, rule="{}", credentials=(CREDENTIAL,), **bounds):
    """A program's connection to the host, where TLS is ended, its port, and the bed."""
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        tls, trusting, _ = certificate(folder, "a.test")
        port = await stack.enter_async_context(serving(host, tls))
        bed = Bed([rule.format(f"a.test:{port}")], credentials=credentials, tls=trusting, **bounds)
        await stack.enter_async_context(bed.listening())
        client = await stack.enter_async_context(bed.client())
        await client.ask(f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        await client.writer.start_tls(ssl.create_default_context(cadata=bed.authority), server_hostname="a.test")
        yield client, port, bed


def request(port, path="/", *more, method="GET", body=""):
    lines = (f"{method} {path} HTTP/1.1", f"Host: a.test:{port}", *more)
    lines += (f"Content-Length: {len(body)}",) if body else ()
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body.encode()


async def test_requests_of_one_program_share_a_connection_to_a_host_with_a_key():
    host = Host()
    async with bed_of(host) as (client, port, bed):
        for method, body in (("GET", ""), ("POST", "about http: as a word"), ("GET", "")):
            assert b"ok" in await client.ask(request(port, method=method, body=body))
        [row] = bed.sessions.reports()["s"]
        assert (row["connections"], row["open"]) == (1, 1)
    assert host.connections == 1
    assert [SECRET in head for _, head, _ in host.requests] == [True] * 3


@pytest.mark.parametrize("then", ["close", "say"])
async def test_a_connection_that_was_closed_or_has_said_too_much_is_not_used_again(then):
    host = Host(then=then)
    async with bed_of(host) as (client, port, bed):
        for number in range(3):
            assert (await client.ask(request(port, f"/{number}"))).count(b"ok") == 1
        [row] = bed.sessions.reports()["s"]
        assert row["connections"] == 3
    assert host.connections == 3


async def test_a_connection_that_is_closed_as_a_request_goes_out_ends_the_programs_as_well():
    class Leaving(Host):
        async def connected(self, reader, writer):
            writer.write(OK if await reader.readuntil(b"\r\n\r\n") else b"")
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

    async with bed_of(Leaving()) as (client, port, bed):
        assert b"ok" in await client.ask(request(port))
        client.writer.write(request(port))
        # As without a proxy: programs ask once more on a new connection, and a 502 would tell them not to.
        assert await client.rest() == b""
        assert bed.refused() == {}


async def test_another_secret_counts_for_the_next_request_and_none_refuses_it():
    host = Host()
    async with bed_of(host) as (client, port, bed):
        await client.ask(request(port))
        bed.sessions.allow("s", [f"a.test:{port}"], [replace(CREDENTIAL, value="another-secret")])
        await client.ask(request(port))
        bed.sessions.find("s").without_secret = frozenset(["a.test"])
        assert b"the secret for it cannot be read" in await client.ask(request(port))
    assert [SECRET in head for _, head, _ in host.requests] == [True, False]
    assert "another-secret" in host.requests[1][1]


HIDDEN = "POST /paste HTTP/1.1\r\nHost: a.test\r\nContent-Length: 80\r\n\r\n"


@pytest.mark.attack("has a host take the next request, with its key, for a text of its own", "no request follows there")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_key_does_not_get_into_a_request_that_hides_in_a_body(defended, monkeypatch):
    if not defended:
        monkeypatch.setattr(upstream, "VERSION", b"no word of a request")
    host = Host(reads_bodies=False)
    async with bed_of(host) as (client, port, _):
        await client.ask(request(port, method="POST", body=HIDDEN))
        await client.ask(request(port))
    pasted = "".join(body for path, _, body in host.requests if path == "/paste")
    assert (SECRET in pasted) is not defended


@pytest.mark.parametrize(
    ("pieces", "hides"), [([b"GET / HT", b"t", b"p/1.1"], True), ([b"GET / HTTP", b" 1.1"], False)]
)
async def test_a_hidden_request_is_seen_in_pieces(pieces, hides):
    class Silent:
        async def write(self, _data):
            pass

    one = upstream.Upstream(SimpleNamespace(outer=Silent(), sent=lambda _: None))
    head = h11.Request(method="POST", target="/", headers=[("Host", "a.test"), ("Transfer-Encoding", "chunked")])
    await one.send(head, *[h11.Data(data=piece) for piece in pieces])
    assert one.hides_request is hides


@pytest.mark.attack("hides a request that the list does not name in a body", "the host has closed before it is read")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_request_that_hides_in_a_body_does_not_get_around_the_list(defended):
    host = Host(reads_bodies=False)
    async with bed_of(host, "{}/v1/*" if defended else "{}", () if defended else (CREDENTIAL,)) as (client, port, _):
        await client.ask(request(port, "/v1/x", method="POST", body="GET /keys HTTP/1.1\r\nHost: a.test\r\n\r\n"))
    assert ("/keys" in [path for path, *_ in host.requests]) is not defended


# WebSocket

KEY = base64.b64encode(bytes(16)).decode()
ACCEPTED = base64.b64encode(hashlib.sha1(KEY.encode() + websocket.GUID).digest()).decode()
UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}")
ASKED = (*UPGRADE, "Sec-WebSocket-Version: 13")


def switching(*more):
    lines = ("HTTP/1.1 101 Switching Protocols", *more)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


SWITCHED = switching("Upgrade: WebSocket", "Connection: upgrade", f"Sec-WebSocket-Accept: {ACCEPTED}", f"X: {SECRET}")


def frame(text, *, masked=True):
    """A short message; its mask changes nothing."""
    size = bytes([len(text) | (0x80 if masked else 0)])
    return b"\x81" + size + (bytes(4) if masked else b"") + text.encode()


class Echo(Host):
    """Answers one request with `answer`, and each frame with the same one."""

    async def connected(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(("/", head.decode(), ""))
            writer.write(self.answer)
            while data := await reader.read(65536):
                self.requests.append(("", "", data.decode("latin-1")))
                writer.write(frame(data[6:].decode("latin-1"), masked=False))
        writer.close()


@pytest.mark.parametrize(("rule", "credentials"), [("{}", (CREDENTIAL,)), ("GET {}/live", ())])
async def test_frames_go_both_ways_once_the_host_has_switched(rule, credentials):
    host = Echo(SWITCHED)
    async with bed_of(host, rule, credentials) as (client, port, bed):
        answer = await client.ask(request(port, "/live", *ASKED, "Sec-WebSocket-Extensions: permessage-deflate"))
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert f"sec-websocket-accept: {ACCEPTED}\r\n".encode() in answer
        assert (b"x: " + b"*" * len(SECRET) in answer) is bool(credentials)
        # The last letters may be the beginning of the secret: they do not wait for the next frame.
        for text in ("hello s", "more"):
            assert await client.ask(frame(text)) == frame(text, masked=False)
        covered = "*" * len(SECRET) if credentials else SECRET
        assert await client.ask(frame(f"Bearer {SECRET}")) == frame(f"Bearer {covered}", masked=False)
        bed.sessions.allow("s", ["b.test"])
        assert await client.rest() == b""
    head = host.requests[0][1].lower()
    assert f"sec-websocket-key: {KEY}\r\n".lower() in head
    assert "extensions" not in head
    assert (SECRET in head) is bool(credentials)


async def test_a_silent_websocket_ends_after_the_bound_of_any_connection():
    async with bed_of(Echo(SWITCHED), idle=0.2) as (client, port, _):
        await client.ask(request(port, "/", *ASKED))
        assert await client.rest() == b""


OTHERS = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "two protocols": (*ASKED, "Upgrade: h2c"),
    "two at once": ("Connection: Upgrade", "Upgrade: websocket, h2c", *ASKED[2:]),
    "another one": (*UPGRADE[:1], "Upgrade: tls/1.0", *ASKED[2:]),
    "no key": (*ASKED[:2], ASKED[3]),
    "a short key": (*ASKED[:2], "Sec-WebSocket-Key: AAAA", ASKED[3]),
    "two keys": (*ASKED, f"Sec-WebSocket-Key: {KEY}"),
    "another version": (*UPGRADE, "Sec-WebSocket-Version: 1337"),
    "not of this hop": (*ASKED[1:], "Connection: keep-alive"),
    "a body": (*ASKED, "Content-Length: 0"),
}


@pytest.mark.attack("asks a host to speak another protocol than WebSocket", "the host hears of no upgrade")
@pytest.mark.parametrize("asked", [*OTHERS, "POST", "control"])
async def test_no_other_upgrade_reaches_a_host(asked):
    host = Host()
    async with bed_of(host) as (client, port, _):
        method = "POST" if asked == "POST" else "GET"
        await client.ask(request(port, "/", *OTHERS.get(asked, ASKED), method=method))
    assert ("upgrade:" in host.requests[0][1].lower()) is (asked == "control")


ANSWERS = {
    "not asked for": (SWITCHED, ()),
    "of another key": (SWITCHED.replace(ACCEPTED.encode(), b"AAAA"), ASKED),
    "without a protocol": (switching("Connection: upgrade", f"Sec-WebSocket-Accept: {ACCEPTED}"), ASKED),
    "to another protocol": (SWITCHED.replace(b"WebSocket\r", b"h2c\r"), ASKED),
    "control": (SWITCHED, ASKED),
}


@pytest.mark.attack("a host switches protocols without a valid answer", "refused, nothing is carried")
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_host_that_switches_without_a_valid_answer_is_refused(answer):
    said, asked = ANSWERS[answer]
    host = Echo(said)
    async with bed_of(host) as (client, port, _):
        client.writer.write(request(port, "/", *asked) + frame("hidden"))
        got = await client.ask(b"")
    is_control = answer == "control"
    assert (b" 101 " in got) is is_control
    assert (b" 502 " in got) is not is_control


@pytest.mark.attack("sends a request behind an upgrade that a host refuses", "checked as any request")
@pytest.mark.parametrize("path", ["/keys", "/v1/keys"], ids=["attack", "control"])
async def test_a_request_behind_a_refused_upgrade_is_checked(path):
    host = Host()
    async with bed_of(host, "{}/v1/*", ()) as (client, port, _):
        client.writer.write(request(port, "/v1/live", *ASKED) + request(port, path, "Connection: close"))
        answer = await client.rest()
    assert (b" 403 " in answer) is (path == "/keys")
    assert ([path for path, *_ in host.requests] == ["/v1/live", path]) is (path == "/v1/keys")


@pytest.mark.attack("sends requests of HTTP where frames of WebSocket are to come", "the connection ends")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_only_frames_follow_an_upgrade(defended, monkeypatch):
    if not defended:
        monkeypatch.setattr(websocket.Frames, "follow", lambda *_: None)
    host = Echo(SWITCHED)
    async with bed_of(host, "{}/v1/*", ()) as (client, port, bed):
        await client.ask(request(port, "/v1/live", *ASKED))
        client.writer.write(request(port, "/keys"))
        await (client.rest() if defended else client.ask(b""))
        assert bed.refused() == ({"Malformed": 1} if defended else {})
    assert ("/keys" in "".join(body for *_, body in host.requests)) is not defended
