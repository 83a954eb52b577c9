"""TLS that is ended here: one side to the session's program, the other to the host."""

import asyncio
import contextlib
import datetime as dt
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandfleet_operator.fleet.egress.peer import Peer, SocketPeer

T = TypeVar("T")

PROTOCOLS = ["http/1.1"]
# A session lives for weeks at most; clocks may differ by a day.
VALID, BEFORE = dt.timedelta(days=60), dt.timedelta(days=1)
PIECE_BYTES = 64 << 10


class TlsPeer(Peer):
    """A peer over another one that speaks TLS."""

    def __init__(self, below: Peer, context: ssl.SSLContext, server_name: str = "") -> None:
        """`server_name`: of the server that is connected to; empty: this side is the server."""
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=not server_name, server_hostname=server_name or None
        )
        self._reading = asyncio.Lock()

    async def shake_hands(self) -> None:
        """Raises OSError."""
        try:
            await self._until(self._tls.do_handshake)
        except ssl.SSLError:
            # The other end hears why.
            self._below.send(self._outgoing.read())
            raise

    @property
    def certificate(self) -> dict[str, Any]:
        """The other end's, once it was checked."""
        return dict(self._tls.getpeercert() or {})

    async def _next(self) -> bytes:
        try:
            return await self._until(lambda: self._tls.read(PIECE_BYTES))
        except ssl.SSLZeroReturnError:
            return b""

    def ahead(self) -> list[bytes]:
        return [*super().ahead(), *self._decrypted(self._below.ahead())]

    @property
    def root(self) -> SocketPeer:
        return self._below.root

    def decoded(self, data: bytes) -> list[bytes]:
        return self._decrypted(self._below.decoded(data))

    def encoded(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._below.encoded(self._outgoing.read())

    def _decrypted(self, pieces: list[bytes]) -> list[bytes]:
        """Raises OSError."""
        for piece in pieces:
            self._incoming.write(piece)
        found, end = [], [b""]
        try:
            while data := self._tls.read(PIECE_BYTES):
                found.append(data)
        except ssl.SSLWantReadError:
            end = []
        except ssl.SSLZeroReturnError:
            pass
        # TLS may have a word of its own to say, as about its keys.
        if data := self._outgoing.read():
            self._below.send(data)
        return [b"".join(found), *end] if found else end

    async def write(self, data: bytes) -> None:
        await self._until(lambda: self._tls.write(data))

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._tls.write(data)
            self._below.send(self._outgoing.read())

    def say(self, report: Mapping[str, Any]) -> None:
        self._below.say(report)

    def end(self) -> None:
        """The end of the connection below says it."""
        self._below.end()

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    async def _until(self, step: Callable[[], T]) -> T:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            else:
                await self._flush()
                return done

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._below.write(data)

    async def _fill(self) -> None:
        async with self._reading:
            if data := await self._below.read():
                self._incoming.write(data)
            else:
                self._incoming.write_eof()


class Authority:
    """The authority of one session, which only that session trusts."""

    def __init__(self, pem: str) -> None:
        """`pem` has its key and its certificate, as `new_authority` makes them."""
        self._key = serialization.load_pem_private_key(pem.encode(), None)
        self._certificate = x509.load_pem_x509_certificate(pem.encode())
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, host: str) -> ssl.SSLContext:
        """What a server of this name speaks TLS with."""
        if host not in self._contexts:
            key = ec.generate_private_key(ec.SECP256R1())
            made = (
                _certificate(host, self._certificate.subject, key.public_key())
                .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .sign(self._key, hashes.SHA256())  # type: ignore[arg-type] # new_authority makes no other key
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(PROTOCOLS)
            load(context, _pem(key) + made.public_bytes(serialization.Encoding.PEM))
            self._contexts[host] = context
        return self._contexts[host]


def outward() -> ssl.SSLContext:
    """What hosts are connected to with: by this machine's authorities."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(PROTOCOLS)
    return context


def new_authority() -> tuple[str, str]:
    """Key and certificate of an authority as PEM, and the certificate alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sandfleet session")])
    made = (
        _certificate("Sandfleet session", name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM).decode()
    return _pem(key).decode() + public, public


def _certificate(name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        # A common name has 64 characters at most; names of hosts stand in the extension.
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + VALID)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load(context: ssl.SSLContext, pem: bytes) -> None:
    """Gives a context its key and certificate. `ssl` takes keys from files alone: this one has no name."""
    with tempfile.TemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/{os.getpid()}/fd/{file.fileno()}")
