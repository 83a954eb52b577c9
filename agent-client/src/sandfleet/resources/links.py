"""Links to ports of sandboxes: signed, of one port of one sandbox, for a time; `sandfleet serve` checks them."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandfleet._fleets.embedded import state_base
from sandfleet.errors import AlreadyExistsError, InvalidArgument, PreconditionFailed

PARAMETER = "sandfleet-link"
MOST_PORT = 65535
_DOMAIN = "localhost"
_HOST = re.compile(rf"([1-9][0-9]{{0,4}})-([a-z0-9][a-z0-9-]*)\.{_DOMAIN}(?::[0-9]{{1,5}})?")
# Bytes of one part of a name in DNS.
_MOST_LABEL = 63


@dataclass(frozen=True, slots=True)
class Place:
    """A port of a sandbox."""

    port: int
    sandbox_id: str

    @property
    def host(self) -> str:
        """The name of its origin. Raises InvalidArgument where the id cannot be part of a name."""
        host = f"{self.port}-{self.sandbox_id}.{_DOMAIN}"
        if place_at(host) != self:
            raise InvalidArgument(f"cannot link to sandbox {self.sandbox_id!r}: its id cannot be part of a host's name")
        return host


def place_at(host: str) -> Place | None:
    """Return the port and sandbox that a Host header names, if it does.

    >>> place_at("8000-s1.localhost:7800")
    Place(port=8000, sandbox_id='s1')
    """
    if not (match := _HOST.fullmatch(host)) or len(host.partition(".")[0]) > _MOST_LABEL:
        return None
    port = int(match[1])
    return Place(port, match[2]) if port <= MOST_PORT else None


def signed(key: bytes, place: Place, until: int) -> str:
    """Return the token that opens a place until that second of the epoch."""
    text = f"{place.port}\n{place.sandbox_id}\n{until}".encode()
    return f"{until}.{base64.urlsafe_b64encode(hmac.digest(key, text, hashlib.sha256)).rstrip(b'=').decode()}"


def problem(key: bytes, place: Place, token: str, now: float) -> str:
    """Say why a token does not open a place; "" if it does."""
    until, dot, _ = token.partition(".")
    if not (dot and until.isascii() and until.isdigit() and len(until) < len(str(1 << 63))):
        return "it is damaged"
    if not hmac.compare_digest(signed(key, place, int(until)).encode(), token.encode()):
        return "it is damaged, of another sandbox or port, or of an earlier `sandfleet serve`"
    return "it has expired" if int(until) <= now else ""


def url(place: Place, until: int) -> str:
    """Return a link by the server that runs on this machine. Raises PreconditionFailed, InvalidArgument."""
    # In this order, since a wrong argument stays wrong when a server runs.
    host = place.host
    try:
        with _record().open() as file:
            if not _locked(file.fileno(), fcntl.LOCK_SH):
                found = json.load(file)
                token = signed(bytes.fromhex(found["key"]), place, until)
                return f"http://{host}:{found['port']}/?{PARAMETER}={token}"
    except FileNotFoundError:
        pass
    why = "no server runs on this machine: start one with `sandfleet serve`"
    raise PreconditionFailed(f"cannot make a link: {why}", reason="NotServed")


@contextmanager
def published(port: int) -> Iterator[bytes]:
    """Let programs of this user make links to a server, and yield their key. Raises AlreadyExistsError."""
    path = _record()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The lock ends with this process, however it ends: a record without a lock is one of a server that has ended.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        if not _locked(file.fileno(), fcntl.LOCK_EX):
            raise AlreadyExistsError("cannot serve: another `sandfleet serve` of this user runs on this machine")
        key = secrets.token_bytes(32)
        file.truncate()
        json.dump({"port": port, "key": key.hex()}, file)
        file.flush()
        yield key


def _record() -> Path:
    return state_base() / "serve.json"


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
