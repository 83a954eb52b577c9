"""The control plane's certificate authority, for executors and the fleet's own port: EC P-256, one level.

Times are seconds since the epoch.
"""

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM
COMMON_NAME = "sandfleet"
CA_SECONDS = 3650 * 86400.0
# Seconds before their creation from which certificates are valid, because clocks differ a little.
BACKDATED = 300.0
MAX_REQUEST_BYTES = 16 << 10
SERVER_AUTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
# Executors are clients, too: of the egress process, which knows them by their certificate.
BOTH_AUTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


class AuthorityError(Exception):
    """The key and the certificate do not make an authority. The message is "cannot X: why"."""


class RequestRefusedError(Exception):
    """The authority issues no certificate for this request. The message is "cannot X: why"."""


@dataclass(frozen=True, slots=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, now: float) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(COMMON_NAME)
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(_moment(now - BACKDATED)).not_valid_after(_moment(now + CA_SECONDS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(sign=False, certify=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> "Authority":
        """Raises AuthorityError."""
        try:
            key = serialization.load_pem_private_key(key_pem, None)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        # A key with a password raises TypeError.
        except (ValueError, TypeError) as error:
            raise AuthorityError(f"cannot read the certificate authority: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
            raise AuthorityError("cannot use the certificate authority: the key does not belong to the certificate")
        return cls(key, certificate)

    @property
    def pem(self) -> bytes:
        """The certificate that clients and executors trust."""
        return self.certificate.public_bytes(PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self.key)

    @property
    def public_text(self) -> str:
        """The public key as base64 of its DER form, as pods' manifests name it."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return base64.b64encode(self.key.public_key().public_bytes(serialization.Encoding.DER, form)).decode("ascii")

    def sign(self, data: bytes) -> bytes:
        """The same data gives the same signature, so that what is published changes only with its content."""
        return self.key.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))

    def answer(self, request_pem: bytes, name: str, now: float, seconds: float = CA_SECONDS) -> bytes:
        """The certificate (PEM) for a request that asks for exactly this one name. Raises RequestRefusedError.

        Only the key is taken from the request. A pod's certificate is valid as long as the authority; the pod that it
        names ends earlier.
        """
        public = _requested_key(request_pem, name)
        end = min(_moment(now + seconds), self.certificate.not_valid_after_utc)
        return self._certify(public, name, [x509.DNSName(name)], now, end, uses=BOTH_AUTH).public_bytes(PEM)

    def server(self, names: Sequence[str], now: float, seconds: float) -> tuple[bytes, bytes]:
        """A key and a certificate, both PEM, for a server of the control plane; names may be IP addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(_moment(now + seconds), self.certificate.not_valid_after_utc)
        certificate = self._certify(key.public_key(), names[0], [_general_name(name) for name in names], now, end)
        return _key_pem(key), certificate.public_bytes(PEM)

    def vouches(self, certificate: x509.Certificate, name: str, now: float) -> bool:
        """Whether the certificate is signed by this authority for exactly this name, and valid now."""
        return self.signed(certificate) and _names(certificate) == [x509.DNSName(name)] and _valid(certificate, now)

    def signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def _certify(
        self,
        public: ec.EllipticCurvePublicKey,
        subject: str,
        names: list[x509.GeneralName],
        now: float,
        end: dt.datetime,
        *,
        uses: x509.ExtendedKeyUsage = SERVER_AUTH,
    ) -> x509.Certificate:
        issuer = self.certificate.subject
        builder = x509.CertificateBuilder(issuer, _name(subject), public, x509.random_serial_number())
        builder = builder.not_valid_before(_moment(now - BACKDATED)).not_valid_after(end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(sign=True, certify=False), critical=True)
        builder = builder.add_extension(uses, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return builder.add_extension(identifier, critical=False).sign(self.key, hashes.SHA256())


def _requested_key(request_pem: bytes, name: str) -> ec.EllipticCurvePublicKey:
    """Raises RequestRefusedError."""
    if len(request_pem) > MAX_REQUEST_BYTES:
        raise RequestRefusedError(f"cannot sign the request: it is larger than {MAX_REQUEST_BYTES} bytes")
    try:
        request = x509.load_pem_x509_csr(request_pem)
        genuine, public, asked = request.is_signature_valid, request.public_key(), list(request.extensions)
    except (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise RequestRefusedError(f"cannot sign the request: {str(error)[:200]}") from error
    if not genuine:
        raise RequestRefusedError("cannot sign the request: it is not signed by its own key")
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise RequestRefusedError("cannot sign the request: its key is not a P-256 key")
    wanted = x509.SubjectAlternativeName([x509.DNSName(name)])
    if [extension.value for extension in asked] != [wanted]:
        raise RequestRefusedError(f"cannot sign the request: it does not ask for exactly the one name {name}")
    return public


def _names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return []


def self_signed(certificate: x509.Certificate, name: str) -> bool:
    """Whether the certificate is signed by its own key, for exactly this name."""
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return _names(certificate) == [x509.DNSName(name)]


def _valid(certificate: x509.Certificate, now: float) -> bool:
    return certificate.not_valid_before_utc <= _moment(now) <= certificate.not_valid_after_utc


def _usage(*, sign: bool, certify: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certify,
        crl_sign=certify,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    # X.509 allows 64 characters here. Only the alternative name of the subject is checked.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC)
