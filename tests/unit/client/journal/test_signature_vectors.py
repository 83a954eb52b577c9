"""Signatures that the client accepts, and forms that have broken other libraries."""

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from sandfleet.journal import signatures

MESSAGE = b"record 12"
PRIME, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def number(value):
    return value.to_bytes(32, "little")


EDWARDS = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
PUBLIC, SIGNED = EDWARDS.public_key().public_bytes_raw(), EDWARDS.sign(MESSAGE)
POINT, FACTOR = SIGNED[:32], int.from_bytes(SIGNED[32:], "little")
IDENTITY = number(1)
# Key and signature.
OF_ED25519 = {
    "good": (PUBLIC, SIGNED),
    "the factor plus the order": (PUBLIC, POINT + number(FACTOR + ORDER)),
    "the factor is the order": (PUBLIC, POINT + number(ORDER)),
    "the factor is 0": (PUBLIC, POINT + number(0)),
    "the factor's highest bits": (PUBLIC, POINT + number(FACTOR | 7 << 253)),
    "zeros": (PUBLIC, bytes(64)),
    "ones": (PUBLIC, b"\xff" * 64),
    "the point is negative": (PUBLIC, POINT[:31] + bytes([POINT[31] ^ 0x80]) + SIGNED[32:]),
    "the point is the identity": (PUBLIC, IDENTITY + SIGNED[32:]),
    "the point is above the prime": (PUBLIC, number(PRIME + 1) + SIGNED[32:]),
    "halves change places": (PUBLIC, SIGNED[32:] + POINT),
    "a byte is missing": (PUBLIC, SIGNED[:-1]),
    "a byte is too many": (PUBLIC, SIGNED + b"\0"),
    "nothing": (PUBLIC, b""),
    "another key": (Ed25519PrivateKey.from_private_bytes(b"\x08" * 32).public_key().public_bytes_raw(), SIGNED),
    "the key is the identity, and signs all": (IDENTITY, IDENTITY + number(0)),
    "the key is no point": (number(2), SIGNED),
}


@pytest.mark.parametrize(("public", "signature"), OF_ED25519.values(), ids=OF_ED25519)
def test_the_fleets_signature_has_one_form(public, signature):
    holds = (signature == SIGNED and public == PUBLIC) or public == IDENTITY
    assert signatures.fleet_signed(public, MESSAGE, signature) is holds


CURVE = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
R, S = decode_dss_signature(CURVE.sign(MESSAGE, ec.ECDSA(hashes.SHA256(), deterministic_signing=True)))
DER = encode_dss_signature(R, S)


def integer(data):
    return b"\x02" + bytes([len(data)]) + data


def plain(value):
    return value.to_bytes(33)


def sequence(*parts):
    inner = b"".join(parts)
    return b"\x30" + bytes([len(inner)]) + inner


OF_P256 = {
    "good": DER,
    "the other half of S": encode_dss_signature(R, N - S),
    "R is 0": encode_dss_signature(0, S),
    "S is 0": encode_dss_signature(R, 0),
    "both are 0": encode_dss_signature(0, 0),
    "R is the order": encode_dss_signature(N, S),
    "S is the order": encode_dss_signature(R, N),
    "S plus the order": encode_dss_signature(R, S + N),
    "R plus the order": encode_dss_signature(R + N, S),
    "both are 1": encode_dss_signature(1, 1),
    "they change places": encode_dss_signature(S, R),
    "zeros before R": sequence(integer(b"\0" + plain(R)), integer(plain(S))),
    "R is negative": sequence(integer(b"\xff" + R.to_bytes(32)), integer(plain(S))),
    "a long form of the length": b"\x30\x81" + DER[1:],
    "a length without an end": b"\x30\x80" + DER[2:] + b"\0\0",
    "a byte behind it": DER + b"\0",
    "a byte within it": sequence(DER[2:], b"\0"),
    "a third number": sequence(DER[2:], integer(b"\1")),
    "one number": sequence(integer(plain(R))),
    "an empty number": sequence(integer(b""), integer(plain(S))),
    "another tag": b"\x31" + DER[1:],
    "cut": DER[:-1],
    "nothing": b"",
    "both numbers bare": R.to_bytes(32) + S.to_bytes(32),
}


@pytest.mark.parametrize("signature", OF_P256.values(), ids=OF_P256)
def test_the_authoritys_signature_has_two_forms(signature):
    holds = signature in (DER, OF_P256["the other half of S"])
    assert signatures.authority_signed(CURVE.public_key(), MESSAGE, signature) is holds
