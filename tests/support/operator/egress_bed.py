"""The egress process's own code on a socket of the test, with servers and names of the test."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import json
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sandfleet_operator.api.egress import parse
from sandfleet_operator.api.networks import network
from sandfleet_operator.fleet.egress.framed import FramedPeer
from sandfleet_operator.fleet.egress.outside import Outside, Ways
from sandfleet_operator.fleet.egress.peer import SocketPeer
from sandfleet_operator.fleet.egress.serve import Egress
from sandfleet_operator.fleet.egress.sessions import Bounds, Sessions
from sandfleet_operator.fleet.egress.tls import new_authority

LOOPBACK = (network("127.0.0.0/8"),)


class Server:
    """A server of the test: it keeps what it reads, and answers each connection with `answer`."""

    def __init__(self, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"):
        self.answer, self.read, self.connections = answer, b"", 0

    async def connected(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                self.read += data
                if self.answer is not None and b"\r\n\r\n" in self.read:
                    writer.write(self.answer)
                    await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving(server, tls=None):
    """The port at which it is served on loopback."""
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


class Client:
    """A program in the session."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def ask(self, data, *, end=False):
        """Sends, and reads what has come when the proxy has nothing more to say for now."""
        self.writer.write(data)
        await self.writer.drain()
        if end:
            self.writer.write_eof()
        return await asyncio.wait_for(self.reader.read(65536), 10)

    async def rest(self):
        """All up to the end; a reset is one."""
        data = b""
        with contextlib.suppress(OSError):
            while piece := await asyncio.wait_for(self.reader.read(65536), 10):
                data += piece
        return data


class Bed:
    """`addresses`: name → addresses, asked at each lookup; a function of no argument may change its answer."""

    def __init__(self, names, addresses=None, *, ways=None, credentials=(), tls=None, lookup=None, **bounds):
        self.addresses = addresses or {}
        self.lookups = []
        self.sessions = Sessions(Bounds(report=3600.0, **bounds))
        authority, self.authority = (
            new_authority() if credentials or any(parse(one).has_rules for one in names) else ("", "")
        )
        self.sessions.allow("s", names, credentials, authority)
        self.outside = Outside(ways or Ways(allowed=LOOPBACK), lookup or self._lookup, tls)

    async def _lookup(self, host, port):
        self.lookups.append(host)
        found = self.addresses.get(host, ["127.0.0.1"])
        return found() if callable(found) else found

    @contextlib.asynccontextmanager
    async def listening(self):
        with tempfile.TemporaryDirectory(prefix="sf-") as folder:
            self.path, self.framed = Path(folder) / "e.sock", Path(folder) / "framed.sock"
            egress, self.accepted = Egress(self.sessions, self.outside), 0

            loop, tasks = asyncio.get_running_loop(), set()

            def taken(peer):
                self.accepted += 1
                tasks.add(task := loop.create_task(egress.serve(peer)))
                task.add_done_callback(tasks.discard)

            def socket_peer():
                return SocketPeer(taken)

            def framed_peer():
                return SocketPeer(lambda peer: taken(FramedPeer(peer)))

            ways = ((socket_peer, self.path), (framed_peer, self.framed))
            servers = [await loop.create_unix_server(*way) for way in ways]
            try:
                yield self
            finally:
                self.sessions.end("s")
                for server in servers:
                    server.close()

    @contextlib.asynccontextmanager
    async def client(self, session="s"):
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(json.dumps({"session": session}).encode() + b"\n")
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    def refused(self):
        """Reason → count, since the last question."""
        rows = self.sessions.reports().get("s", [])
        return {row["reason"]: row["connections"] for row in rows if row["reason"]}


def certificate(folder, *names):
    """The contexts of a TLS server for these names, and of a client that trusts it; and its file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = dt.datetime.now(dt.UTC)
    alternatives = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *map(x509.DNSName, names)]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = Path(folder) / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    path.write_bytes(private + public)
    authority = Path(folder) / "ca.pem"
    authority.write_bytes(public)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=authority), authority


def client_hello(server_name, *, extra=b""):
    """The first bytes of a TLS client that asks for this name; `extra` are raw extensions behind its own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    record = outgoing.read()
    return with_extensions(record, extra) if extra else record


def with_extensions(record, extra):
    """The same ClientHello with more extensions."""
    body = record[9:]
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    size = int.from_bytes(body[at : at + 2], "big") + len(extra)
    body = body[:at] + size.to_bytes(2, "big") + body[at + 2 :] + extra
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return record[:3] + len(message).to_bytes(2, "big") + message
