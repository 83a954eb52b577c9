"""Connections to the egress process: over a unix socket on one machine, over TLS with the own certificate in a pod."""

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from sandfleet_executor.effects.access.identity import Identity
from sandfleet_executor.effects.network.tunnels import PIECE_BYTES, ResetByPeer

CONNECT_SECONDS = 10.0
# The egress process ends what is idle for much less.
IDLE_SECONDS = 86_400.0
# A connection of a pod is made ahead, from its first use on, and given up when it is not needed for so long.
READY_SECONDS = 15.0
# The only name in the certificate of the egress process.
SERVER_NAME = "sandfleet-egress"
# Each piece comes behind its length; a piece of no length is the end, which TLS cannot say for one direction. With the
# highest bit the piece is a report of the egress process about the connection, as JSON.
LENGTH_BYTES = 4
END = bytes(LENGTH_BYTES)
REPORT = 1 << 31

Hear = Callable[[bytes], None]


class Way(Protocol):
    """How the egress process is reached."""

    async def connect(self, session_id: str, hear: Hear) -> "Framed":
        """A connection of the session. `hear` gets reports about it. Raises OSError and ResetByPeer."""
        ...

    def close(self) -> None:
        """Ends what no one has asked for yet."""
        ...


class UnixWay:
    """The egress process of one machine. It takes an executor's word for the session."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def connect(self, session_id: str, hear: Hear) -> "Framed":
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_unix_connection(self._path, limit=2 * PIECE_BYTES)
        # The line itself is no piece: it says that pieces follow.
        writer.write(_greeting({"session": session_id, "framed": True}))
        return Framed(reader, writer, hear)

    def close(self) -> None:
        pass


class TlsWay:
    """The egress process of a cluster. The certificate of this executor says whose the connection is.

    A handshake takes longer than most requests, so the next connection is made while the present one is in use.
    """

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
        self._ready: asyncio.Task[Framed] | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    async def connect(self, session_id: str, hear: Hear) -> "Framed":  # noqa: ARG002 - the certificate says it
        outer = await self._made_ahead() or await self._greeted()
        outer.hear = hear
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._greeted())
            self._giving_up = asyncio.get_running_loop().call_later(READY_SECONDS, self.close)
        return outer

    def close(self) -> None:
        ready, self._ready = self._ready, None
        if self._giving_up is not None:
            self._giving_up.cancel()
        if ready is not None and not ready.cancel() and ready.exception() is None:
            ready.result().close()

    async def _made_ahead(self) -> "Framed | None":
        ready, self._ready = self._ready, None
        if ready is None:
            return None
        if self._giving_up is not None:
            self._giving_up.cancel()
        try:
            outer = await ready
        except (OSError, ResetByPeer):
            return None
        if not outer.is_over:
            return outer
        # The egress process has ended, or has cut it, since the session has no list any more.
        outer.close()
        return None

    async def _greeted(self) -> "Framed":
        context = self._tls()
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=context, server_hostname=SERVER_NAME, limit=2 * PIECE_BYTES
            )
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not shown or not vouched(shown, self._authority, self._now()):
            writer.transport.abort()
            raise OSError("cannot reach the egress process: another one answers at its address")
        outer = Framed(reader, writer)
        # Where the fleet finds the pod that the certificate names.
        await outer.write(_greeting({"pod": self._pod}))
        return outer

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


def _greeting(said: dict[str, object]) -> bytes:
    """The first line on a connection. An egress process of an earlier release sends no reports."""
    return json.dumps({**said, "reports": True}).encode("ascii") + b"\n"


class Framed:
    """A connection to the egress process whose two directions end by themselves."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Hear = lambda _report: None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.hear = hear
        self._ends = 0

    @property
    def is_over(self) -> bool:
        """Whether the other end has closed it."""
        return self._reader.at_eof() or self._writer.transport.is_closing()

    async def read(self) -> AsyncIterator[bytes]:
        try:
            while size := int.from_bytes(await self._reader.readexactly(LENGTH_BYTES)):
                if size & ~REPORT > 2 * PIECE_BYTES:
                    raise ResetByPeer("a piece is too long")
                piece = await self._reader.readexactly(size & ~REPORT)
                if size & REPORT:
                    self.hear(piece)
                else:
                    yield piece
        except (OSError, EOFError, ValueError) as error:
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
