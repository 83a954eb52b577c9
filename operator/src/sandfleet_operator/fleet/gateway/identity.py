"""What the gateway shows to its clients: a key that it makes, and the fleet's certificate for it."""

import asyncio
import logging
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from sandfleet_api.fleet.v1 import gateway_pb2
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayIdentityServiceStub

from sandfleet_operator.api.backoff import Backoff
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import GatewayReason
from sandfleet_operator.fleet.links.fleet_link import FleetLink

NAME = "sandfleet-gateway"
# Seconds from one certificate to the next; one is valid for 30 days.
RENEW_SECONDS = 10 * 86400.0
# Seconds between two looks whether the authority is another one.
LOOK_SECONDS = 30.0
BACKOFF = Backoff(0.5, 30.0)

_LOG = logging.getLogger(__name__)


class Identity:
    """`credentials` is a folder: `ca.crt`, the fleet's authority, and `token` of the gateway's own account."""

    def __init__(self, fleet: FleetLink, credentials: Path) -> None:
        self._fleet = fleet
        self._credentials = credentials
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

    async def obtain(self) -> None:
        """Returns with a new certificate, however long that takes."""
        failures = 0
        while True:
            authority = self._present_authority()
            try:
                self._shown = await self._signed()
            except FleetError as error:
                failures += 1
                _LOG.warning("cannot get a certificate: %s", error)
                await asyncio.sleep(BACKOFF.after(failures))
            else:
                self._obtained, self._authority = asyncio.get_running_loop().time(), authority
                return

    def _present_authority(self) -> bytes:
        """Empty where the file cannot be read."""
        try:
            return (self._credentials / "ca.crt").read_bytes()
        except OSError:
            return b""

    def server_credentials(self) -> grpc.ServerCredentials:
        """Comes after `obtain`."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._configuration, require_client_authentication=False
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        """What gRPC asks for at each handshake."""
        assert self._shown is not None, "obtain comes first"
        return self._shown

    async def _signed(self) -> grpc.ServerCertificateConfiguration:
        key = ec.generate_private_key(ec.SECP256R1())
        request = gateway_pb2.SignRequest(signing_request_pem=_signing_request(key))
        try:
            token = (self._credentials / "token").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise GatewayReason.ROUTE_UNKNOWN.error(f"its own token cannot be read: {error}") from error
        said = await self._fleet.call(lambda channel: GatewayIdentityServiceStub(channel).Sign, request, token)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return grpc.ssl_server_certificate_configuration([(pem, said.certificate_pem)])


def _signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = x509.SubjectAlternativeName([x509.DNSName(NAME)])
    request = x509.CertificateSigningRequestBuilder(subject).add_extension(names, critical=False)
    return request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
