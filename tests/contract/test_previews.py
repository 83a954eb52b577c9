"""`sandfleet serve`: pages, WebSockets and attacks, by links to a real server in a real sandbox."""

import asyncio
import base64
import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sandfleet import AsyncSandbox, Fleet, Sandbox
from sandfleet._fleets.embedded import Options, Process
from sandfleet.errors import InvalidArgument, PreconditionFailed, ServiceNotReadyError
from sandfleet.resources import links
from sandfleet.values.services import http as answers_http
from support.client.http_door import serving

pytest.importorskip("uvicorn")
from sandfleet.doors.http import server

APP = Path(__file__).parents[1] / "support/preview_app.py"
MIB = 1 << 20


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # The record of this server alone.
        patch.setenv("SANDFLEET_STATE", str(tmp_path_factory.mktemp("state")))
        fleet = Process(Options(pool_size=1))
        patch.setenv("SANDFLEET_ADDRESS", fleet.address)
        yield fleet
        fleet.stop()


@pytest.fixture(scope="module")
def port(state):
    with serving() as (_, found, _key):
        yield found


@pytest.fixture(scope="module")
def sandbox(state, port):
    with Fleet.connect(state.address) as fleet, Sandbox.create(fleet=fleet) as made:
        made.files.write("app.py", APP.read_text())
        made.services.start("web", "python3 app.py", ready=answers_http(8000))
        made.services.wait_ready("web")
        yield made


@pytest.fixture(scope="module")
def place(sandbox):
    return links.Place(8000, sandbox.sandbox_id)


@pytest.fixture(scope="module")
def cookie(sandbox):
    return {"Cookie": f"sandfleet_link={token_in(sandbox.get_url(8000))}"}


def token_in(url):
    return urlsplit(url).query.partition("=")[2]


def key(port):
    record = json.loads(Path(os.environ["SANDFLEET_STATE"], "serve.json").read_text())
    assert record["port"] == port
    return bytes.fromhex(record["key"])


def ask(port, host, path="/", headers=None, method="GET", body=None, **more):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, {"Host": f"{host}:{port}", **(headers or {})}, **more)
    return connection.getresponse()


def raw(port, text):
    """The answer to these bytes; the connection ends with it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text.encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")


def seen(answer):
    """(the path, the headers in lower case) that the sandbox got."""
    assert answer.status == 200, answer.read()
    path, headers = json.loads(answer.read())
    return path, {name.lower(): value for name, value in headers}


def test_a_link_becomes_a_cookie_and_leaves_the_address(sandbox, port, place):
    url = urlsplit(sandbox.get_url(8000))
    assert (url.scheme, url.netloc) == ("http", f"8000-{sandbox.sandbox_id}.localhost:{port}")
    answer = ask(port, place.host, f"//evil.example/a%20b?x=1&{url.query}&y=2")
    assert answer.status == 303
    assert answer.headers["Location"] == f"http://{place.host}:{port}//evil.example/a%20b?x=1&y=2"
    assert (answer.headers["Referrer-Policy"], answer.headers["Cache-Control"]) == ("no-referrer", "no-store")
    pair, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert pair == f"sandfleet_link={token_in(url.geturl())}"
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} < set(attributes)
    assert not [one for one in attributes if one.startswith("Domain")]
    path, _ = seen(ask(port, place.host, "/page?x=1", {"Cookie": pair}))
    assert path == "/page?x=1"


async def test_the_async_call_makes_the_same_link(sandbox, port, state):
    async with AsyncSandbox.connect(sandbox.sandbox_id) as same:
        url = await same.get_url(8000, expires=60)
        assert ask(port, urlsplit(url).hostname, f"/?{urlsplit(url).query}").status == 303
        with pytest.raises(InvalidArgument, match="1 to 65535"):
            await same.get_url(0)


def test_the_sandbox_sees_who_asks_and_nothing_of_ours(sandbox, port, place, cookie):
    token = cookie["Cookie"].partition("=")[2]
    sent = {
        "Cookie": f"a=1; {cookie['Cookie']}; b=2", "Authorization": f"Bearer {token}", "X-Forwarded-For": "9.9.9.9",
        "Forwarded": "for=9.9.9.9", "X-Real-Ip": "9.9.9.9", "Connection": "keep-alive, X-Hop", "X-Hop": "1",
        "Te": "trailers", "X-Mine": "stays",
    }  # fmt: skip
    _, got = seen(ask(port, place.host, "/", sent))
    assert (got["cookie"], got["x-mine"], got["host"]) == ("a=1; b=2", "stays", f"{place.host}:{port}")
    assert (got["x-forwarded-for"], got["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert got["x-forwarded-host"] == f"{place.host}:{port}"
    assert got["connection"] == "close"
    assert not {"authorization", "forwarded", "x-real-ip", "x-hop", "te"} & got.keys()
    assert token not in str(got)
    # The application's own password passes.
    _, got = seen(ask(port, place.host, "/", {**cookie, "Authorization": "Bearer app"}))
    assert got["authorization"] == "Bearer app"
    # The control: past `serve`, the same headers do arrive.
    direct = int(sandbox.get_host(8000).partition(":")[2])
    _, got = seen(ask(direct, place.host, "/", sent))
    assert token in got["cookie"]
    assert token in got["authorization"]
    assert got["x-forwarded-for"] == "9.9.9.9"


def test_a_bearer_opens_as_the_cookie_does(port, place, cookie):
    token = cookie["Cookie"].partition("=")[2]
    seen(ask(port, place.host, "/", {"Authorization": f"Bearer {token}"}))
    other = links.signed(b"another", place, int(time.time()) + 60)
    assert ask(port, place.host, "/", {"Authorization": f"Bearer {other}"}).status == 403


def test_cookies_of_a_sandbox_stay_with_its_origin(sandbox, port, place, cookie):
    answer = ask(port, place.host, "/cookies", cookie)
    assert answer.headers.get_all("Set-Cookie") == ["a=1; Path=/", "b=2", "c=3; HttpOnly"]
    assert (answer.headers["X-Mine"], answer.headers["Keep-Alive"]) == ("1", None)
    # The control.
    direct = int(sandbox.get_host(8000).partition(":")[2])
    assert "a=1; Domain=localhost; Path=/" in ask(direct, place.host, "/cookies").headers.get_all("Set-Cookie")


def tampered(token):
    return token[:-2] + ("AA" if token[-2:] != "AA" else "BB")


ATTACKS = {
    "no cookie": (lambda key, place, good: "", "takes a link"),
    "a tampered link": (lambda key, place, good: tampered(good), "damaged"),
    "a link whose end was moved": (lambda key, place, good: f"9{good}", "damaged"),
    "a link without end": (lambda key, place, good: good.partition(".")[2], "damaged"),
    "an expired link": (lambda key, place, good: links.signed(key, place, int(time.time()) - 1), "has expired"),
    "a link of another port": (lambda key, place, good: of(key, 8001, place.sandbox_id), "another sandbox or port"),
    "a link of another sandbox": (lambda key, place, good: of(key, 8000, "0123456789ab"), "another sandbox or port"),
    "another server's link": (lambda key, place, good: of(b"x" * 32, 8000, place.sandbox_id), "earlier"),
}


def of(key, port, sandbox_id):
    return links.signed(key, links.Place(port, sandbox_id), int(time.time()) + 60)


@pytest.mark.parametrize("attack", ATTACKS)
def test_only_a_good_link_opens_a_port(port, place, cookie, attack):
    good = cookie["Cookie"].partition("=")[2]
    make, why = ATTACKS[attack]
    token = make(key(port), place, good)
    refused = ask(port, place.host, "/", {"Cookie": f"sandfleet_link={token}"} if token else {})
    assert refused.status == 403
    assert why in refused.read().decode()
    if token:
        by_link = ask(port, place.host, f"/?sandfleet-link={token}")
        assert (by_link.status, by_link.headers["Set-Cookie"]) == (403, None)
    # The control.
    again = links.signed(key(port), place, int(time.time()) + 60)
    assert ask(port, place.host, "/", {"Cookie": f"sandfleet_link={again}"}).status == 200


def test_a_cookie_opens_no_host_of_another_sandbox(port, place, cookie, state):
    with Sandbox.create() as other:
        there = links.Place(8000, other.sandbox_id).host
        assert ask(port, there, "/", cookie).status == 403
        for host in ("evil.example", "localhost", f"{place.host}.evil.example", f"99999-{place.sandbox_id}.localhost"):
            assert ask(port, host, "/", cookie).status == 404
        assert ask(port, place.host, "/", cookie).status == 200
        twice = f"GET / HTTP/1.1\r\nHost: {place.host}\r\nHost: {there}\r\nCookie: {cookie['Cookie']}\r\n\r\n"
        assert raw(port, twice).startswith("HTTP/1.1 400")
        absolute = (
            f"GET http://{there}/ HTTP/1.1\r\nHost: {place.host}\r\nCookie: {cookie['Cookie']}\r\nConnection: close"
        )
        assert raw(port, absolute + "\r\n\r\n").startswith("HTTP/1.1 400")


def smuggled(host, cookie):
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie['Cookie']}\r\nConnection: close\r\n"
    return head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


def test_two_lengths_of_a_body_are_refused(sandbox, port, place, cookie):
    answer = raw(port, smuggled(place.host, cookie))
    assert answer.startswith("HTTP/1.1 400")
    assert "both Content-Length and Transfer-Encoding" in answer
    differing = smuggled(place.host, cookie).replace("Transfer-Encoding: chunked", "Content-Length: 6")
    assert raw(port, differing).startswith("HTTP/1.1 400")
    # The control: the server in the sandbox takes it.
    direct = int(sandbox.get_host(8000).partition(":")[2])
    assert raw(direct, smuggled(place.host, cookie)).startswith("HTTP/1.1 200")


def test_a_body_is_streamed_up_whole_with_and_without_its_length(port, place, cookie):
    piece = hashlib.sha256(b"seed").digest() * 2048
    whole = [256 * len(piece), hashlib.sha256(piece * 256).hexdigest()]
    for sent, chunked in ((piece * 256, False), ((piece for _ in range(256)), True)):
        answer = ask(port, place.host, "/", cookie, "POST", sent, encode_chunked=chunked)
        assert json.loads(answer.read()) == whole


def test_an_answer_is_streamed_as_it_comes(port, place, cookie):
    answer = ask(port, place.host, "/stream", cookie)
    assert answer.readline() == b"first\n"
    # The sandbox says the rest when it is told that the beginning has arrived.
    assert ask(port, place.host, "/go", cookie).status == 200
    assert answer.read() == b"last\n"


def test_an_answer_that_breaks_off_is_no_whole_one(port, place, cookie):
    answer = ask(port, place.host, "/cut", cookie)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_heads_are_bounded_both_ways(port, place, cookie):
    answer = ask(port, place.host, "/huge-head", cookie)
    assert answer.status == 502
    assert "cannot read the answer of port 8000" in answer.read().decode()
    many = "".join(f"X-{n}: {'x' * 4000}\r\n" for n in range(40))
    text = f"GET / HTTP/1.1\r\nHost: {place.host}\r\n{many}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text.encode())
        assert connection.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 431")


def handshake(host, cookie, *lines):
    nonce = base64.b64encode(b"0123456789abcdef").decode()
    fields = [
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in cookie.items()),
        "Connection: keep-alive, Upgrade",
    ]
    fields += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {nonce}", *lines]
    return "GET /ws HTTP/1.1\r\n" + "\r\n".join(fields) + "\r\n\r\n"


def test_a_websocket_passes_both_ways(port, place, cookie):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(handshake(place.host, cookie, f"Origin: http://{place.host}").encode())
        file = connection.makefile("rb")
        assert file.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        head = b"".join(iter(file.readline, b"\r\n")).lower()
        assert head.count(b"upgrade: websocket") == 1
        accept = base64.b64encode(
            hashlib.sha1(b"MDEyMzQ1Njc4OWFiY2RlZg==" + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        )
        assert accept.lower() in head
        for word in (b"one", b"two", b"x" * 125):
            connection.sendall(bytes([0x81, 0x80 | len(word)]) + b"\0\0\0\0" + word)
            assert file.read(2 + len(word)) == bytes([0x81, len(word)]) + word


@pytest.mark.parametrize(
    ("headers", "lines", "status"),
    [
        ({}, [], 403),
        (None, ["Origin: http://8000-other.localhost"], 403),
        (None, ["Content-Length: 10"], 400),
        (None, ["Transfer-Encoding: chunked"], 400),
    ],
)
def test_a_websocket_is_refused_as_pages_are(port, place, cookie, headers, lines, status):
    answer = raw(port, handshake(place.host, cookie if headers is None else headers, *lines))
    assert answer.startswith(f"HTTP/1.1 {status}")


def test_bytes_after_a_refused_upgrade_are_no_requests(port, place, cookie):
    """The page of this path answers 200: what follows must not reach the sandbox unchecked."""
    text = handshake(place.host, cookie).replace("/ws", "/page") + f"GET /go HTTP/1.1\r\nHost: {place.host}\r\n\r\n"
    answer = raw(port, text)
    assert answer.startswith("HTTP/1.1 502")
    assert answer.count("HTTP/1.1") == 1


def test_a_port_without_a_listener_says_so_with_the_log(port, sandbox, state):
    with Sandbox.create() as other:
        command = "echo cannot find the module shop; exit 3"
        other.services.start("shop", command, ready=answers_http(8000), restart="never")
        with pytest.raises(ServiceNotReadyError):
            other.services.wait_ready("shop")
        url = urlsplit(other.get_url(8000))
        headers = {"Cookie": f"sandfleet_link={token_in(url.geturl())}"}
        answer = ask(port, url.hostname, "/", headers)
        assert answer.status == 502
        text = answer.read().decode()
        assert "No program listens on port 8000" in text
        assert "cannot find the module shop" in text
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    answer = ask(port, url.hostname, "/", headers)
    assert answer.status == 404
    assert "There is no such sandbox" in answer.read().decode()


def test_health_is_told_on_the_server_s_own_address(port, place, cookie):
    assert ask(port, "127.0.0.1", "/healthz").read() == b"ok\n"
    assert ask(port, "localhost", "/readyz").read() == b"ready\n"
    path, got = seen(ask(port, place.host, "/healthz", cookie))
    assert path == "/healthz"
    assert got["x-request-id"] != ask(port, place.host, "/", cookie).headers["X-Request-Id"]


def test_requests_end_after_sigterm_and_links_with_their_server(sandbox, place, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    with pytest.raises(PreconditionFailed, match="sandfleet serve"):
        sandbox.get_url(8000)
    with serving() as (process, port, _key):
        second = subprocess.run(
            [sys.executable, "-m", "sandfleet", "serve", "--port", "0"], capture_output=True, text=True, check=False
        )
        assert second.returncode == 3
        assert "another `sandfleet serve`" in second.stderr
        cookie = {"Cookie": f"sandfleet_link={token_in(sandbox.get_url(8000))}"}
        answer = ask(port, place.host, "/stream", cookie)
        assert answer.readline() == b"first\n"
        process.send_signal(signal.SIGTERM)
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                break
        direct = int(sandbox.get_host(8000).partition(":")[2])
        assert ask(direct, place.host, "/go").status == 200
        assert answer.read() == b"last\n"
        assert process.wait(60) == 0
    with pytest.raises(PreconditionFailed, match="sandfleet serve"):
        sandbox.get_url(8000)


async def test_a_head_that_comes_too_slowly_is_cut_and_a_body_is_not(monkeypatch, state):
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.3)
    key = "k" * 32
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.ensure_future(server.serve(listener, b"", key, frozenset(), None))
        name = listener.getsockname()
        silent, _ = await asyncio.open_connection(*name)
        body, to_body = await asyncio.open_connection(*name)
        call = (
            f"POST /sandfleet_api.fleet.v1.FleetService/List HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}"
        )
        to_body.write(f"{call}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n".encode())
        head, to_head = await asyncio.open_connection(*name)
        trickle = asyncio.ensure_future(trickled(to_head))
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await head.read() == b""
            assert await silent.read() == b""
            to_body.write(b"{}")
            assert (await body.readline()).startswith(b"HTTP/1.1 200")
            # The same connection, with a head that does not end.
            to_body.write(b"GET / HTTP/1.1\r\n")
            await body.read()
        trickle.cancel()
        serving.cancel()
        await asyncio.gather(trickle, serving, return_exceptions=True)


async def trickled(writer):
    writer.write(b"GET / HTTP/1.1\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)
