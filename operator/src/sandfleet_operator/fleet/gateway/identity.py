"""What the gateway, and the egress process, show to their clients: a key of their own, and the fleet's certificate."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from sandfleet_api.fleet.v1 import gateway_pb2
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayIdentityServiceStub
from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import GatewayReason
from sandfleet_operator.fleet import shown_certificate
from sandfleet_operator.fleet.links.fleet_link import FleetLink

PREFIX = "sandfleet-"
NAME = f"{PREFIX}gateway"
# Seconds from one certificate to the next; one is valid for 30 days.
RENEW_SECONDS = 10 * 86400.0
# Seconds between two looks whether the authority is another one.
LOOK_SECONDS = 30.0
BACKOFF = Backoff(0.5, 30.0)

_LOG = logging.getLogger(__name__)


class Identity:
    """`credentials` is a folder: `ca.crt`, the fleet's authority, and `token` of the gateway's own account."""

    def __init__(self, fleet: FleetLink, credentials: Path, component: str = "gateway") -> None:
        self._fleet = fleet
        self._credentials = credentials
        self._component = component
        # Called with each new certificate but the first.
        self.renewed: Callable[[], None] = lambda: None
        self._pair: tuple[bytes, bytes] | None = None
        self._shown: grpc.ServerCertificateConfiguration | None = None
        # When the certificate was obtained, by the loop's clock, and under which authority.
        self._obtained, self._authority = 0.0, b""

    async def run(self) -> None:
        """Renews the certificate until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            age = asyncio.get_running_loop().time() - self._obtained
            if age > RENEW_SECONDS or self._present_authority() not in {b"", self._authority}:
                await self.obtain()
                self.renewed()

    async def obtain(self) -> None:
        """Returns with a new certificate, however long that takes."""
        failures = 0
        while True:
            authority = self._present_authority()
            try:
                self._pair = await self._signed()
            except FleetError as error:
                failures += 1
                _LOG.warning("cannot get a certificate: %s", error)
                await asyncio.sleep(BACKOFF.after(failures))
            else:
                self._shown = grpc.ssl_server_certificate_configuration([self._pair])
                self._obtained, self._authority = asyncio.get_running_loop().time(), authority
                return

    def _present_authority(self) -> bytes:
        """Empty where the file cannot be read."""
        try:
            return (self._credentials / "ca.crt").read_bytes()
        except OSError:
            return b""

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Key and certificate, both PEM. Comes after `obtain`."""
        assert self._pair is not None, "obtain comes first"
        return self._pair

    @property
    def authority(self) -> bytes:
        """The authority (PEM) under which the certificate was obtained."""
        return self._authority

    def server_credentials(self) -> grpc.ServerCredentials:
        """Comes after `obtain`."""
        return shown_certificate.server_credentials(self._configuration)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        assert self._shown is not None, "obtain comes first"
        return self._shown

    async def _signed(self) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        asked = _signing_request(key, f"{PREFIX}{self._component}")
        request = gateway_pb2.SignRequest(signing_request_pem=asked, component=self._component)
        try:
            token = (self._credentials / "token").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise GatewayReason.ROUTE_UNKNOWN.error(f"its own token cannot be read: {error}") from error
        said = await self._fleet.call(lambda channel: GatewayIdentityServiceStub(channel).Sign, request, token)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem, said.certificate_pem


def _signing_request(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    request = x509.CertificateSigningRequestBuilder(subject).add_extension(names, critical=False)
    return request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
