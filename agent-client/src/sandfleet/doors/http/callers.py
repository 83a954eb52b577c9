"""Who calls: a key in each request, to an address of this machine, from a page that may. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from ipaddress import ip_address

from sandfleet.doors.http.forms import Failure
from sandfleet.doors.http.headers import Asked

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]{1,5})?")


def calling_key(key: bytes) -> str:
    """Return the key of callers, made from the key that signs links.

    >>> len(calling_key(b"0" * 32))
    43
    """
    return base64.urlsafe_b64encode(hmac.digest(key, b"calls", hashlib.sha256)).rstrip(b"=").decode()


def refusal(asked: Asked, key: str, origins: frozenset[str]) -> Failure | None:
    """Return why a call is not let in, None if it is."""
    if not _is_address(asked.host):
        why = "its Host is no IP address and not localhost: a page may have led its browser here"
        return Failure("permission_denied", f"cannot answer the call: {why}", "ForeignHost")
    origin = asked.first(b"origin")
    if origin and origin not in origins | {f"http://{asked.host}"}:
        why = f"pages of {origin[:200]} may not call (`sandfleet serve --allow-origin` lets them)"
        return Failure("permission_denied", f"cannot answer the call: {why}", "ForeignOrigin")
    scheme, _, token = asked.first(b"authorization").partition(" ")
    is_bearer = scheme.lower() == "bearer" and len(asked.all(b"authorization")) == 1
    if not (is_bearer and hmac.compare_digest(token.strip().encode(), key.encode())):
        why = "it lacks the header `Authorization: Bearer KEY` with the key that `sandfleet serve` has printed"
        return Failure("unauthenticated", f"cannot answer the call: {why}", "KeyInvalid" if token else "KeyMissing")
    return None


def cross_origin(asked: Asked, origins: frozenset[str]) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of another origin read an answer, or ask before its call."""
    if (origin := asked.first(b"origin")) not in origins:
        return []
    fields = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
    if asked.method != b"OPTIONS":
        return [*fields, (b"access-control-expose-headers", b"*")]
    names = asked.first(b"access-control-request-headers").encode("latin-1")
    methods = (b"access-control-allow-methods", b"POST, GET, DELETE")
    return [*fields, methods, (b"access-control-allow-headers", names), (b"access-control-max-age", b"600")]


def _is_address(host: str) -> bool:
    """Tell addresses from names: a foreign name may be made to lead here (DNS rebinding), an address cannot."""
    if not (match := _HOST.fullmatch(host)):
        return False
    try:
        ip_address(match[1] or match[2])
    except ValueError:
        return match[2] == "localhost"
    return True
