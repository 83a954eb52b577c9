"""Heads of journals that the fleet has read from executors: when to sign one, and what it signs.

The client's sandfleet/journal/statements.py makes the same statement of a head, and checks its signature.
"""

import base64
import json
import re
from dataclasses import dataclass

# What is signed begins with this, so that the signature means nothing else.
PREFIX = b"sandfleet journal head\0"
# Signed heads that are kept of one session.
MAX_KEPT = 64
MAX_NUMBER = (1 << 63) - 1

# Seconds before the end of a lease in which the last head is signed.
LAST_SECONDS = 5.0
# So many seconds before it could end idle, a session is read: one look later there is time left for the answer.
IDLE_SECONDS = 5.0

_MARKS = ("signature", "public_key", "key_signature")
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


def remembered(text: str, session: str, pod_uid: str) -> Signed | None:
    """The newest signed head as the pod's annotation has it; None where that is of another session, or unreadable."""
    try:
        said = json.loads(text)
        head = Head(said["number"], said["hash"])
        marks = [base64.b64decode(said[name], validate=True) for name in _MARKS]
        time, key_id = said["time"], said["key_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    whole = type(head.number) is int and isinstance(head.hash, str) and type(time) is int and isinstance(key_id, str)
    if not whole or not is_well_formed(head) or (said.get("session"), said.get("pod_uid")) != (session, pod_uid):
        return None
    return Signed(
        session=session, pod_uid=pod_uid, head=head, time=time, key_id=key_id, **dict(zip(_MARKS, marks, strict=True))
    )


def remembrance(signed: Signed) -> str:
    """The text of the pod's annotation."""
    said = {"hash": signed.head.hash, "key_id": signed.key_id, "number": signed.head.number, "time": signed.time}
    marks = {name: base64.b64encode(getattr(signed, name)).decode("ascii") for name in _MARKS}
    return json.dumps({**said, **marks, "session": signed.session, "pod_uid": signed.pod_uid}, separators=(",", ":"))


def ends_soon(lease_expires: float | None, now: float) -> bool:
    """Whether the lease is about to end, and its executor still there to say its last head."""
    return lease_expires is not None and 0.0 < lease_expires - now <= LAST_SECONDS


def idle_pause(timeout: float) -> float:
    """Seconds between two readings of a session that ends so many seconds after its last use.

    One of them lies between the last use and the end, if the timeout is at least ten seconds.
    """
    return max(timeout - IDLE_SECONDS, timeout / 2)


def contradicts(head: Head, signed: Signed | None, pod_uid: str) -> bool:
    """Whether a journal that had the signed head cannot have this one: records have gone, or have been replaced."""
    if signed is None or signed.pod_uid != pod_uid:
        return False
    return head.number < signed.head.number or (head.number == signed.head.number and head.hash != signed.head.hash)


def is_due(head: Head, signed: Signed | None, pod_uid: str, records: int) -> bool:
    """Whether `records` records have passed since the last signature."""
    before = signed.head.number if signed is not None and signed.pod_uid == pod_uid else 0
    return head.number - before >= max(1, records)
