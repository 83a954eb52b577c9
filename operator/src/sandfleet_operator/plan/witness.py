"""Heads of journals that the fleet has read from executors: when to sign one, and what it signs.

The client's sandfleet/journal/statements.py makes the same statement of a head, and checks its signature.
"""

import json
import re
from dataclasses import dataclass

# What is signed begins with this, so that the signature means nothing else.
PREFIX = b"sandfleet journal head\0"
# Signed heads that are kept of one session.
MAX_KEPT = 64
MAX_NUMBER = (1 << 63) - 1

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest record of a journal, by its executor's word: its number, 0 where there is none, and its hash."""

    number: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A head with the fleet's signature. `time`: when it was read, in milliseconds since the epoch."""

    session: str
    pod_uid: str
    head: Head
    time: int
    key_id: str
    signature: bytes
    public_key: bytes
    key_signature: bytes = b""


def is_well_formed(head: Head) -> bool:
    return 0 <= head.number <= MAX_NUMBER and _HASH.fullmatch(head.hash) is not None


def statement(session: str, pod_uid: str, head: Head, time: int) -> bytes:
    """What is signed."""
    said = {"hash": head.hash, "number": head.number, "pod_uid": pod_uid, "session": session, "time": time}
    return PREFIX + json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def contradicts(head: Head, signed: Signed | None, pod_uid: str) -> bool:
    """Whether a journal that had the signed head cannot have this one: records have gone, or have been replaced."""
    if signed is None or signed.pod_uid != pod_uid:
        return False
    return head.number < signed.head.number or (head.number == signed.head.number and head.hash != signed.head.hash)


def is_due(head: Head, signed: Signed | None, pod_uid: str, records: int) -> bool:
    """Whether `records` records have passed since the last signature."""
    before = signed.head.number if signed is not None and signed.pod_uid == pod_uid else 0
    return head.number - before >= max(1, records)
