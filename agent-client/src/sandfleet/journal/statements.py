"""What the fleet signs of a head, and which of its signatures hold."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandfleet.journal import signatures
from sandfleet.journal.records import loads

if TYPE_CHECKING:
    from sandfleet.journal.heads import SignedHead
    from sandfleet.journal.signatures import Authority

# What is signed begins with this, so that the signature means nothing else.
PREFIX = b"sandfleet journal head\0"
# What a cluster's authority signs of a key of the fleet begins with this.
KEY_SIGNED = b"sandfleet token key\0"
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
    """The fleet's public keys, by their ids. Where none are given, the keys that came with the signatures count.

    `authorities` are the keys of a cluster's authority: then only keys count that one of them has signed. `vouched` has
    its signatures of the given keys.
    """

    def __init__(
        self,
        given: Mapping[str, bytes] | None = None,
        authorities: Sequence[Authority] = (),
        vouched: Mapping[str, bytes] | None = None,
    ) -> None:
        self.given, self.authorities, self._vouched = given, tuple(authorities), vouched or {}
        self._known: dict[tuple[str, bytes, bytes], bool] = {}

    @property
    def pinned(self) -> bool:
        """Whether the reader has named the keys, or who has to vouch for them."""
        return self.given is not None or bool(self.authorities)

    def holds(self, signed: SignedHead) -> bool:
        """Return whether one of the fleet's keys has signed this."""
        public = signed.public_key if self.given is None else self.given.get(signed.key_id, b"")
        if self.authorities and not self._is_vouched(signed.key_id, public, signed.vouched):
            return False
        return signatures.fleet_signed(public, statement(signed), signed.signature)

    def _is_vouched(self, key_id: str, public: bytes, vouched: bytes) -> bool:
        asked = (key_id, public, self._vouched.get(key_id, vouched))
        if asked not in self._known:
            said = KEY_SIGNED + key_id.encode("utf-8", "surrogatepass") + b"\0" + public
            self._known[asked] = any(signatures.authority_signed(key, said, asked[2]) for key in self.authorities)
        return self._known[asked]


def read_keys(data: bytes, authorities: Sequence[Authority] = ()) -> Keys:
    """Read a JWKS, as the ConfigMap `sandfleet-keys` and the file `keys.json` of a local fleet have it.

    Raises ValueError with "cannot X: why".
    """
    try:
        listed = _listed(loads(data))
        keys = dict(map(_key, listed))
        vouched = {one["kid"]: unbase64(one["sandfleet_signature"]) for one in listed if "sandfleet_signature" in one}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot read the fleet's keys: {_why(error)}") from error
    return Keys(keys, authorities, vouched)


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
