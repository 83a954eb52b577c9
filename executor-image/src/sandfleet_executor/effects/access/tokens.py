"""Capability tokens (JWT, EdDSA) checked with public keys from a file that may change at any time.

In a pod the file is a ConfigMap, which other accounts of its namespace may be able to write. There the pod's manifest
names the key of the control plane's authority, and only keys that it has signed count.
"""

import base64
import binascii
import json
import logging
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sandfleet_executor.core.access.token_claims import (
    LEEWAY_SECONDS,
    Caller,
    TokenError,
    TokenReason,
    check_scope,
    check_session,
    check_time,
    read_claims,
)
from sandfleet_executor.core.errors import ConfigError

MAX_TOKEN_CHARACTERS = 4096
# Of a statement that has a text for people in it.
MAX_STATEMENT_CHARACTERS = 32 << 10
MAX_CACHED_TOKENS = 1024
MAX_KEYS_FILE_BYTES = 64 << 10
MAX_KEYS = 64
# A token with an unknown kid may come before the file's change shows; a flood of them must not become a flood of reads.
UNKNOWN_KID_REREAD_SECONDS = 1.0
# What the authority signs begins with this, so that the signature means nothing else.
KEY_SIGNED = b"sandfleet dated token key\0"

_log = logging.getLogger(__name__)

# PyJWT checks the signature; the claims are checked by core.access.token_claims, against a clock that is an argument.
_SIGNATURE_ONLY: Any = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key, and the time in seconds since the epoch after which it counts no more."""

    public: Ed25519PublicKey
    end: float = math.inf


class TokenVerifier:
    """Verifies tokens for one audience. Not for several threads at once.

    `clock` gives seconds since the epoch. A keys file that is missing or broken leaves the keys as they were. With an
    `authority` only keys that it has signed are taken.
    """

    def __init__(
        self,
        keys_file: Path,
        audience: str,
        clock: Callable[[], float],
        contract: str = "autonomous",
        authority: ec.EllipticCurvePublicKey | None = None,
    ) -> None:
        self._contract = contract
        self._authority = authority
        self._keys_file = keys_file
        self._audience = audience
        self._clock = clock
        self._keys: Mapping[str, TokenKey] = {}
        self._file_mark: tuple[int, int, int] | None = None
        self._next_forced_read = 0.0
        self._cache: OrderedDict[str, Caller] = OrderedDict()
        # The session that the sandbox serves; empty before it serves any.
        self.session: Callable[[], str] = lambda: ""
        self._refresh()

    def verify(self, token: str, scope: str) -> Caller:
        """The caller that the token stands for. Raises TokenError."""
        now = self._clock()
        self._refresh()
        caller = self._cache.get(token)
        if caller is None:
            caller = self._check(token, now)
            check_time(caller, now)
            self._remember(token, caller)
        else:
            self._cache.move_to_end(token)
            # The wall clock may jump, so the times are checked at each call.
            check_time(caller, now)
        check_session(caller, self.session())
        check_scope(caller, scope)
        return caller

    def statement(self, text: str) -> Mapping[str, Any]:
        """The claims of a statement that is no token, whatever they say. Raises TokenError."""
        self._refresh()
        return self._signed(text, self._clock(), MAX_STATEMENT_CHARACTERS)[0]

    def _check(self, token: str, now: float) -> Caller:
        claims, key = self._signed(token, now, MAX_TOKEN_CHARACTERS)
        caller = read_claims(claims, self._audience, self._contract)
        # It is remembered, and no token counts longer than its key.
        return replace(caller, expires=min(caller.expires, key.end))

    def _signed(self, token: str, now: float, most: int) -> tuple[Mapping[str, Any], TokenKey]:
        if len(token) > most:
            raise TokenError(TokenReason.INVALID, f"cannot accept the token: it has over {most} characters")
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"), now)
            claims: Mapping[str, Any] = jwt.decode(token, key.public, algorithms=["EdDSA"], options=_SIGNATURE_ONLY)
        # PyJWT lets a RecursionError of JSON and a ValueError of the key through.
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise TokenError(
                TokenReason.INVALID, "cannot accept the token: it is malformed or its signature is wrong"
            ) from error
        return claims, key

    def _key(self, kid: object, now: float) -> TokenKey:
        if isinstance(kid, str):
            if kid not in self._keys and not 0 <= self._next_forced_read - now <= UNKNOWN_KID_REREAD_SECONDS:
                self._next_forced_read = now + UNKNOWN_KID_REREAD_SECONDS
                self._file_mark = None
                self._refresh()
            known = self._keys.get(kid)
            if known is not None and now < known.end + LEEWAY_SECONDS:
                return known
        raise TokenError(TokenReason.INVALID, "cannot accept the token: it is signed by no known key")

    def _remember(self, token: str, caller: Caller) -> None:
        self._cache[token] = caller
        if len(self._cache) > MAX_CACHED_TOKENS:
            self._cache.popitem(last=False)

    def _refresh(self) -> None:
        """Reads the keys again if the file has changed."""
        try:
            status = os.stat(self._keys_file)  # noqa: PTH116 - on the path of each RPC; Path.stat costs twice as much
        except OSError:
            # In the middle of being replaced, or gone: the keys that are known stay.
            return
        mark = (status.st_mtime_ns, status.st_ino, status.st_size)
        if mark != self._file_mark:
            self._file_mark = mark
            self._load()

    def _load(self) -> None:
        try:
            keys = read_keys(self._keys_file, self._authority)
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("cannot read the keys of tokens, the old ones stay: %s", error)
            return
        if _told_apart(keys) != _told_apart(self._keys):
            # A key that was taken away takes its tokens with it.
            self._cache.clear()
        self._keys = keys


def _told_apart(keys: Mapping[str, TokenKey]) -> Mapping[str, tuple[bytes, float]]:
    return {kid: (key.public.public_bytes_raw(), key.end) for kid, key in keys.items()}


def read_keys(keys_file: Path, authority: ec.EllipticCurvePublicKey | None = None) -> Mapping[str, TokenKey]:
    """The Ed25519 keys of a JWKS file by their kid; keys of other kinds are left out. Raises OSError, ValueError.

    With an `authority`, keys that it has not signed with their end are left out, too.
    """
    with keys_file.open("rb") as file:
        text = file.read(MAX_KEYS_FILE_BYTES + 1)
    if len(text) > MAX_KEYS_FILE_BYTES:
        raise ValueError(f"cannot read the keys file: it has over {MAX_KEYS_FILE_BYTES} bytes")
    document = json.loads(text)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise ValueError(f"cannot read the keys file: it is no JWKS of up to {MAX_KEYS} keys")
    known = [key for key in keys if isinstance(key, dict) and key.get("crv") == "Ed25519"]
    if authority is not None:
        signed = [key for key in known if _is_signed(key, authority)]
        if len(signed) < len(known):
            _log.warning("%d keys of tokens are not signed by the authority and do not count", len(known) - len(signed))
        known = signed
    pairs = ((_read_key(key), float(key["sandfleet_end"]) if authority is not None else math.inf) for key in known)
    return {kid: TokenKey(public, end) for (kid, public), end in pairs}


def read_authority(text: str) -> ec.EllipticCurvePublicKey:
    """The authority's public key from base64 of its DER form. Raises ConfigError."""
    try:
        key = serialization.load_der_public_key(base64.b64decode(text, validate=True))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"cannot take keys_authority: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError("cannot take keys_authority: it is no key of an elliptic curve")
    return key


def _is_signed(key: Mapping[str, Any], authority: ec.EllipticCurvePublicKey) -> bool:
    try:
        kid, public = _read_key(key)
        signature, end = _base64url(key["sandfleet_dated_signature"]), key["sandfleet_end"]
        if type(end) is not int:
            return False
        said = KEY_SIGNED + kid.encode() + b"\0" + public.public_bytes_raw() + str(end).encode()
        authority.verify(signature, said, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return False
    return True


def _read_key(key: Mapping[str, Any]) -> tuple[str, Ed25519PublicKey]:
    kid, x = key.get("kid"), key.get("x")
    if not isinstance(kid, str) or not kid or not isinstance(x, str):
        raise ValueError("cannot read the keys file: a key without kid or x")
    return kid, Ed25519PublicKey.from_public_bytes(_base64url(x))


def _base64url(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("cannot read the keys file: a key that is no base64url") from error
