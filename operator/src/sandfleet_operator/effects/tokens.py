"""Capability tokens: JWTs signed with Ed25519. Private keys live in this process's memory only."""

import base64
import json
import math
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ISSUER = "sandfleet"
CONTRACT = "autonomous"
# What the caller of a claim may do with its sandbox, and what the fleet itself may.
CALLER_SCOPES = ("interpreter", "process", "filesystem", "session")
FLEET_SCOPES = ("session", "admin")
# However long the lease, a token has to be fetched anew after so many seconds.
MAX_LIFETIME = 86400.0


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    # Seconds since the epoch.
    expires: float


@dataclass(slots=True)
class _Key:
    kid: str
    private: Ed25519PrivateKey
    # When the last token that it signed is over.
    needed_until: float = 0.0


class Signer:
    """Issues tokens and writes the public keys to `keys_file` (a JWKS) for executors to read. Times are the wall clock's."""

    def __init__(self, keys_file: Path, wall_clock: Callable[[], float]) -> None:
        self._keys_file = keys_file
        self._clock = wall_clock
        self._keys = [_new_key()]
        self._publish()

    def issue(self, *, sandbox_id: str, sandbox_uid: str, holder: str, scopes: Sequence[str], lifetime: float) -> Token:
        """A token for one incarnation of one sandbox, for at most `lifetime` seconds from now."""
        key, now = self._keys[-1], self._clock()
        issued, expires = int(now), math.ceil(now + min(lifetime, MAX_LIFETIME))
        claims = {
            "iss": ISSUER,
            "aud": sandbox_uid,
            "sub": holder,
            "sid": sandbox_id,
            "scope": " ".join(scopes),
            "contract": CONTRACT,
            "iat": issued,
            "nbf": issued,
            "exp": expires,
        }
        key.needed_until = max(key.needed_until, float(expires))
        return Token(jwt.encode(claims, key.private, algorithm="EdDSA", headers={"kid": key.kid}), float(expires))

    def rotate(self) -> None:
        """Signs with a new key from now on. An old one stays public until the last token that it signed is over."""
        now = self._clock()
        self._keys = [*(key for key in self._keys if key.needed_until > now), _new_key()]
        self._publish()

    def _publish(self) -> None:
        text = json.dumps({"keys": [_jwk(key.kid, key.private.public_key()) for key in self._keys]})
        temporary = self._keys_file.with_suffix(".new")
        temporary.write_text(text, encoding="ascii")
        temporary.chmod(0o644)
        # A reader sees the old file or the new one, never half of one.
        os.replace(temporary, self._keys_file)  # noqa: PTH105 - the atomic rename is the point


def _new_key() -> _Key:
    return _Key(secrets.token_hex(8), Ed25519PrivateKey.generate())


def _jwk(kid: str, public: Ed25519PublicKey) -> dict[str, str]:
    x = base64.urlsafe_b64encode(public.public_bytes_raw()).rstrip(b"=").decode("ascii")
    return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": kid, "x": x}
