"""Requests whose sessions have ended, so that none is served again: by this leader with the reason, and by the next."""

import base64
import hashlib
from collections.abc import Mapping

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.plan.scheduler.recent import Recent

REMEMBERED = 16384
# The next leader gets digests of so many bytes, in chunks, the oldest of which is written over: 180 KB of text in all.
DIGEST, CHUNKS, IN_CHUNK = 8, 16, 1024
# The chunk that is being filled.
NEXT = "next"


class EndedClaims:
    def __init__(self) -> None:
        self._why: Recent[RequestKey, Problem] = Recent(REMEMBERED)
        # Digests, in order; and the same for look-ups.
        self._chunks: list[list[bytes]] = [[] for _ in range(CHUNKS)]
        self._digests: set[bytes] = set()
        self._at = 0
        self._changed: set[int] = set()

    def put(self, key: RequestKey, problem: Problem) -> None:
        self._why.put(key, problem)
        if (digest := _digest(key)) in self._digests:
            return
        if len(self._chunks[self._at]) >= IN_CHUNK:
            self._at = (self._at + 1) % CHUNKS
            self._digests.difference_update(self._chunks[self._at])
            self._chunks[self._at] = []
        self._chunks[self._at].append(digest)
        self._digests.add(digest)
        self._changed.add(self._at)

    def get(self, key: RequestKey) -> Problem | None:
        if (known := self._why.get(key)) is not None:
            return known
        if not self._digests or _digest(key) not in self._digests:
            return None
        return ClaimReason.CLAIM_ENDED.problem(
            "cannot claim: the sandbox of this request ended under an earlier leader"
        )

    def recall(self, told: Mapping[str, str]) -> None:
        """Takes over what an earlier leader has written, as far as it can be read."""
        self._chunks = [_read(told.get(f"{number:02}", "")) for number in range(CHUNKS)]
        self._digests = {digest for chunk in self._chunks for digest in chunk}
        self._at = int(told[NEXT]) % CHUNKS if told.get(NEXT, "").isdecimal() and len(told[NEXT]) < CHUNKS else 0
        self._changed.clear()

    def take_changed(self) -> dict[str, str]:
        """The text to write since the last call; empty: nothing has changed."""
        changed, self._changed = self._changed, set()
        if not changed:
            return {}
        chunks = {f"{one:02}": base64.b64encode(b"".join(self._chunks[one])).decode("ascii") for one in sorted(changed)}
        return {**chunks, NEXT: str(self._at)}

    def untake(self, changed: Mapping[str, str]) -> None:
        """Takes a text back that could not be written."""
        self._changed |= {int(name) for name in changed if name != NEXT}


def _digest(key: RequestKey) -> bytes:
    return hashlib.sha256(f"{key.holder}\0{key.request_id}\0{key.pool}".encode()).digest()[:DIGEST]


def _read(text: str) -> list[bytes]:
    try:
        data = base64.b64decode(text, validate=True)[: DIGEST * IN_CHUNK]
    except ValueError:
        return []
    return [data[start : start + DIGEST] for start in range(0, len(data) - DIGEST + 1, DIGEST)]
