"""Preempting sessions on borrowed quota: who needs quota back, who may go, and the return of those that went."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from sandfleet_operator.api.kinds.queue import Preemption
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.queues.declared import DeclaredSandboxes
from sandfleet_operator.plan.scheduler.queues.preemption import Candidate, Levels, Need, Policy
from sandfleet_operator.plan.scheduler.queues.preemption.idle_longest import idle_longest
from sandfleet_operator.plan.scheduler.queues.quota import NOTHING, Verdict, above, vector

# In the place of a pool: quota that was taken back stays with its owner until its claims have it.
RECLAIMED = "preemption"
# Claims of one queue that sessions are preempted for at once.
MOST_CLAIMS = 64
# Sessions that are looked at for one cohort: those first whose leases were not renewed for the longest time.
MOST_CANDIDATES = 512
LEAVING = (State.SUSPENDING, State.ENDED)


@dataclass(frozen=True, slots=True)
class Idle:
    """What is known of a session that does nothing: for how many seconds, and whether it can be suspended."""

    seconds: float
    kept: bool = True


class Preemptions:
    def __init__(
        self, inventory: Inventory, queues: PoolQueues, declared: DeclaredSandboxes, policy: Policy = idle_longest
    ) -> None:
        self._inventory = inventory
        self._ledger = inventory.ledger
        self._queues = queues
        self._declared = declared
        self._policy = policy
        self._reclaiming: set[str] = set()

    def candidates(self, now: float) -> Iterator[list[Sandbox]]:
        """The sessions whose executors are to be asked whether they are idle, for each cohort with an owner in need.

        To be called every second or so: from here on freed quota waits for its owners. Each cohort is looked at when it
        is asked for.
        """
        needs = self._needs(now)
        self._reclaim({need.queue for need in needs}, now)
        return map(self._candidates, self._cohorts(needs))

    def _candidates(self, members: frozenset[str]) -> list[Sandbox]:
        queues = (queue for queue in sorted(members) if self._may_lose(queue))
        sandboxes = chain.from_iterable(map(self._inventory.serving, queues))
        return heapq.nsmallest(MOST_CANDIDATES, (one for one in sandboxes if one.bound), key=_last_renewal)

    def victims(self, idle: Mapping[str, Idle], leaving: Collection[str], now: float) -> Iterator[list[Candidate]]:
        """Whom to preempt, of each cohort when it is asked for. `leaving`: the ids of those that are on their way."""
        needs = self._needs(now)
        members = {queue: cohort for cohort in self._cohorts(needs) for queue in cohort}
        found: dict[frozenset[str], list[str]] = {cohort: [] for cohort in members.values()}
        for sandbox_id in idle:
            sandbox = self._inventory.get(sandbox_id)
            if sandbox is not None and sandbox.claim is not None and sandbox.claim.queue in members:
                found[members[sandbox.claim.queue]].append(sandbox_id)
        return (self._victims(cohort, needs, {one: idle[one] for one in ids}, leaving) for cohort, ids in found.items())

    def _victims(
        self, members: frozenset[str], needs: Iterable[Need], idle: Mapping[str, Idle], leaving: Collection[str]
    ) -> list[Candidate]:
        sandboxes = ((self._inventory.get(one), how) for one, how in idle.items() if one not in leaving)
        candidates = [
            _candidate(one, how) for one, how in sandboxes if one is not None and self._may_go(one, kept=how.kept)
        ]
        mine = [need for need in needs if need.queue in members]
        return self._policy(mine, self._levels(members, leaving), candidates)

    # Needs.

    def _needs(self, now: float) -> list[Need]:
        """Of queues whose next claim lacks nothing but what others have borrowed."""
        lent = (one for one in self._heads(now) if self._ledger.judge(one.queue, one.amount) is Verdict.LENT)
        return [replace(one, many=min(one.many, MOST_CLAIMS)) for one in lent]

    def _heads(self, now: float) -> Iterator[Need]:
        for state in self._queues.all():
            if not state.pool.closed:
                yield from state.queue.heads(now)
        yield from self._declared.heads(now)

    def _cohorts(self, needs: Iterable[Need]) -> list[frozenset[str]]:
        """The queues of each cohort with a need."""
        cohorts = {
            id(cohort): frozenset(cohort.members) for cohort in (self._ledger.cohort(one.queue) for one in needs)
        }
        return list(cohorts.values())

    def _reclaim(self, needy: set[str], now: float) -> None:
        """Others borrow nothing meanwhile: of queues that preempt, until their claims have what is theirs."""
        heads = self._heads(now) if self._reclaiming else ()
        waiting = {one.queue for one in heads if self._ledger.judge(one.queue, one.amount) is Verdict.WITHIN}
        wanted = {one for one in needy if self._preempts(one)} | (self._reclaiming & waiting)
        for queue in self._reclaiming - wanted:
            self._ledger.stand_back(queue, RECLAIMED)
        for queue in wanted:
            self._ledger.claim_back(queue, RECLAIMED)
        self._reclaiming = wanted

    def _preempts(self, queue: str) -> bool:
        """Whether a queue of its cohort lets its sessions be preempted."""
        specs = (self._ledger.spec(one) for one in self._ledger.cohort(queue).members)
        return any(spec is not None and spec.preemption is not Preemption.NEVER for spec in specs)

    # Candidates.

    def _may_go(self, sandbox: Sandbox, *, kept: bool) -> bool:
        claim = sandbox.claim
        is_session = sandbox.state is State.CLAIMED and sandbox.bound and claim is not None
        return is_session and claim is not None and self._may_lose(claim.queue, kept=kept)

    def _may_lose(self, queue: str, *, kept: bool = True) -> bool:
        """Whether sessions of the queue may go: it borrows, and its spec lets them."""
        spec = self._ledger.spec(queue)
        if spec is None or spec.preemption is Preemption.NEVER or (not kept and spec.preemption is Preemption.SUSPEND):
            return False
        return above(self._ledger.usage(queue), self._ledger.terms(queue).nominal) != NOTHING

    def _levels(self, members: frozenset[str], leaving: Collection[str]) -> Levels:
        """As if those that are leaving had left."""
        ledger = self._ledger
        queue = next(iter(members))
        levels = Levels(
            {one: ledger.terms(one) for one in members},
            {one: ledger.usage(one) for one in members},
            ledger.cohort(queue).free,
        )
        for sandbox in self._leaving(leaving):
            claim = sandbox.claim
            if claim is not None and claim.amount is not None and claim.queue in members:
                levels.release(claim.queue, vector(claim.amount))
        return levels

    def _leaving(self, leaving: Collection[str]) -> Iterator[Sandbox]:
        yield from chain.from_iterable(map(self._inventory.in_state, LEAVING))
        for sandbox_id in leaving:
            sandbox = self._inventory.get(sandbox_id)
            if sandbox is not None and sandbox.state not in LEAVING:
                yield sandbox


def _candidate(sandbox: Sandbox, idle: Idle) -> Candidate:
    assert sandbox.claim is not None
    amount = vector(sandbox.claim.amount) if sandbox.claim.amount is not None else NOTHING
    return Candidate(sandbox.sandbox_id, sandbox.claim.queue, amount, idle.seconds, idle.kept)


def _last_renewal(sandbox: Sandbox) -> float:
    """When its lease began, as far as it is known: clients renew the lease of a sandbox that they use."""
    assert sandbox.claim is not None
    expires = sandbox.lease_expires
    return expires - sandbox.claim.lease if expires is not None and expires < float("inf") else sandbox.created
