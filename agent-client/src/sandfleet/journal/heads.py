"""Heads that others than the executor have kept: the client those of replies, the fleet those that it has signed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet.journal.records import Head, parse_head

# Of one pod, and pods of one session, whose heads are kept.
MAX_HEADS, MAX_PODS = 1024, 16
MAX_SIGNED, MAX_CONTRADICTIONS = 256, 16


@dataclass(frozen=True, slots=True)
class KeptHead:
    """A head that a client has heard. `pod_uid`: whose executor's journal it is of."""

    pod_uid: str
    head: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHead:
    """A head that the fleet has read itself and signed.

    session     the sandbox's id.
    time        when the fleet read it, in milliseconds since the epoch.
    key_id      which of the fleet's keys has signed; `public_key` is that key, 32 bytes of Ed25519.
    vouched     the signature of the cluster's authority over the key; empty on one machine.
    """

    session: str
    pod_uid: str
    head: Head
    time: int
    key_id: str
    signature: bytes
    public_key: bytes = b""
    vouched: bytes = b""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An executor has told two heads with one number: it has changed its past."""

    pod_uid: str
    kept: Head
    told: Head


class KeptHeads:
    """The heads that a client has heard, bounded: of many, newer ones are kept closer together than older ones."""

    def __init__(self) -> None:
        # Pod → number → hash; the newest pod and the newest number stand last.
        self._heads: dict[str, dict[int, str]] = {}
        self._signed: dict[tuple[str, int], SignedHead] = {}
        self._contradictions: list[Contradiction] = []

    @property
    def newest(self) -> KeptHead | None:
        """The newest head of the newest pod."""
        if not self._heads:
            return None
        pod_uid, heads = next(reversed(self._heads.items()))
        number = max(heads)
        return KeptHead(pod_uid, Head(number, heads[number]))

    @property
    def all(self) -> tuple[KeptHead, ...]:
        """All that are kept, pod by pod, by number."""
        return tuple(
            KeptHead(pod_uid, Head(number, heads[number]))
            for pod_uid, heads in self._heads.items()
            for number in sorted(heads)
        )

    @property
    def signed(self) -> tuple[SignedHead, ...]:
        """The heads that the fleet has signed, in the order in which they came."""
        return tuple(self._signed.values())

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Heads that cannot both be of one journal."""
        return tuple(self._contradictions)

    def told(self, pod_uid: str, text: str) -> None:
        """Keep the head that a reply ended with. Text that is no head is dropped."""
        head = parse_head(text)
        if head is not None and head.number:
            self.keep(pod_uid, head)

    def keep(self, pod_uid: str, head: Head) -> None:
        """Keep a head, unless another one has its number."""
        heads = self._heads.setdefault(pod_uid, {})
        known = heads.setdefault(head.number, head.hash)
        if known != head.hash and len(self._contradictions) < MAX_CONTRADICTIONS:
            self._contradictions.append(Contradiction(pod_uid, Head(head.number, known), head))
        if len(heads) > MAX_HEADS:
            self._heads[pod_uid] = _thinned(heads)
        if len(self._heads) > MAX_PODS:
            del self._heads[next(iter(self._heads))]

    def keep_signed(self, heads: Iterable[SignedHead]) -> None:
        """Keep heads that the fleet has signed; the oldest go."""
        for one in heads:
            self._signed[one.pod_uid, one.head.number] = one
        while len(self._signed) > MAX_SIGNED:
            del self._signed[next(iter(self._signed))]


def _thinned(heads: dict[int, str]) -> dict[int, str]:
    """Drop each second head of the older half."""
    numbers = sorted(heads)
    half = len(numbers) // 2
    return {number: heads[number] for number in (*numbers[:half:2], *numbers[half:])}
