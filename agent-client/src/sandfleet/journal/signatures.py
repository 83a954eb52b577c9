"""Checks signatures with `cryptography`, which the extra `sandfleet[verify]` brings: only auditors need it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    Authority: TypeAlias = EllipticCurvePublicKey

MISSING = "cryptography is not installed; it comes with the extra sandfleet[verify]"
MAX_AUTHORITIES = 16
_PEM = re.compile(rb"-----BEGIN (CERTIFICATE|PUBLIC KEY)-----[A-Za-z0-9+/=\s]{1,16384}-----END \1-----")


def can_check() -> bool:
    """Return whether the library is installed."""
    return find_spec("cryptography") is not None


def fleet_signed(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of an Ed25519 key has signed the message. Malformed keys and signatures give False."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def authority_signed(authority: Authority, message: bytes, signature: bytes) -> bool:
    """Return whether a cluster's authority has signed the message (P-256, SHA-256)."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        authority.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def read_authorities(pem: bytes) -> tuple[Authority, ...]:
    """Read the public keys of certificates in PEM, as the ConfigMap `sandfleet-ca` has them.

    The reader trusts the certificates themselves: their dates and signatures are not checked. Raises ValueError with
    "cannot X: why".
    """
    blocks = [(match[0], match[1] == b"CERTIFICATE") for match in _PEM.finditer(pem)]
    if not blocks or len(blocks) > MAX_AUTHORITIES:
        raise ValueError(f"cannot read the authority: the file has not 1 to {MAX_AUTHORITIES} certificates in PEM")
    return tuple(_key_in(block, is_certificate=is_certificate) for block, is_certificate in blocks)


def _key_in(pem: bytes, *, is_certificate: bool) -> Authority:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = x509.load_pem_x509_certificate(pem).public_key() if is_certificate else load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"cannot read the authority: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("cannot read the authority: it has no key of P-256")  # noqa: TRY004 - the file is at fault
    return key
