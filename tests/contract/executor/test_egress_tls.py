"""Executors and the egress process of a cluster over real TLS: the certificate says whose a connection is."""

import asyncio
import contextlib
import datetime as dt
import json
import socket
import ssl

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.plane import Plane, isolation, whom
from sandfleet_api.fleet.v1 import egress_pb2 as pb
from sandfleet_executor.core.egress import contacts
from sandfleet_executor.core.egress.variables import PORT
from sandfleet_executor.effects.access.identity import Identity
from sandfleet_executor.effects.egress import dial, way_out
from sandfleet_executor.effects.egress.dial import SERVER_NAME, TlsWay
from sandfleet_executor.effects.egress.way_out import WayOut
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.tokens import KeyRing, TokenKey
from sandfleet_operator.fleet.egress import cluster
from sandfleet_operator.fleet.egress.cluster import ClusterEgress, Port
from sandfleet_operator.fleet.egress.lists import Lists
from sandfleet_operator.fleet.egress.outside import Outside, Ways
from sandfleet_operator.fleet.egress.sessions import Bounds, Sessions
from sandfleet_rules.pieces import LENGTH_BYTES
from support.operator.egress_bed import LOOPBACK, Client, Server, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")
HELLO = b"HTTP/1.1 200 OK\r\n"
PODS = {"uid-a": "team/a", "uid-b": "team/b"}


def now():
    return dt.datetime.now(dt.UTC)


class Fleet:
    """Answers as the fleet does, of lists that the test changes: a pod has one by its uid and its name together."""

    def __init__(self):
        self.lists = {"uid-a": ["a.example"], "uid-b": ["b.example"]}
        self.rows, self.asked, self.is_away = [], 0, False

    async def call(self, method, request, token):
        assert token == "own"
        self.asked += 1
        if self.is_away:
            raise ClaimReason.NOT_SERVING.error("cannot say what sessions may reach: no fleet leads")
        self.rows += request.rows
        found = [one.uid for one in request.pods if one.uid in self.lists and PODS.get(one.uid) == one.name]
        return pb.ExchangeResponse(
            sessions=[pb.EgressSession(pod_uid=uid, sandbox_id=PODS[uid], names=self.lists[uid]) for uid in found]
        )


class Bed:
    def __init__(self, folder, authority):
        self.folder, self.authority, self.fleet = folder, authority, Fleet()
        (folder / "token").write_text("own")
        self.time = 0.0
        self.sessions = Sessions(Bounds(report=3600.0))
        self.lists = Lists(self.fleet, folder, self.sessions, None, lambda: self.time)

        async def lookup(host, port):
            return ["127.0.0.1"]

        self.port = Port(
            ClusterEgress(self.sessions, Outside(Ways(allowed=LOOPBACK), lookup), self.lists), "127.0.0.1", 0
        )

    async def open(self, name=SERVER_NAME, authority=None):
        pair = (authority or self.authority).server([name], now().timestamp(), 3600.0)
        self.address = f"127.0.0.1:{await self.port.open(self.authority.pem, pair)}"

    def identity(self, uid, authority=None, *, signed=True):
        found = Identity(self.folder / uid, uid, now)
        if signed:
            found.install((authority or self.authority).answer(found.signing_request(), uid, now().timestamp()))
        return found

    def way(self, uid, pod="", identity=None):
        key = self.authority.key.public_key()
        return TlsWay(self.address, pod or PODS[uid], identity or self.identity(uid), key, now)

    @contextlib.asynccontextmanager
    async def program(self, way):
        """A program that connects to the port of its session, which the executor carries this way."""
        async with self.programs(way) as connect, connect() as client:
            yield client

    @contextlib.asynccontextmanager
    async def programs(self, way):
        """Connects programs, one at a time or several."""
        out, listener = WayOut(None, lambda: None), socket.create_server(("127.0.0.1", 0))
        out.lead(way)
        out.listen(listener)
        out.open("session", b"")
        self.contacts = out.contacts

        @contextlib.asynccontextmanager
        async def connect():
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                yield Client(reader, writer)
            finally:
                writer.close()

        try:
            yield connect
        finally:
            out.shut()

    async def said(self, way, host, port):
        """What a program reads that asks for a page of the host; empty where the connection ends."""
        async with self.program(way) as client:
            client.writer.write(
                f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
            )
            return await client.rest()


@pytest_asyncio.fixture(loop_scope="session")
async def bed(tmp_path):
    found = Bed(tmp_path, Authority.new(now().timestamp()))
    await found.open()
    yield found
    found.port.close()
    for uid in PODS:
        found.sessions.end(uid)


@pytest_asyncio.fixture(loop_scope="session")
async def page(bed):
    """The port of a server on which both names stand."""
    async with serving(Server()) as port:
        bed.fleet.lists = {"uid-a": [f"a.example:{port}"], "uid-b": [f"b.example:{port}"]}
        yield port


async def test_a_session_reaches_its_list_and_reads_why_nothing_else(bed, page):
    assert (await bed.said(bed.way("uid-a"), "a.example", page)).startswith(HELLO)
    refused = await bed.said(bed.way("uid-a"), "b.example", page)
    assert refused.startswith(b"HTTP/1.1 403 ")
    assert b"not in its egress list" in refused
    # The other session's certificate reaches the other list alone.
    assert (await bed.said(bed.way("uid-b"), "b.example", page)).startswith(HELLO)
    assert (await bed.said(bed.way("uid-b"), "a.example", page)).startswith(b"HTTP/1.1 403 ")


async def test_the_executor_of_a_pod_hears_of_refusals_and_connections_before_its_program(bed, page):
    async with bed.program(bed.way("uid-a")) as client:
        request = f"GET http://{{0}}:{page}/ HTTP/1.1\r\nHost: {{0}}:{page}\r\n\r\n"
        await client.ask(request.format("a.example").encode())
        assert [(one.host, one.reason) for one in bed.contacts.since(0)] == [("a.example", "")]
        await client.ask(request.format("b.example").encode())
        assert contacts.denied(bed.contacts.since(0)) == (f"b.example:{page}",)


async def test_what_the_proxy_closes_ends_for_the_program_and_is_no_reset(bed, page):
    async with bed.program(bed.way("uid-a")) as client:
        client.writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        # Raises an error where the connection is reset.
        assert b" 400 " in await asyncio.wait_for(client.reader.read(), 10)


@pytest.mark.attack("an executor names the pod of another", "it gets nothing")
@pytest.mark.parametrize("defended", [True, False], ids=["attack", "control"])
async def test_an_executor_that_names_the_pod_of_another_gets_nothing(bed, page, defended, monkeypatch):
    if not defended:

        async def by_its_word(egress, said, _peer):
            return await egress._lists.find({name: uid for uid, name in PODS.items()}[said["pod"]], said["pod"])

        monkeypatch.setattr(ClusterEgress, "_find", by_its_word)
    said = [await bed.said(bed.way("uid-a", pod="team/b"), host, page) for host in ("b.example", "a.example")]
    assert [one[9:12] for one in said] == ([b"", b""] if defended else [b"200", b"403"])
    assert bed.sessions.find("uid-a") is None


def plain_context(identity=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if identity is not None:
        context.load_cert_chain(*identity.files)
    return context


async def answer(bed, context, page, source="127.0.0.1"):
    """What a client of its own gets that speaks as executors do, from an address of this machine."""
    host, _, port = bed.address.rpartition(":")
    request = f"GET http://a.example:{page}/ HTTP/1.1\r\nHost: a.example:{page}\r\n\r\n".encode()
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, local_addr=(source, 0))
        for piece in (json.dumps({"pod": "team/a", "session": "uid-a"}).encode() + b"\n", request):
            writer.write(len(piece).to_bytes(LENGTH_BYTES) + piece)
        found = await asyncio.wait_for(reader.read(65536), 10)
        writer.close()
    except OSError:
        return b""
    return found[LENGTH_BYTES:]


@pytest.mark.attack(
    "connects to the egress process without an executor's certificate", "it gets nothing", control="in it"
)
async def test_only_a_certificate_of_the_authority_gets_through(bed, page):
    # The control.
    assert (await answer(bed, plain_context(bed.identity("uid-a")), page)).startswith(HELLO)
    assert await answer(bed, plain_context(), page) == b""
    foreign = Authority.new(now().timestamp())
    for name, identity in (
        ("own", Identity(bed.folder / "own", "uid-a", now)),
        ("foreign", Identity(bed.folder / "foreign", "uid-a", now)),
    ):
        if name == "foreign":
            identity.install(foreign.answer(identity.signing_request(), "uid-a", now().timestamp()))
        else:
            # Signed by itself, as before its first contact.
            (bed.folder / "own" / "certificate.pem").write_bytes(identity.certificate)
        assert await answer(bed, plain_context(identity), page) == b"", name


@pytest.mark.attack("shows the egress process a certificate for servers", "it gets nothing", control="in it")
async def test_a_certificate_of_a_server_of_the_control_plane_is_no_executors(bed, page):
    """Those of the fleet's own port are for servers alone."""
    key, certificate = bed.authority.server(["uid-a"], now().timestamp(), 3600.0)
    (bed.folder / "server.pem").write_bytes(key + certificate)
    context = plain_context()
    context.load_cert_chain(bed.folder / "server.pem")
    assert await answer(bed, context, page) == b""
    # The control: one of the same name, of the same authority, for executors.
    assert (await answer(bed, plain_context(bed.identity("uid-a")), page)).startswith(HELLO)


async def test_an_executor_without_a_certificate_does_not_connect(bed, page):
    identity = bed.identity("uid-a", signed=False)
    with pytest.raises(OSError, match="no certificate yet"):
        await bed.way("uid-a", identity=identity).connect()


@pytest.mark.parametrize("impostor", ["another name", "another authority"])
async def test_an_executor_tells_an_impostor_nothing(bed, page, impostor):
    if impostor == "another name":
        await bed.open("sandfleet-gateway")
    else:
        await bed.open(authority=Authority.new(now().timestamp()))
    way = bed.way("uid-a")
    with pytest.raises(OSError, match="another one answers"):
        await way.connect()
    # The control.
    await bed.open()
    outer = await bed.way("uid-a").connect()
    outer.close()


@pytest.mark.attack("opens thousands of connections to the egress process and says nothing", "a bounded number is held")
@pytest.mark.parametrize("bound", [5, 1000], ids=["attack", "control"])
async def test_connections_that_prove_nothing_are_bounded_and_small(bed, page, monkeypatch, bound):
    """Those of one address: from another one an executor gets through."""
    monkeypatch.setattr(cluster, "MOST_OF_ADDRESS", bound)
    monkeypatch.setattr(cluster, "HANDSHAKE_SECONDS", 300.0)
    host, _, port = bed.address.rpartition(":")
    async with contextlib.AsyncExitStack() as stack:
        silent = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(abort, writer)
            silent.append(asyncio.ensure_future(ended(reader)))
        if bound == 5:
            while sum(one.done() for one in silent) < 12 - bound:
                await asyncio.sleep(0)
        assert (await answer(bed, plain_context(bed.identity("uid-a")), page, "127.0.0.2")).startswith(HELLO)
        assert sum(one.done() for one in silent) == max(0, 12 - bound)
        own = await answer(bed, plain_context(bed.identity("uid-a")), page)
        assert own.startswith(HELLO) is (bound > 12)
        for one in silent:
            one.cancel()


def abort(writer):
    """Holds the writer until then: without it the connection would be closed."""
    writer.transport.abort()


async def ended(reader):
    with contextlib.suppress(OSError):
        await reader.read()


async def test_a_list_that_changes_cuts_what_it_does_not_allow_any_more(bed, page):
    async with bed.program(bed.way("uid-a")) as client:
        client.writer.write(f"CONNECT a.example:{page} HTTP/1.1\r\nHost: a.example:{page}\r\n\r\n".encode())
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(HELLO[:13])
        bed.fleet.lists["uid-a"] = ["c.example"]
        await bed.lists.exchange([pb.EgressPod(uid="uid-a", name="team/a")])
        assert await client.rest() == b""
    await bed.lists.exchange([])
    assert [one.connections for one in bed.fleet.rows if one.reason == "Cut"] == [1]
    assert {one.sandbox_id for one in bed.fleet.rows} == {"team/a"}


async def test_a_session_that_has_ended_loses_its_connections(bed, page):
    async with bed.program(bed.way("uid-a")) as client:
        client.writer.write(f"CONNECT a.example:{page} HTTP/1.1\r\nHost: a.example:{page}\r\n\r\n".encode())
        await client.reader.readuntil(b"\r\n\r\n")
        del bed.fleet.lists["uid-a"]
        await bed.lists.exchange([pb.EgressPod(uid="uid-a", name="team/a")])
        assert await client.rest() == b""
    assert bed.sessions.find("uid-a") is None


async def test_without_a_fleet_lists_stay_and_what_was_seen_is_told_later(bed, page):
    assert (await bed.said(bed.way("uid-a"), "a.example", page)).startswith(HELLO)
    bed.fleet.is_away = True
    assert (await bed.said(bed.way("uid-a"), "a.example", page)).startswith(HELLO)
    # What is not known waits for a fleet.
    assert await bed.said(bed.way("uid-b"), "b.example", page) == b""
    bed.fleet.is_away = False
    await bed.lists.exchange([])
    assert sum(one.connections for one in bed.fleet.rows if one.host == "a.example") == 2


async def test_each_direction_ends_by_itself(bed, page):
    async with bed.program(bed.way("uid-a")) as client:
        request = f"GET http://a.example:{page}/ HTTP/1.1\r\nHost: a.example:{page}\r\n\r\n"
        assert (await client.ask(request.encode(), end=True)).startswith(HELLO)
        assert await client.rest() == b""


async def test_an_unused_session_is_forgotten_and_asked_for_again(bed, page):
    assert (await bed.said(bed.way("uid-a"), "a.example", page)).startswith(HELLO)
    # Its last connections end a moment after their program.
    await until(lambda: not bed.sessions.find("uid-a").tasks)
    bed.time = 120.0
    await bed.lists.exchange(bed.lists._in_use())
    assert bed.sessions.find("uid-a") is None
    assert (await bed.said(bed.way("uid-a"), "a.example", page)).startswith(HELLO)


async def opened(way):
    """A connection, and the port of its own end."""
    outer = await way.connect()
    return outer, port_of(outer)


def port_of(outer):
    return outer.transport.get_extra_info("sockname")[1]


@contextlib.asynccontextmanager
async def ready(way):
    """A way by which a connection was opened, and the port of the one that is made ahead of the next."""
    first, _ = await opened(way)
    made = await asyncio.shield(way._ready)
    yield port_of(made), made
    first.close()
    way.close()


async def test_the_next_connection_is_made_while_the_first_is_in_use(bed, page):
    way = bed.way("uid-a")
    async with ready(way) as (port, _):
        second, own = await opened(way)
        assert own == port
        second.close()
        assert (await bed.said(way, "a.example", page)).startswith(HELLO)
    # Nothing of it is left behind.
    await until(lambda: not bed.sessions.find("uid-a").tasks)


async def test_a_connection_made_ahead_that_is_cut_is_not_used(bed, page):
    way = bed.way("uid-a")
    async with ready(way) as (port, made):
        for task in tuple(bed.sessions.find("uid-a").tasks):
            task.cancel()
        await until(lambda: made.is_over)
        second, own = await opened(way)
        assert own != port
        second.close()


async def test_a_connection_made_ahead_ends_when_it_is_not_needed(bed, page, monkeypatch):
    monkeypatch.setattr(dial, "READY_SECONDS", 0.0)
    way = bed.way("uid-a")
    first, _ = await opened(way)
    first.close()
    await until(lambda: way._ready is None and not bed.sessions.find("uid-a").tasks)


async def test_a_handshake_ahead_that_fails_is_made_again_and_says_why(bed, page):
    way = bed.way("uid-a")
    async with ready(way):
        bed.port.close()
        used, _ = await opened(way)
        await until(way._ready.done)
        with pytest.raises(OSError, match="Connect call failed"):
            await opened(way)
        used.close()


async def test_the_next_program_needs_no_handshake_and_a_list_that_was_changed_counts(bed, page, monkeypatch):
    made = []
    monkeypatch.setattr(cluster.TlsPeer, "shake_hands", counted(cluster.TlsPeer.shake_hands, made))
    way = bed.way("uid-a")
    async with bed.programs(way) as connect:
        for host, expected in (("a.example", HELLO), ("b.example", b"HTTP/1.1 403 "), ("a.example", HELLO)):
            async with connect() as client:
                request = f"GET http://{host}:{page}/ HTTP/1.1\r\nHost: {host}:{page}\r\n\r\n"
                assert (await client.ask(request.encode())).startswith(expected)
            await until(lambda: way._kept and bed.sessions.find("uid-a").kept)
        # The first, and the one that was made ahead of a second one at a time.
        assert len(made) == 2
        (kept,) = bed.sessions.find("uid-a").kept
        bed.sessions.end("uid-a")
        await until(lambda: kept.done() and not [one for one in way._kept if not one.is_over])


def counted(method, calls):
    async def counting(self):
        calls.append(self)
        await method(self)

    return counting


@pytest.mark.needs("unix socket")
async def test_an_executor_in_a_pod_listens_for_its_session_once_that_is_open(bed, page, starting, host):
    """The whole executor, whose session shares its network, from its first contact on."""
    plane = Plane(host.key)
    bed.authority = plane.authority
    await bed.open()
    keys = bed.folder / "keys.json"
    keys.write_text(KeyRing((TokenKey("k", host.key, 0.0),)).public(plane.authority.sign, now().timestamp()))
    told = {"network": "pod", "egress_address": bed.address, "egress_pod": "team/a", "keys_file": str(keys)}
    authority = plane.authority.public_text
    async with starting(session=None, port=True, signed=False, keys_authority=authority, **told) as executor:
        uid = executor.config["sandbox_uid"]
        PODS[uid], bed.fleet.lists[uid] = "team/a", bed.fleet.lists["uid-a"]
        await plane.contacts.contact(whom(executor), isolation=isolation(host), first=True)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", PORT)
        await plane.contacts.open(whom(executor))
        for name, answer in (("a.example", HELLO), ("b.example", b"HTTP/1.1 403 ")):
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            client = Client(reader, writer)
            writer.write(
                f"GET http://{name}:{page}/ HTTP/1.1\r\nHost: {name}:{page}\r\nConnection: close\r\n\r\n".encode()
            )
            assert (await client.rest()).startswith(answer)
            writer.close()
    del PODS[uid]
    bed.sessions.end(uid)


async def test_small_pieces_go_to_the_program_at_once(bed, page, monkeypatch):
    """A handshake is several of them: each would wait 40 ms for the acknowledgement of the one before."""
    delays = []

    class Watched(way_out.Program):
        def __init__(self, sock, *more):
            super().__init__(sock, *more)
            delays.append(not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(way_out, "Program", Watched)
    assert (await bed.said(bed.way("uid-a"), "a.example", page)).startswith(HELLO)
    assert delays == [False]
