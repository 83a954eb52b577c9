"""What hostile code and hostile hosts try at the proxy. Controls show that it works without the defence."""

import asyncio
import contextlib
import socket
import struct
import threading

import pytest
from sandfleet_operator.fleet.egress import http, outside, sessions, tunnel
from sandfleet_operator.fleet.egress.outside import Outside, Ways, looked_up
from sandfleet_operator.fleet.egress.peer import carry
from sandfleet_operator.plan.egress import addresses
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why
from support.operator.egress_bed import LOOPBACK, Bed, Server, client_hello, serving

pytestmark = pytest.mark.process

ECH = b"\xfe\x0d\x00\x01\x00"


def connect(host, port):
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def carried(inner, connection, _http, _https):
    """A tunnel that looks at nothing."""
    await carry(inner, connection.outer, connection.sent)
    while await connection.outer.read():
        pass


def request(target, host, *more, body=""):
    head = "".join(f"{line}\r\n" for line in (f"POST {target} HTTP/1.1", f"Host: {host}", *more))
    return f"{head}\r\n{body}".encode()


@pytest.mark.attack("reaches the machine by a name that leads to it", "refused after the look-up")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_name_that_leads_to_the_machine_is_refused_after_it_was_looked_up(defended):
    server = Server()
    async with serving(server) as port:
        ways = Ways() if defended else Ways(allowed=LOOPBACK)
        async with Bed([f"a.test:{port}"], ways=ways).listening() as bed, bed.client() as client:
            answer = await client.ask(connect("a.test", port))
            assert (b"leads to an address that is not public" in answer) is defended
    assert server.connections == (0 if defended else 1)


@pytest.mark.attack("changes the address of a name after the check", "the checked address is connected to")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_name_that_changes_after_the_check_is_connected_to_as_it_was_checked(defended, monkeypatch):
    """The name server says a good address first and the machine's own from then on."""
    inside, answers = Server(), iter([["127.0.0.2"]])
    async with serving(inside) as port:
        bed = Bed([f"a.test:{port}"], {"a.test": lambda: next(answers, ["127.0.0.1"])})
        # 127.0.0.2 stands for a public address, on which no server listens.
        monkeypatch.setattr(addresses, "refusal", lambda address, *_: "" if address == "127.0.0.2" else "private")
        if not defended:
            connected = type(bed.outside)._connected

            async def looked_up_again(place, _found):
                return await connected(place, await bed._lookup(place.host, place.port))

            monkeypatch.setattr(bed.outside, "_connected", looked_up_again)
        async with bed.listening(), bed.client() as client:
            await client.ask(connect("a.test", port))
    assert inside.connections == (0 if defended else 1)
    assert len(bed.lookups) == (1 if defended else 2)


@pytest.mark.attack("asks for another host by TLS, for none, or hides which", "the connection ends")
@pytest.mark.parametrize("hello", [client_hello("evil.test"), client_hello(None), client_hello("a.test", extra=ECH)])
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_tls_for_another_host_does_not_go_through(hello, defended, monkeypatch):
    server = Server()
    if not defended:
        monkeypatch.setattr(tunnel, "_check", lambda *_: None)
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(connect("a.test", port))
        client.writer.write(hello)
        client.writer.write_eof()
        assert await client.rest() == b""
    assert (server.read == b"") is defended


@pytest.mark.attack("asks the proxy for an address in any form", "refused", control="in it")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost.",
        "0",
    ],
)
async def test_addresses_in_every_form_are_no_names(host):
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}", f"*.a.test:{port}"]).listening() as bed:
        async with bed.client() as client:
            assert b" 403 " in await client.ask(connect(host, port))
        async with bed.client() as client:
            target = f"http://{host}:{port}/"
            assert b" 403 " in await client.ask(request(target, f"{host}:{port}", "Content-Length: 0"))
        assert bed.lookups == []
        assert server.connections == 0
        # The server is there: by its name it answers.
        async with bed.client() as client:
            assert b" 200 " in await client.ask(connect("a.test", port))


@pytest.mark.attack("asks for an address by SOCKS", "refused", control="in it")
@pytest.mark.parametrize("kind", [b"\x01" + bytes([127, 0, 0, 1]), b"\x04" + bytes(15) + b"\x01"])
async def test_socks_with_an_address_is_refused(kind):
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(b"\x05\x01\x00")
        assert (await client.ask(b"\x05\x01\x00" + kind + struct.pack("!H", port)))[:2] == b"\x05\x02"
        assert bed.refused() == {"NotAName": 1}
        assert server.connections == 0
        async with bed.client() as other:
            await other.ask(b"\x05\x01\x00")
            named = b"\x05\x01\x00\x03\x06a.test" + struct.pack("!H", port)
            assert (await other.ask(named))[:2] == b"\x05\x00"


@pytest.mark.attack("names another host in the Host header", "refused")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_host_header_of_another_host_is_refused(defended, monkeypatch):
    server = Server()
    if not defended:

        def trusting(_front, event):
            return http.authority(event.target.decode().split("/")[2], 80), "/"

        monkeypatch.setattr(http.Front, "_target", trusting)
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(request(f"http://a.test:{port}/", "evil.test", "Content-Length: 0"))
    assert (b"evil.test" in server.read) is not defended


SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n"


@pytest.mark.attack(
    "sends a request that can be read in two ways", "refused, the server reads nothing", control="in it"
)
@pytest.mark.parametrize(
    ("more", "body"),
    [
        (("Content-Length: 6", "Transfer-Encoding: chunked"), f"0\r\n\r\n{SMUGGLED}"),
        (("Transfer-Encoding: chunked", f"Content-Length: {len(SMUGGLED)}"), f"0\r\n\r\n{SMUGGLED}"),
        (("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}"), SMUGGLED),
        (("Transfer-Encoding: xchunked",), f"0\r\n\r\n{SMUGGLED}"),
        (("Transfer-Encoding : chunked",), f"0\r\n\r\n{SMUGGLED}"),
        (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), f"0\r\n\r\n{SMUGGLED}"),
        (("Host: evil.test", "Content-Length: 0"), ""),
        (("X: a\rb", "Content-Length: 0"), ""),
        (("X: a\0b", "Content-Length: 0"), ""),
        (("Content-Length: +0",), SMUGGLED),
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_goes_nowhere(more, body):
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        answer = await client.ask(request(f"http://a.test:{port}/", f"a.test:{port}", *more, body=body))
        assert b" 400 " in answer
        assert server.read == b""
        # Without what makes it two, it arrives.
        async with bed.client() as other:
            plain = request(f"http://a.test:{port}/", f"a.test:{port}", "Content-Length: 0")
            assert b"hello" in await other.ask(plain)


@pytest.mark.attack("folds a header and upgrades to h2c", "written anew without either", control="in it")
async def test_a_folded_header_and_an_upgrade_reach_no_server():
    server = Server()
    more = ("X: a", " Transfer-Encoding: chunked", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    more += ("Connection: Upgrade, HTTP2-Settings, X-Hop", "X-Hop: 1", "Content-Length: 0")
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        assert b"hello" in await client.ask(request(f"http://a.test:{port}/", f"a.test:{port}", *more))
    lines = server.read.lower().split(b"\r\n")
    assert not [line for line in lines if line.startswith((b"upgrade", b"http2", b"x-hop", b"transfer-encoding", b" "))]
    assert b"x: a transfer-encoding: chunked" in lines


@pytest.mark.attack("sends a second request behind the first", "checked as the first was", control="in it")
async def test_what_follows_a_request_in_one_write_is_a_request_of_its_own():
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        first = request(f"http://a.test:{port}/", f"a.test:{port}", "Content-Length: 0")
        client.writer.write(first + SMUGGLED.encode())
        client.writer.write_eof()
        answer = await client.rest()
        assert b" 400 " in answer or b" 403 " in answer
    assert b"smuggled" not in server.read


@pytest.mark.attack("speaks another protocol in a tunnel", "the connection ends")
@pytest.mark.parametrize(
    "first", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01", b"EHLO\r\n"]
)
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_other_protocols_do_not_go_through_a_tunnel(first, defended, monkeypatch):
    server = Server()
    if not defended:
        monkeypatch.setattr(tunnel, "run", carried)
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(connect("a.test", port))
        client.writer.write(first)
        client.writer.write_eof()
        await client.rest()
    assert (server.read == b"") is defended


@pytest.mark.attack("a server sends a second answer behind the first", "dropped", control="in it")
async def test_an_answer_that_is_split_by_a_hostile_server_stays_one():
    server = Server(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: a\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    )
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed, bed.client() as client:
        await client.ask(request(f"http://a.test:{port}/", f"a.test:{port}", "Content-Length: 0"))
        client.writer.write_eof()
        assert b"evil" not in await client.rest()


@pytest.mark.attack("tells name servers secrets in names below a wildcard", "a bounded number of names")
@pytest.mark.parametrize("bound", [3, 1000], ids=["attack", "control"])
async def test_names_that_are_made_up_below_a_wildcard_are_bounded(bound):
    async with Bed(["*.a.test"], wildcard_names=bound).listening() as bed:
        for number in range(6):
            async with bed.client() as client:
                await client.ask(connect(f"secret{number}.a.test", 443))
    assert len(bed.lookups) == min(bound, 6)


@pytest.mark.attack("opens more connections than its bound", "refused")
@pytest.mark.parametrize("bound", [2, 100], ids=["attack", "control"])
async def test_connections_of_one_session_are_bounded(bound):
    server = Server(answer=None)
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(server))
        bed = await stack.enter_async_context(Bed([f"a.test:{port}"], per_session=bound).listening())
        clients = [await stack.enter_async_context(bed.client()) for _ in range(3)]
        for client in clients:
            client.writer.write(connect("a.test", port))
        answers = [await client.reader.read(100) for client in clients]
    assert sum(b" 200 " in answer for answer in answers) == min(bound, 3)


async def drip(writer, data):
    """A byte now and then, as long as the other end lets it."""
    with contextlib.suppress(OSError):
        while not writer.is_closing():
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0.02)


async def has_ended(client, data=b""):
    """Whether the proxy ends the connection of a client that goes on in this way."""
    dripping = asyncio.ensure_future(drip(client.writer, data))
    try:
        return await asyncio.wait_for(client.reader.read(), 1.0) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        dripping.cancel()


@pytest.mark.attack(
    "opens connections and says nothing, or a byte of a request now and then", "they end", control="they stay"
)
@pytest.mark.parametrize("seconds", [0.1, 900.0], ids=["attack", "control"])
async def test_a_client_that_says_nothing_or_little_is_let_go(seconds):
    """A request that never ends is not kept alive by its bytes: the bound is for all of it."""
    server, defended = Server(answer=None), seconds < 1.0
    async with serving(server) as port, Bed([f"a.test:{port}"], opening=seconds, idle=seconds).listening() as bed:
        async with bed.client() as silent:
            assert await has_ended(silent) is defended
        async with bed.client() as slow:
            slow.writer.write(f"GET http://a.test:{port}/ HTTP/1.1\r\nX-Slow: ".encode())
            assert await has_ended(slow, b"x") is defended
        async with bed.client() as tunnelled:
            await tunnelled.ask(connect("a.test", port))
            # The beginning of a ClientHello of 16 KiB.
            tunnelled.writer.write(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc")
            assert await has_ended(tunnelled, b"\x03") is defended
    assert server.read == b""


@pytest.mark.attack("opens ten times more connections than there are", "others are served", control="they are not")
@pytest.mark.parametrize("bound", [16, 10_000], ids=["attack", "control"])
async def test_a_session_that_opens_connections_without_end_leaves_room_for_others(bound):
    """In proportion: all may have 100, of which one session may have 16. By default 2,000 and 128."""
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(Server()))
        bed = Bed([f"a.test:{port}"], connections=100, per_session=bound)
        await stack.enter_async_context(bed.listening())
        bed.sessions.allow("other", [f"a.test:{port}"])
        clients = []
        for _ in range(1000):
            clients.append(await stack.enter_async_context(bed.client()))
            # The proxy accepts each in its turn.
            await asyncio.sleep(0)
        while bed.accepted < len(clients):
            await asyncio.sleep(0)
        async with bed.client("other") as other:
            other.writer.write(request(f"http://a.test:{port}/", f"a.test:{port}", "Content-Length: 0"))
            answer = await asyncio.wait_for(other.reader.read(1000), 20)
        assert answer.startswith(b"HTTP/1.1 200 ") is (bound == 16)
        assert len(bed.sessions.find("s").tasks) == min(bound, 100)
        assert bed.refused() == {"TooMany": len(clients) - min(bound, 100)}
        bed.sessions.end("other")


METADATA = ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fd00:ec2::254"]
METADATA += ["168.63.129.16", "100.100.100.200"]


@pytest.mark.attack("leads an allowed name to a metadata server", "refused after the look-up")
@pytest.mark.parametrize("address", METADATA)
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_name_of_a_metadata_server_is_refused(address, defended, monkeypatch):
    """A CNAME is followed by the name server: the address that comes of it counts."""
    tried = []

    async def connected(_place, found):
        tried.extend(found)
        raise RefusedError(Why.UNREACHABLE, Place("a.test", 443))

    monkeypatch.setattr(Outside, "_connected", staticmethod(connected))
    if not defended:
        monkeypatch.setattr(addresses, "refusal", lambda *_: "")
    async with Bed(["a.test"], {"a.test": [address]}).listening() as bed, bed.client() as client:
        assert (b" 502 " in await client.ask(connect("a.test", 443))) is not defended
    assert tried == ([] if defended else [address])


@pytest.mark.attack("is redirected by an allowed host", "refused as any other request", control="in it")
@pytest.mark.parametrize("target", ["http://127.0.0.1:PORT/", "http://169.254.169.254/latest/", "http://b.test:PORT/"])
async def test_a_redirect_leads_nowhere_else(target):
    inside = Server()
    async with serving(inside) as inner:
        where = target.replace("PORT", str(inner))
        server = Server(f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode())
        async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed:
            async with bed.client() as client:
                # The proxy follows none, and the program learns where it was sent.
                answer = await client.ask(request(f"http://a.test:{port}/", f"a.test:{port}", "Content-Length: 0"))
                assert f"location: {where}".encode() in answer
            async with bed.client() as client:
                host = where.split("/")[2]
                assert b" 403 " in await client.ask(request(where, host, "Content-Length: 0"))
        assert bed.lookups == ["a.test"]
    assert inside.connections == 0


@pytest.mark.attack("puts headers into the host's name", "refused", control="in it")
@pytest.mark.parametrize("name", [b"a.test\r\nX: y", b"a.test HTTP/1.1\r\nX: y", b"a.test\0", b"a.test\n", b"a.test "])
async def test_a_name_with_more_in_it_is_refused(name):
    server = Server()
    async with serving(server) as port, Bed([f"a.test:{port}"]).listening() as bed:
        for host, done in ((name, 2), (b"a.test", 0)):
            async with bed.client() as client:
                await client.ask(b"\x05\x01\x00")
                asked = b"\x05\x01\x00\x03" + bytes([len(host)]) + host + struct.pack("!H", port)
                assert (await client.ask(asked))[1] == done
        assert bed.lookups == ["a.test"]


@pytest.mark.attack("tells name servers secrets in one long name", "refused before the look-up")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_a_name_of_two_hundred_labels_is_not_looked_up(defended, monkeypatch):
    if not defended:
        monkeypatch.setattr(sessions, "canonical", str.lower)
    name = ".".join(f"{number:03x}" for number in range(200)) + ".a.test"
    async with Bed(["*.a.test"]).listening() as bed, bed.client() as client:
        await client.ask(connect(name, 443))
    assert bed.lookups == ([] if defended else [name])


@pytest.mark.attack("has names looked up that hang", "only its own look-ups wait")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_names_that_hang_hold_up_their_own_session_alone(defended, monkeypatch):
    over, asked = threading.Event(), []
    getaddrinfo = socket.getaddrinfo

    def resolved(host, port, **more):
        if host == "a.test":
            return getaddrinfo("127.0.0.1", port, **more)
        if host.endswith("hangs.test"):
            asked.append(host)
            over.wait(60)
        return getaddrinfo(host, port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(outside, "MOST_LOOKUPS", 6)
    if not defended:
        monkeypatch.setattr(sessions, "MOST_LOOKUPS", 6)
        monkeypatch.setattr(outside, "LOOKUP_SECONDS", 1.0)
    async with serving(Server()) as port, Bed(["*.hangs.test"], lookup=looked_up).listening() as bed:
        bed.sessions.allow("t", [f"a.test:{port}"])
        async with contextlib.AsyncExitStack() as stack:
            for number in range(10):
                client = await stack.enter_async_context(bed.client())
                client.writer.write(connect(f"{number}.hangs.test", 443))
            while len(asked) < sessions.MOST_LOOKUPS:
                await asyncio.sleep(0.01)
            other = await stack.enter_async_context(bed.client("t"))
            answer = await other.ask(connect("a.test", port))
            assert (b" 200 " in answer) is defended
            assert len(asked) == sessions.MOST_LOOKUPS
            # Those that were given up still hold their places.
            monkeypatch.setattr(outside, "LOOKUP_SECONDS", 0.1)
            late = await stack.enter_async_context(bed.client())
            answer = await late.ask(connect("late.hangs.test", 443))
            assert b"this session may not reach late.hangs.test:443: its name servers do not answer" in answer
            over.set()
            monkeypatch.undo()
        bed.sessions.end("t")


@pytest.mark.attack(
    "owns a name server that answers with whatever it likes", "refused in a word, or a few are looked at"
)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "SERVFAIL"), "LookupFailed"),
        (socket.gaierror(socket.EAI_FAIL, "a chain of names without an end"), "LookupFailed"),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), "NoAddress"),
        ([f"10.0.{number >> 8}.{number & 255}" for number in range(10_000)], "AddressRefused"),
    ],
)
async def test_what_a_hostile_name_server_answers_is_bounded(answer, why, monkeypatch):
    checked = []

    def resolved(host, port, **_more):
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answer]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    refusal = addresses.refusal
    monkeypatch.setattr(addresses, "refusal", lambda one, *more: checked.append(one) or refusal(one, *more))
    async with Bed(["a.test"], lookup=looked_up).listening() as bed, bed.client() as client:
        await client.ask(connect("a.test", 443))
        assert bed.refused() == {why: 1}
    assert len(checked) <= outside.MOST_FOUND
