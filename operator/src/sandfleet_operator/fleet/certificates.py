"""The certificates of the fleet's port and of the gateway beside it, made from the authority of the moment.

The keys live in memory only; the gateway gets its own through a folder in memory that the two containers share.
"""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    # The gateway does without them.
    from cryptography import x509

    from sandfleet_operator.executors.contact import Credentials

# Seconds that a certificate is valid; it is made anew when half of them are over.
CERTIFICATE_SECONDS = 30 * 86400.0
# The name in the gateway's certificate: not the fleet's, and no pod has it as its UID.
GATEWAY = "sandfleet-gateway"
IDENTITY_FILE = "identity.json"
# Seconds between two looks whether the gateway needs a new certificate.
LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Shown:
    """What a port shows, all PEM: its key, its certificate, and the authority that both sides trust."""

    key: str
    certificate: str
    authority: str

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key.encode(), self.certificate.encode())])


class PortCertificate:
    """What a port of these names shows, kept for a while."""

    def __init__(self, credentials: "Credentials", names: Sequence[str], clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        self._names = names
        self._certificate: x509.Certificate | None = None
        self._renewal = 0.0
        self._shown: tuple[Shown, grpc.ServerCertificateConfiguration] | None = None

    def server_credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self.configuration(), self.configuration, require_client_authentication=False
        )

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """What gRPC asks for at each handshake."""
        return self._now()[1]

    def shown(self) -> Shown:
        return self._now()[0]

    def _now(self) -> tuple[Shown, grpc.ServerCertificateConfiguration]:
        authority, now = self._credentials.authority, self._clock()
        if self._shown is None or authority.certificate != self._certificate or now >= self._renewal:
            key, certificate = authority.server(self._names, now, CERTIFICATE_SECONDS)
            made = Shown(key.decode(), certificate.decode(), authority.pem.decode())
            self._shown = made, made.configuration()
            self._certificate, self._renewal = authority.certificate, now + CERTIFICATE_SECONDS / 2
        return self._shown


async def handed_over(credentials: "Credentials", folder: Path | None, clock: Callable[[], float]) -> None:
    """Keeps a certificate for the gateway in the folder until cancelled. Raises OSError."""
    if folder is None:
        await asyncio.Event().wait()
        return
    certificate, written = PortCertificate(credentials, (GATEWAY, "localhost", "127.0.0.1"), clock), None
    while True:
        if (shown := certificate.shown()) != written:
            write_identity(folder, shown)
            written = shown
        await asyncio.sleep(LOOK_SECONDS)


def write_identity(folder: Path, shown: Shown) -> None:
    """A reader sees the old file or the new one, whole. Raises OSError."""
    text = json.dumps({"key": shown.key, "certificate": shown.certificate, "authority": shown.authority})
    new = folder / f"{IDENTITY_FILE}.new"
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    new.replace(folder / IDENTITY_FILE)


def read_identity(folder: Path) -> Shown:
    """Raises OSError, and ValueError where it is none."""
    found = json.loads((folder / IDENTITY_FILE).read_text(encoding="ascii"))
    try:
        return Shown(**{name: str(found[name]) for name in ("key", "certificate", "authority")})
    except (KeyError, TypeError) as error:
        raise ValueError(f"cannot read {IDENTITY_FILE}: {error}") from error
