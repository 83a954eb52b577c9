"""The executor's TLS identity: a key in a private folder, and a certificate for it."""

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

OWN_CERTIFICATE_DAYS = 3650
MAX_CERTIFICATE_BYTES = 64 << 10


class BadCertificateError(ValueError):
    """The certificate cannot be this executor's."""


class Identity:
    """`name` is the sandbox's uid: the certificate's only name. `now` gives the time in UTC.

    The folder outlives the container (an emptyDir), so that a restart keeps the identity; when it is empty a new one is
    made.
    """

    def __init__(self, folder: Path, name: str, now: Callable[[], dt.datetime]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._name = name
        self._now = now
        self._key = self._load_key() or self._make_key()
        self._certificate = self._load_certificate() or self._sign_own()

    @property
    def signed(self) -> bool:
        """Whether a CA has signed it."""
        certificate = x509.load_pem_x509_certificate(self._certificate)
        return certificate.issuer != certificate.subject

    @property
    def certificate(self) -> bytes:
        """PEM, as it is shown."""
        return self._certificate

    @property
    def files(self) -> tuple[Path, Path]:
        """Of the certificate that was installed last, and of the key."""
        return self._folder / "certificate.pem", self._folder / "key.pem"

    def signing_request(self) -> bytes:
        """PKCS #10, PEM."""
        request = x509.CertificateSigningRequestBuilder().subject_name(self._subject())
        request = request.add_extension(self._names(), critical=False)
        return request.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def install(self, certificate_pem: bytes) -> None:
        """Takes a signed certificate (PEM, then its chain). Raises BadCertificateError."""
        if len(certificate_pem) > MAX_CERTIFICATE_BYTES:
            raise BadCertificateError(f"cannot take the certificate: it is larger than {MAX_CERTIFICATE_BYTES} bytes")
        self._check(certificate_pem)
        write_private(self._folder / "certificate.pem", certificate_pem)
        self._certificate = certificate_pem

    def credentials(self, on_handshake: Callable[[], None] = lambda: None) -> grpc.ServerCredentials:
        """For one port of a server, which shows the certificate that was installed last.

        `on_handshake` is called in a thread of gRPC's.
        """
        shown = self._certificate

        def changed() -> grpc.ServerCertificateConfiguration | None:
            """What gRPC asks at each handshake. None unless something changed: handshakes that each bring a new one at
            the same time end the process in a failed check of gRPC's.
            """
            nonlocal shown
            on_handshake()
            if shown == self._certificate:
                return None
            shown = self._certificate
            return self._configuration()

        # The stubs do not know of None, which is documented.
        fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", changed)
        return grpc.dynamic_ssl_server_credentials(self._configuration(), fetch, require_client_authentication=False)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(key_pem(self._key), self._certificate)])

    def _check(self, pem: bytes) -> None:
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, x509.ExtensionNotFound) as error:
            raise BadCertificateError(f"cannot take the certificate: {error}") from error
        if certificate.public_key() != self._key.public_key():
            raise BadCertificateError("cannot take the certificate: it is for another key")
        if names.get_values_for_type(x509.DNSName) != [self._name]:
            raise BadCertificateError(f"cannot take the certificate: its name is not {self._name}")
        if not certificate.not_valid_before_utc <= self._now() <= certificate.not_valid_after_utc:
            raise BadCertificateError("cannot take the certificate: it is not valid now")

    def _load_key(self) -> ec.EllipticCurvePrivateKey | None:
        try:
            key = serialization.load_pem_private_key((self._folder / "key.pem").read_bytes(), None)
        except (OSError, ValueError):
            return None
        return key if isinstance(key, ec.EllipticCurvePrivateKey) else None

    def _make_key(self) -> ec.EllipticCurvePrivateKey:
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(self._folder / "key.pem", key_pem(key))
        return key

    def _load_certificate(self) -> bytes | None:
        try:
            pem = (self._folder / "certificate.pem").read_bytes()
            self._check(pem)
        except (OSError, BadCertificateError):
            return None
        return pem

    def _sign_own(self) -> bytes:
        start = self._now() - dt.timedelta(minutes=5)
        builder = x509.CertificateBuilder(self._subject(), self._subject(), self._key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start)
        builder = builder.not_valid_after(start + dt.timedelta(days=OWN_CERTIFICATE_DAYS))
        certificate = builder.add_extension(self._names(), critical=False).sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _subject(self) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)])

    def _names(self) -> x509.SubjectAlternativeName:
        return x509.SubjectAlternativeName([x509.DNSName(self._name)])


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encryption = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def write_private(path: Path, data: bytes) -> None:
    """All or nothing, readable by this user alone."""
    partial = path.with_suffix(".partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
