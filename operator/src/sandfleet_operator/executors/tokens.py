"""Capability tokens: JWTs signed with Ed25519, and the keys that sign them. Times are seconds since the epoch."""

import base64
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ISSUER = "sandfleet"
AUTONOMOUS = "autonomous"
# Scopes of the caller of a claim, and of the fleet itself.
CALLER_SCOPES = ("interpreter", "process", "filesystem", "session", "ports", "tools")
FLEET_SCOPES = ("session", "admin", "review")
# Of the snapshotter, for one transfer.
SNAPSHOT_SCOPES = ("snapshot",)
# Seconds for which a token is valid at most, even with a longer lease: a caller whose rights were taken away gets no
# next one. Clients fetch theirs by themselves. With the seconds for which a right is remembered, and those by which
# clocks may differ, it is less than a quarter of an hour.
MAX_LIFETIME = 870.0
# Seconds for which the snapshotter's token for one transfer is valid, which may wait for its turn.
TRANSFER_LIFETIME = 3600.0
# Seconds in which an answer to a review has to reach its executor.
ANSWER_LIFETIME = 60.0
# Seconds for which a process may still sign with an old key after the next one is due, including clock differences.
OVERLAP = 300.0
# Executors read only a few dozen keys.
MAX_KEYS = 16
# What the authority signs of a public key begins with this, so that the signature means nothing else.
KEY_SIGNED = b"sandfleet token key\0"
# The same for a key with the end of its use, which executors demand. Journals outlive a key, and take the one above.
DATED_KEY_SIGNED = b"sandfleet dated token key\0"
# Seconds for which the key that signs is published. Its end moves once a day, so that the text changes as seldom. It is
# further away than the next rotation, and a control plane may be away for a week without an executor that shuts it out.
DATED_SECONDS, DAY = 9 * 86400, 86400


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    # Seconds since the epoch.
    expires: float


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key that signs tokens from `signs_from` on. Until then it is only published."""

    kid: str
    private: Ed25519PrivateKey
    signs_from: float

    @classmethod
    def new(cls, signs_from: float) -> "TokenKey":
        return cls(secrets.token_hex(8), Ed25519PrivateKey.generate(), signs_from)


class TooManyKeysError(Exception):
    """Another key would be one too many. The message is "cannot X: why"."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All keys in use, oldest first; at least one."""

    keys: tuple[TokenKey, ...]

    def signing(self, now: float) -> TokenKey:
        """The youngest key that may sign now."""
        return next((key for key in reversed(self.keys) if key.signs_from <= now), self.keys[0])

    def rotated(self, now: float, delay: float) -> "KeyRing":
        """Adds a key that signs after `delay` seconds, and drops keys whose tokens have all expired.

        Raises TooManyKeysError.
        """
        heirs = zip(self.keys, self.keys[1:], strict=False)
        needed = [key for key, heir in heirs if heir.signs_from + TRANSFER_LIFETIME + OVERLAP > now]
        kept = (*needed, self.keys[-1])
        if len(kept) >= MAX_KEYS:
            raise TooManyKeysError(f"cannot add a token key: tokens of {len(kept)} keys may still be in use")
        return KeyRing((*kept, TokenKey.new(now + delay)))

    def public(self, sign: Callable[[bytes], bytes] | None = None, now: float = 0.0) -> str:
        """The JWKS of the public keys, each signed by `sign` with its end. The same keys give the same text for a day.

        A key that was replaced counts until its last tokens have expired, though a thief has kept it and its signature.
        """
        ends = [math.ceil(heir.signs_from + TRANSFER_LIFETIME + OVERLAP) for heir in self.keys[1:]]
        ends.append(int(now // DAY) * DAY + DATED_SECONDS)
        pairs = zip(self.keys, ends, strict=True)
        return json.dumps({"keys": [public_jwk(key.kid, key.private.public_key(), sign, end) for key, end in pairs]})


class Signer:
    """Issues tokens. `keys` may be replaced at any time."""

    def __init__(self, keys: KeyRing, wall_clock: Callable[[], float]) -> None:
        self.keys = keys
        self._clock = wall_clock

    def issue(
        self,
        *,
        sandbox_id: str,
        sandbox_uid: str,
        holder: str,
        scopes: Sequence[str],
        lifetime: float,
        contract: str = AUTONOMOUS,
    ) -> Token:
        """A token for one incarnation of one sandbox, for at most `lifetime` seconds from now."""
        now = self._clock()
        key = self.keys.signing(now)
        longest = TRANSFER_LIFETIME if tuple(scopes) == SNAPSHOT_SCOPES else MAX_LIFETIME
        issued, expires = int(now), math.ceil(now + min(lifetime, longest))
        claims = {
            "iss": ISSUER,
            "aud": sandbox_uid,
            "sub": holder,
            "sid": sandbox_id,
            "scope": " ".join(scopes),
            "contract": contract,
            "iat": issued,
            "nbf": issued,
            "exp": expires,
            # The audit log names the token by it.
            "jti": secrets.token_hex(8),
        }
        return Token(jwt.encode(claims, key.private, algorithm="EdDSA", headers={"kid": key.kid}), float(expires))

    def key(self) -> TokenKey:
        """The key that signs now."""
        return self.keys.signing(self._clock())

    def answer(self, *, sandbox_uid: str, reviewer: str, claims: Mapping[str, Any]) -> str:
        """A statement about one review, for a minute: who answers, and what. It opens no other call."""
        now = self._clock()
        key = self.keys.signing(now)
        said: dict[str, Any] = {
            "iss": ISSUER,
            "use": "review",
            "aud": sandbox_uid,
            "sub": reviewer,
            "nbf": int(now),
        }
        said["exp"] = math.ceil(now + ANSWER_LIFETIME)
        return jwt.encode({**claims, **said}, key.private, algorithm="EdDSA", headers={"kid": key.kid})


class FileSigner(Signer):
    """A signer whose private keys are in memory only. Executors read the public keys from `keys_file`."""

    def __init__(self, keys_file: Path, wall_clock: Callable[[], float]) -> None:
        super().__init__(KeyRing((TokenKey.new(wall_clock()),)), wall_clock)
        self._keys_file = keys_file
        self._publish()

    def rotate(self) -> None:
        """Signs with a new key from now on. Executors read the file again when they meet an unknown key."""
        self.keys = self.keys.rotated(self._clock(), 0.0)
        self._publish()

    def _publish(self) -> None:
        temporary = self._keys_file.with_suffix(".new")
        temporary.write_text(self.keys.public(), encoding="ascii")
        temporary.chmod(0o644)
        # A reader sees the old file or the new one, never a partial one.
        os.replace(temporary, self._keys_file)  # noqa: PTH105 - the atomic rename is the point


def public_jwk(
    kid: str, public: Ed25519PublicKey, sign: Callable[[bytes], bytes] | None = None, end: int = 0
) -> dict[str, str | int]:
    """`end`: seconds since the epoch after which executors take the key no more."""
    raw = public.public_bytes_raw()
    key: dict[str, str | int] = {
        "kty": "OKP",
        "crv": "Ed25519",
        "alg": "EdDSA",
        "use": "sig",
        "kid": kid,
        "x": base64url(raw),
    }
    if sign is not None:
        key["sandfleet_signature"] = base64url(sign(_key_statement(kid, raw)))
        key["sandfleet_end"] = end
        key["sandfleet_dated_signature"] = base64url(sign(_dated_statement(kid, raw, end)))
    return key


def public_bytes(key: TokenKey) -> bytes:
    return key.private.public_key().public_bytes_raw()


def vouched_by(key: TokenKey, sign: Callable[[bytes], bytes]) -> bytes:
    """The authority's signature of a key, as its JWK has it."""
    return sign(_key_statement(key.kid, public_bytes(key)))


def _key_statement(kid: str, raw: bytes) -> bytes:
    return KEY_SIGNED + kid.encode() + b"\0" + raw


def _dated_statement(kid: str, raw: bytes, end: int) -> bytes:
    return DATED_KEY_SIGNED + kid.encode() + b"\0" + raw + str(end).encode()


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
