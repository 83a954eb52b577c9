"""Checks ECDSA signatures with P-256 and SHA-256 (FIPS 186-5), 20 milliseconds each. It signs nothing, holds no secret.

The cluster's authority signs the fleet's keys so. The client has no library for this, and an auditor needs none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
# What stands before the two coordinates of a P-256 key in a certificate, and in a public key in PEM.
_PREFIX = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
_PEM = re.compile(rb"-----BEGIN (CERTIFICATE|PUBLIC KEY)-----([A-Za-z0-9+/=\s]{1,16384})-----END \1-----")
MAX_KEYS = 16

# None is the point at infinity.
_Point = tuple[int, int] | None
_BASE: _Point = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

Key = tuple[int, int]


def read_keys(pem: bytes) -> tuple[Key, ...]:
    """Read the public keys of certificates in PEM, as the ConfigMap `sandfleet-ca` has them.

    A certificate is taken as the reader's own: its dates and its own signature are not looked at. Raises ValueError
    with "cannot X: why".
    """
    found = [_key_in(text) for _, text in _PEM.findall(pem)]
    if not found or len(found) > MAX_KEYS:
        raise ValueError(f"cannot read the authority: the file has not 1 to {MAX_KEYS} certificates in PEM")
    return tuple(found)


def _key_in(text: bytes) -> Key:
    try:
        data = base64.b64decode(text)
    except binascii.Error as error:
        raise ValueError("cannot read the authority: it is no base64") from error
    place = data.find(_PREFIX)
    coordinates = data[place + len(_PREFIX) :][:64] if place >= 0 else b""
    key = int.from_bytes(coordinates[:32]), int.from_bytes(coordinates[32:])
    if len(coordinates) < 64 or not _is_on_curve(key):
        raise ValueError("cannot read the authority: it has no key of P-256")
    return key


def verify(key: Key, message: bytes, signature: bytes) -> bool:
    """Return whether the key's owner has signed the message. A malformed signature gives False."""
    numbers = _numbers(signature)
    if numbers is None:
        return False
    r, s = numbers
    if not (0 < r < _ORDER and 0 < s < _ORDER):
        return False
    inverse = pow(s, -1, _ORDER)
    digest = int.from_bytes(hashlib.sha256(message).digest())
    point = _add(_times(digest * inverse % _ORDER, _BASE), _times(r * inverse % _ORDER, key))
    return point is not None and point[0] % _ORDER == r


def _numbers(signature: bytes) -> tuple[int, int] | None:
    """The two numbers of a signature in DER, in the one form that they have to have."""
    if len(signature) < 8 or signature[0] != 0x30 or signature[1] != len(signature) - 2 or signature[1] > 0x7F:
        return None
    numbers, rest = [], signature[2:]
    for _ in range(2):
        if len(rest) < 3 or rest[0] != 2 or not 0 < rest[1] <= min(33, len(rest) - 2):
            return None
        number, rest = rest[2 : 2 + rest[1]], rest[2 + rest[1] :]
        if number[0] > 0x7F or (number[0] == 0 and len(number) > 1 and number[1] <= 0x7F):
            return None
        numbers.append(int.from_bytes(number))
    return None if rest else (numbers[0], numbers[1])


def _is_on_curve(key: Key) -> bool:
    x, y = key
    return x < _P and y < _P and (y * y - x * x * x + 3 * x - _B) % _P == 0


def _add(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    if one[0] != other[0]:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P) % _P
    elif one[1] == other[1] and one[1]:
        slope = 3 * (one[0] * one[0] - 1) * pow(2 * one[1], -1, _P) % _P
    else:
        return None
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _times(factor: int, point: _Point) -> _Point:
    found: _Point = None
    while factor:
        if factor & 1:
            found = _add(found, point)
        point = _add(point, point)
        factor >>= 1
    return found
