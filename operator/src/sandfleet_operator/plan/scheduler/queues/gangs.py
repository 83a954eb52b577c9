"""Gangs: claims that are admitted, bound and answered together or not at all.

A gang is in its queue's line as one entry, from when its last claim has come. At its turn all of it gets its quota, or
nothing. Its claims are then owed a sandbox each: they hold their quota, and are served before all others of the pool.
"""

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sandfleet_operator.api.reasons import AdmissionReason, QueueReason
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.plan.scheduler.claim_queue import Waiting, WhyNot
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger, Turn
from sandfleet_operator.plan.scheduler.queues.quota import Verdict, vector
from sandfleet_operator.plan.scheduler.queues.weights import ONE_SANDBOX, arrival

# Seconds that the next leader has to complete a gang of which a part is bound: its callers have to come back.
GRACE = 60.0
# Seconds for which claims of other queues pass a gang that lacks sandboxes only. Then the pool keeps them for it.
PATIENCE = 60.0


@dataclass(slots=True)
class Gang:
    size: int
    # Claims whose callers are there.
    joined: set[RequestKey] = field(default_factory=set)
    # Of these: before the gang is admitted.
    waiting: dict[RequestKey, Waiting] = field(default_factory=dict)
    # What stands for it in the line, once it is complete.
    entry: Waiting | None = None
    admitted: bool = False
    # Claim → sandbox that is bound and not answered yet.
    bound: dict[RequestKey, str] = field(default_factory=dict)
    # When this leader has found what an earlier one had bound.
    found: float | None = None


class Gangs:
    """Of one pool."""

    def __init__(self, pool: str, ledger: Ledger) -> None:
        self._pool = pool
        self._ledger = ledger
        # The queues whose quota is kept for a gang that is here.
        self._keeping: set[str] = set()
        self._gangs: dict[tuple[str, str], Gang] = {}
        # Admitted claims without a sandbox, in order of arrival.
        self.owed: list[Waiting] = []
        # Sandbox that was lost → the admitted claim that has its quota when it is gone.
        self._following: dict[str, Waiting] = {}

    def check(self, claim: Claim) -> None:
        """Raises FleetError where the claim does not fit those of its gang that have come."""
        gang = self._of(claim)
        if gang is None or claim.gang is None or claim.key in gang.joined:
            return
        known = next((one.claim for one in gang.waiting.values()), claim)
        alike = (known.queue, known.priority, gang.size) == (claim.queue, claim.priority, claim.gang.size)
        if not alike or (len(gang.joined | set(gang.bound)) >= gang.size and claim.key not in gang.bound):
            why = "its queue, priority or size differs from the others'" if not alike else "it is complete without it"
            text = f"cannot claim: the claim does not belong to gang {claim.gang.gang_id!r}: {why}"
            raise AdmissionReason.INVALID_GANG.error(text, claim.gang.gang_id)

    def __iter__(self) -> Iterator[Waiting]:
        """The claims without a sandbox, in any order."""
        for gang in self._gangs.values():
            yield from gang.waiting.values()
        yield from self.owed
        yield from self._following.values()

    def add(self, waiting: Waiting) -> Waiting | None:
        """The claim has no sandbox: it came, or lost its own. The entry of its gang, if that is complete now."""
        gang = self._joined(waiting.claim)
        if gang.admitted and waiting.follows:
            self._following[waiting.follows] = waiting
            return None
        if gang.admitted:
            self._owe(waiting)
            return None
        gang.waiting[waiting.claim.key] = waiting
        return self._completed(gang)

    def discard(self, waiting: Waiting) -> tuple[bool, Waiting | None]:
        """The claim has a sandbox on its way, or leaves. Whether it was here, and the entry that leaves the line."""
        following = self._following.get(waiting.follows)
        if following is not None and following.number == waiting.number:
            del self._following[waiting.follows]
            return True, None
        place = bisect.bisect_left(self.owed, arrival(waiting), key=arrival)
        if place < len(self.owed) and self.owed[place].number == waiting.number:
            del self.owed[place]
            # What its sandbox uses is charged in the same step.
            self._ledger.discharge(waiting.claim.queue, _weight(waiting), frees=False)
            return True, None
        gang = self._of(waiting.claim)
        if gang is None or gang.waiting.pop(waiting.claim.key, None) is None:
            return False, None
        entry, gang.entry = gang.entry, None
        if entry is not None:
            self._keep(waiting.claim.queue, None)
        return True, entry

    def gone(self, sandbox_id: str) -> None:
        """The sandbox is gone: its quota is that of the claim that follows it."""
        waiting = self._following.pop(sandbox_id, None)
        if waiting is not None:
            self._owe(waiting)

    def leave(self, claim: Claim) -> None:
        """The claim is answered, or does not wait any more."""
        gang = self._of(claim)
        if gang is None:
            return
        gang.joined.discard(claim.key)
        gang.bound.pop(claim.key, None)
        self._ledger.free(claim.queue)
        if not gang.joined and not gang.bound:
            del self._gangs[_key(claim)]

    def admit(self, entry: Waiting) -> None:
        """Its turn has come, and its quota permits all of it."""
        gang = self._of(entry.claim)
        assert gang is not None, "an entry stands for a gang"
        gang.admitted, gang.entry = True, None
        self._keep(entry.claim.queue, None)
        waiting, gang.waiting = gang.waiting, {}
        for one in waiting.values():
            self._owe(one)

    def bind(self, claim: Claim, sandbox_id: str) -> list[str]:
        """The sandbox is open for the claim. The sandboxes of the whole gang once all are, else none."""
        gang = self._joined(claim)
        gang.bound[claim.key] = sandbox_id
        return list(gang.bound.values()) if len(gang.joined) == len(gang.bound) == gang.size else []

    # Quota that is kept from claims of the same queue that come later, here or at other pools.

    def judged(self, waiting: Waiting, turn: Turn, verdict: Verdict, now: float, *, before_gang: bool) -> Verdict:
        """Of the first claim of a line, whose quota has this verdict, with what is kept for gangs at other pools.

        `before_gang`: a gang stands behind it. What passes the claim would pass that gang, too.
        """
        queue = waiting.claim.queue
        if waiting.claim.gang is not None and verdict is not Verdict.HELD:
            # One that lacks sandboxes only lets others pass for a while.
            keeps = not verdict.admits or now - waiting.asked >= PATIENCE
            self._keep(queue, turn if keeps else None)
        elif before_gang and verdict in (Verdict.REACHED, Verdict.EXHAUSTED):
            self._keep(queue, turn)
        kept = verdict.admits and self.kept_at(waiting, turn) is not None
        return Verdict.REACHED if kept else verdict

    def kept_at(self, waiting: Waiting, turn: Turn) -> str | None:
        """The other pool where a gang of its queue waits for the quota that this claim would use; None: nowhere."""
        return self._ledger.kept_at(waiting.claim.queue, turn, self._pool)

    def let_in(self, waiting: Waiting, turn: Turn) -> bool:
        """Whether no gang, also of this pool, comes before a claim that waits beside the lines."""
        return self._ledger.kept_at(waiting.claim.queue, turn) is None

    def let_pass(self) -> None:
        """The pool hands out nothing."""
        for queue in list(self._keeping):
            self._keep(queue, None)

    def _keep(self, queue: str, turn: Turn | None) -> None:
        if turn is None:
            self._keeping.discard(queue)
        else:
            self._keeping.add(queue)
        self._ledger.keep_for_gang(queue, self._pool, turn)

    # After a change of leader.

    def adopt(self, claim: Claim, sandbox_id: str, now: float) -> list[str]:
        """An earlier leader has bound it, and may not have answered. All sandboxes of its gang, once they are found."""
        assert claim.gang is not None
        gang = self._gangs.setdefault(_key(claim), Gang(claim.gang.size, found=now))
        gang.bound[claim.key] = sandbox_id
        return list(gang.bound.values()) if len(gang.bound) == gang.size else []

    def rejoin(self, claim: Claim) -> Waiting | None:
        """The caller of a bound claim is back. What stands for the rest of its gang, if all callers are."""
        return self._completed(self._joined(claim))

    def abandoned(self, now: float) -> list[tuple[list[str], list[RequestKey]]]:
        """Of gangs that are not completed in time: the sandboxes that are bound, and the claims that wait."""
        late = [
            (key, gang) for key, gang in self._gangs.items() if gang.found is not None and now >= gang.found + GRACE
        ]
        for key, gang in late:
            if not gang.joined:
                del self._gangs[key]
        return [(list(gang.bound.values()), list(gang.joined)) for _, gang in late]

    # Queries.

    def members(self, claim: Claim) -> list[RequestKey]:
        """The claims of its gang whose callers are there; the claim alone where it has no gang."""
        gang = self._of(claim)
        return sorted(gang.joined, key=repr) if gang is not None else [claim.key]

    def entry_of(self, waiting: Waiting) -> Waiting | None:
        """What stands for the claim in the line; None where its gang is not complete."""
        gang = self._of(waiting.claim)
        return gang.entry if gang else None

    def place_owed(self, waiting: Waiting) -> int | None:
        """From 1, among the claims that are owed a sandbox; None where it is none of them."""
        place = bisect.bisect_left(self.owed, arrival(waiting), key=arrival)
        return place + 1 if place < len(self.owed) and self.owed[place].number == waiting.number else None

    def why_not(self, waiting: Waiting) -> WhyNot | None:
        """Why the gang is not in the line; None where it is, or was admitted."""
        gang = self._of(waiting.claim)
        if gang is None or gang.entry is not None or gang.admitted:
            return None
        why = f"{len(gang.joined)} of the {gang.size} claims of its gang are there"
        return WhyNot(QueueReason.GANG_INCOMPLETE.value, why)

    def _of(self, claim: Claim) -> Gang | None:
        return self._gangs.get(_key(claim)) if claim.gang else None

    def _joined(self, claim: Claim) -> Gang:
        assert claim.gang is not None
        gang = self._gangs.setdefault(_key(claim), Gang(claim.gang.size))
        gang.joined.add(claim.key)
        return gang

    @staticmethod
    def _completed(gang: Gang) -> Waiting | None:
        if len(gang.joined) < gang.size or not gang.waiting:
            return None
        last = max(gang.waiting.values(), key=arrival)
        gang.entry = replace(last, many=len(gang.waiting))
        return gang.entry

    def _owe(self, waiting: Waiting) -> None:
        bisect.insort(self.owed, waiting, key=arrival)
        self._ledger.charge(waiting.claim.queue, _weight(waiting))


def _key(claim: Claim) -> tuple[str, str]:
    assert claim.gang is not None
    return claim.key.holder, claim.gang.gang_id


def _weight(waiting: Waiting) -> tuple[float, float, float]:
    amount = waiting.claim.amount
    return vector(amount) if amount is not None else ONE_SANDBOX


def expanded(entries: Iterable[Waiting]) -> Iterator[Waiting]:
    """Each entry as often as it stands for a claim."""
    for entry in entries:
        for _ in range(entry.many):
            yield entry
