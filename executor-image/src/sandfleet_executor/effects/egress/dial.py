"""Connections to the egress process: over a unix socket on one machine, over TLS with the own certificate in a pod."""

import asyncio
import datetime as dt
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from sandfleet_executor.effects.access.identity import Identity
from sandfleet_executor.effects.network.tunnels import PIECE_BYTES, ResetByPeer, Tunnel

CONNECT_SECONDS = 10.0
# The egress process ends what is idle for much less.
IDLE_SECONDS = 86_400.0
# The only name in the certificate of the egress process.
SERVER_NAME = "sandfleet-egress"
# Over TLS each piece comes behind its length; a piece of no length is the end, which TLS cannot say for one direction.
LENGTH_BYTES = 4
END = bytes(LENGTH_BYTES)


class Outer(Protocol):
    """The end of a connection that leads to the egress process. All but `end` and `close` raise ResetByPeer."""

    def read(self) -> AsyncIterator[bytes]: ...
    async def write(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...


class Way(Protocol):
    """How the egress process is reached."""

    async def connect(self) -> Outer: ...
    def greeting(self, session_id: str) -> bytes: ...


class UnixWay:
    """The egress process of one machine. It takes an executor's word for the session."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def connect(self) -> Outer:
        """Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(sock, self._path)
        except BaseException:  # Also a cancellation: no other code would close it.
            sock.close()
            raise
        return Tunnel(sock, unused, IDLE_SECONDS)

    def greeting(self, session_id: str) -> bytes:
        """The first line on a connection."""
        return json.dumps({"session": session_id}).encode("ascii") + b"\n"


class TlsWay:
    """The egress process of a cluster. The certificate of this executor says whose the connection is."""

    def __init__(
        self,
        address: str,
        pod: str,
        identity: Identity,
        authority: ec.EllipticCurvePublicKey,
        now: Callable[[], dt.datetime],
    ) -> None:
        """`address` is HOST:PORT, `pod` is NAMESPACE/NAME; `authority` has signed the certificates of both ends."""
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._pod = pod
        self._identity = identity
        self._authority = authority
        self._now = now
        self._context: tuple[bytes, ssl.SSLContext] | None = None

    async def connect(self) -> Outer:
        """Raises OSError."""
        context = self._tls()
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=context, server_hostname=SERVER_NAME, limit=2 * PIECE_BYTES
            )
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not shown or not vouched(shown, self._authority, self._now()):
            writer.transport.abort()
            raise OSError("cannot reach the egress process: another one answers at its address")
        return Framed(reader, writer)

    def greeting(self, session_id: str) -> bytes:  # noqa: ARG002 - the certificate says it
        """The first line on a connection: where the fleet finds the pod that the certificate names."""
        return json.dumps({"pod": self._pod}).encode("ascii") + b"\n"

    def _tls(self) -> ssl.SSLContext:
        """Raises OSError."""
        if not self._identity.signed:
            raise OSError("cannot reach the egress process: this executor has no certificate yet")
        if self._context is None or self._context[0] != self._identity.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            # Checked behind the handshake: the manifest of a pod has the authority's key, not its certificate.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.load_cert_chain(*self._identity.files)
            self._context = self._identity.certificate, context
        return self._context[1]


def vouched(shown: bytes, authority: ec.EllipticCurvePublicKey, now: dt.datetime) -> bool:
    """Whether the authority has signed this certificate (DER) for the egress process, and it is valid now."""
    try:
        certificate = x509.load_der_x509_certificate(shown)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        algorithm = certificate.signature_hash_algorithm
        if algorithm is None:
            return False
        authority.verify(certificate.signature, certificate.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except (ValueError, InvalidSignature, x509.ExtensionNotFound):
        return False
    if list(names) != [x509.DNSName(SERVER_NAME)]:
        return False
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


class Framed:
    """A TLS connection whose two directions end by themselves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ends = 0

    async def read(self) -> AsyncIterator[bytes]:
        try:
            while size := int.from_bytes(await self._reader.readexactly(LENGTH_BYTES)):
                if size > 2 * PIECE_BYTES:
                    raise ResetByPeer("a piece is too long")
                yield await self._reader.readexactly(size)
        except (OSError, EOFError) as error:
            raise ResetByPeer(str(error)) from error
        self._ends += 1

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(len(data).to_bytes(LENGTH_BYTES) + data)
            await self._writer.drain()
        except OSError as error:
            raise ResetByPeer(error.strerror) from error

    def end(self) -> None:
        self._writer.write(END)
        self._ends += 1

    def close(self) -> None:
        if self._ends == 2:
            self._writer.close()
        else:
            self._writer.transport.abort()


def unused() -> None:
    """What is carried out of a session is no use of the sandbox by its caller."""
