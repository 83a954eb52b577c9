"""Checks Ed25519 signatures (RFC 8032), a few milliseconds each. It signs nothing and holds no secret.

The client has no library for this among its five packages, and an auditor needs none.
"""

from __future__ import annotations

import hashlib

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)

# A point as (x, y, z, t) with x/z, y/z and x·y = z·t.
_Point = tuple[int, int, int, int]


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the key's owner has signed the message. Malformed keys and signatures give False."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = _point(public), _point(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or factor >= _ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _ORDER
    return _equal(_times(factor, _BASE), _add(commitment, _times(challenge, key)))


def _add(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(factor: int, point: _Point) -> _Point:
    found: _Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            found = _add(found, point)
        point = _add(point, point)
        factor >>= 1
    return found


def _equal(one: _Point, other: _Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % _P == 0 and (one[1] * other[2] - other[1] * one[2]) % _P == 0


def _point(data: bytes) -> _Point | None:
    """The point in its 32 bytes; None where they name none, or not in the one form that they have to have."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (1 << 255) - 1
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = _P - x if (x & 1) != sign else x
    return x, y, 1, x * y % _P


def _base() -> _Point:
    found = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    assert found is not None
    return found


_BASE = _base()
