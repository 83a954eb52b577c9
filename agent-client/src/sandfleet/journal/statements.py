"""What the fleet signs of a head, and which of its signatures hold."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sandfleet.journal import ed25519
from sandfleet.journal.records import loads

if TYPE_CHECKING:
    from sandfleet.journal.heads import SignedHead

# What is signed begins with this, so that the signature means nothing else.
PREFIX = b"sandfleet journal head\0"
MAX_KEYS = 64


def statement(signed: SignedHead) -> bytes:
    """Return the bytes that the fleet has signed."""
    said = {
        "hash": signed.head.hash,
        "number": signed.head.number,
        "pod_uid": signed.pod_uid,
        "session": signed.session,
        "time": signed.time,
    }
    return PREFIX + json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


class Keys:
    """The fleet's public keys, by their ids. Where none are given, the keys that came with the signatures count."""

    def __init__(self, given: Mapping[str, bytes] | None = None) -> None:
        self.given = given

    @property
    def pinned(self) -> bool:
        """Whether the reader has named the keys."""
        return self.given is not None

    def holds(self, signed: SignedHead) -> bool:
        """Return whether one of the fleet's keys has signed this."""
        public = signed.public_key if self.given is None else self.given.get(signed.key_id, b"")
        return ed25519.verify(public, statement(signed), signed.signature)


def read_keys(data: bytes) -> Keys:
    """Read a JWKS, as the ConfigMap `sandfleet-keys` and the file `keys.json` of a local fleet have it.

    Raises ValueError with "cannot X: why".
    """
    try:
        keys = dict(map(_key, _listed(loads(data))))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot read the fleet's keys: {_why(error)}") from error
    return Keys(keys)


def _listed(found: Any) -> list[Any]:
    listed = found["keys"]
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError(f"it has not a list of at most {MAX_KEYS} keys")
    return listed


def _why(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _key(one: Any) -> tuple[str, bytes]:
    if not isinstance(one, dict) or one.get("crv") != "Ed25519":
        raise ValueError("a key is not of Ed25519")
    public = unbase64(one["x"])
    if not isinstance(one["kid"], str) or len(public) != 32:
        raise ValueError("a key has not the form of one")
    return one["kid"], public


def base64url(data: bytes) -> str:
    """Write bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def unbase64(text: object) -> bytes:
    """Read base64url without padding. Raises ValueError."""
    if not isinstance(text, str) or len(text) > 1024:
        raise ValueError("it is no short base64")
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError("it is no base64") from error


def valid(signed: Iterable[SignedHead], keys: Keys, most: int = 256) -> tuple[list[SignedHead], list[SignedHead]]:
    """Return the heads with good signatures, and those with bad ones. The newest `most` are looked at."""
    good: list[SignedHead] = []
    bad: list[SignedHead] = []
    for one in sorted(signed, key=lambda each: each.head.number)[-most:]:
        (good if keys.holds(one) else bad).append(one)
    return good, bad
