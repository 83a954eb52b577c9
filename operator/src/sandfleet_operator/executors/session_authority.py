"""The authority of one session, for hosts at which TLS is ended, derived so that all processes agree on it."""

import datetime as dt
import hashlib
import hmac
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandfleet_operator.executors.authority import PEM, Authority

NAME = "Sandfleet session"
VALID, BEFORE = dt.timedelta(days=60), dt.timedelta(days=1)
# The order of P-256: keys are numbers from 1 to below it.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True)
class SessionAuthority:
    """PEM: the certificate that the session trusts, and the key, which it never sees, with it."""

    certificate: bytes
    both: bytes


def session_authority(authority: Authority, pod_uid: str, now: float) -> SessionAuthority:
    """Each call gives the same key, and a certificate of the same name: what trusts one of them trusts all."""
    own = authority.key.private_numbers().private_value.to_bytes(32)
    # 512 bits, so that the rest of the division is as good as even.
    number = int.from_bytes(hmac.digest(own, b"sandfleet session authority\0" + pod_uid.encode(), hashlib.sha512))
    key = ec.derive_private_key(number % (ORDER - 1) + 1, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    moment = dt.datetime.fromtimestamp(int(now), dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(moment - BEFORE).not_valid_after(moment + VALID)
    made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
        key, hashes.SHA256()
    )
    text = made.public_bytes(PEM)
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return SessionAuthority(text, private + text)
