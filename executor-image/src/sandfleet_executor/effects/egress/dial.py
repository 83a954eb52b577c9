"""Connections of a pod to the egress process, over TLS with the own certificate."""

import asyncio
import datetime as dt
import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from sandfleet_executor.effects.access.identity import Identity
from sandfleet_executor.effects.egress.carrying import Outer

CONNECT_SECONDS = 10.0
# A connection of a pod is made ahead, from its first use on, and given up when it is not needed for so long.
READY_SECONDS = 15.0
# Connections that wait for the next program: how many, for how long, and how old they get.
MOST_KEPT, KEPT_SECONDS, OLDEST_SECONDS = 4, 10.0, 300.0
# The only name in the certificate of the egress process.
SERVER_NAME = "sandfleet-egress"


class Way(ABC):
    """How the egress process is reached, with connections that are kept for the next program."""

    def __init__(self) -> None:
        self._kept: list[Outer] = []

    @abstractmethod
    async def connect(self) -> Outer:
        """A new connection, for one program. Raises OSError."""

    @property
    @abstractmethod
    def greeting(self) -> bytes:
        """The line by which the egress process knows whose a connection is."""

    def kept(self) -> Outer | None:
        """The connection that was kept last, if there is any."""
        while self._kept:
            outer = self._kept.pop()
            outer.limit(None)
            if not outer.is_over:
                outer.greet(self.greeting)
                return outer
        return None

    def close(self) -> None:
        """Ends what no program uses."""
        while self._kept:
            self._kept.pop().close()

    def take_back(self, outer: Outer) -> None:
        """Keeps a connection whose program has ended, or closes it."""
        age = asyncio.get_running_loop().time() - outer.made_at
        self._kept = [one for one in self._kept if not one.is_over]
        if len(self._kept) >= MOST_KEPT or age > OLDEST_SECONDS:
            outer.close()
        else:
            outer.limit(KEPT_SECONDS)
            self._kept.append(outer)


class TlsWay(Way):
    """The egress process of a cluster. The certificate of this executor says whose the connection is.

    A handshake takes longer than most requests, so the next connection is made while the first is in use.
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
        super().__init__()
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._pod = pod
        self._identity = identity
        self._authority = authority
        self._now = now
        self._context: tuple[bytes, ssl.SSLContext] | None = None
        self._ready: asyncio.Task[Outer] | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    async def connect(self) -> Outer:
        outer = await self._made_ahead() or await self._greeted()
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._greeted())
            self._giving_up = asyncio.get_running_loop().call_later(READY_SECONDS, self._give_up)
        return outer

    def close(self) -> None:
        super().close()
        self._give_up()

    def _give_up(self) -> None:
        ready, self._ready = self._ready, None
        if self._giving_up is not None:
            self._giving_up.cancel()
        if ready is not None and not ready.cancel() and ready.exception() is None:
            ready.result().close()

    async def _made_ahead(self) -> Outer | None:
        ready, self._ready = self._ready, None
        if ready is None:
            return None
        if self._giving_up is not None:
            self._giving_up.cancel()
        try:
            outer = await ready
        except OSError:
            return None
        # Where it is over, the egress process has ended, or has cut it, since the session has no list any more.
        return None if outer.is_over else outer

    async def _greeted(self) -> Outer:
        context, loop = self._tls(), asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, outer = await loop.create_connection(
                lambda: Outer(self.take_back), self._host, self._port, ssl=context, server_hostname=SERVER_NAME
            )
        shown = outer.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not shown or not vouched(shown, self._authority, self._now()):
            outer.abort()
            raise OSError("cannot reach the egress process: another one answers at its address")
        outer.greet(self.greeting)
        # Its program may be long in coming.
        outer.flush()
        return outer

    @property
    def greeting(self) -> bytes:
        """Says where the fleet finds the pod that the certificate names. Egress processes of earlier releases send no
        reports, and close the connection.
        """
        return json.dumps({"pod": self._pod, "reports": True, "again": True}).encode("ascii") + b"\n"

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
