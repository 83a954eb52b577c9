"""The fleet's decisions: one event in, actions out. Time is an argument, and nothing here has effects."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.kube import Cause, NotCreated
from sandfleet_operator.api.reasons import ClaimReason, EndReason
from sandfleet_operator.api.validate import MAX_LEASE
from sandfleet_operator.api.values import Claim, Exit, Hold, Mark, RequestKey, Sandbox, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action, Answer
from sandfleet_operator.plan.scheduler.admission import admit, no_pool, weighed
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Place, Queued, WhyNot, observed
from sandfleet_operator.plan.scheduler.cycle import SchedulingCycle
from sandfleet_operator.plan.scheduler.deadlines import Deadlines
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.lifecycle import Step
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.patience import Patience
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues, PoolSummary, summary
from sandfleet_operator.plan.scheduler.queues.declared import DeclaredSandboxes
from sandfleet_operator.plan.scheduler.queues.events import QueueEvents
from sandfleet_operator.plan.scheduler.queues.fair_queue import FAIR, Policy
from sandfleet_operator.plan.scheduler.queues.places import DECLARED
from sandfleet_operator.plan.scheduler.queues.standing.standings import Explanation, Fate, Standings, would_be_refused
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.sessions.preemption import Preemptions
from sandfleet_operator.plan.scheduler.sessions.suspension import Suspensions
from sandfleet_operator.plan.scheduler.starts.health import StartHealth
from sandfleet_operator.plan.scheduler.transitions import Transitions


class Scheduler:
    """Each event is a method that returns what to do about it, of `queues` for theirs. Not thread-safe."""

    def __init__(
        self, pools: Iterable[Pool], limits: FleetLimits, *, new_id: Callable[[str], str], policy: Policy = FAIR
    ) -> None:
        """`new_id` makes a name for something of the given pool."""
        self.limits = limits
        self.inventory = Inventory()
        self.capacity = Capacity(self.inventory, limits)
        self._queues = PoolQueues(self.inventory, policy, pools)
        self._transitions = Transitions(self.inventory, self._queues, limits)
        self.ended_claims = self._transitions.ended_claims
        self.standing = Standings(self.inventory, self._queues, self.capacity)
        self._patience = Patience(self.inventory, self._queues, self.capacity, self._transitions, self.standing)
        self._deadlines = Deadlines(
            limits,
            self.inventory,
            queues=self._queues,
            capacity=self.capacity,
            transitions=self._transitions,
            patience=self._patience,
        )
        declared = DeclaredSandboxes(self.inventory.ledger, self._queues.places, policy)
        self._cycle = SchedulingCycle(
            limits=limits,
            inventory=self.inventory,
            queues=self._queues,
            capacity=self.capacity,
            transitions=self._transitions,
            declared=declared,
            new_id=new_id,
        )
        self.queues = QueueEvents(
            self.inventory, self._queues, transitions=self._transitions, cycle=self._cycle, declared=declared
        )
        self.preemptions = Preemptions(self.inventory, self._queues, declared)
        self.suspensions = Suspensions(self.inventory, self._queues, self._cycle, self._transitions, limits)

    # Pools.

    @property
    def pools(self) -> list[Pool]:
        return [state.pool for state in self._queues.all()]

    def pool(self, name: str) -> Pool | None:
        state = self._queues.get(name)
        return state.pool if state else None

    def summary(self, name: str) -> PoolSummary:
        """How full the pool is, and why it has fewer warm sandboxes than its target."""
        state = self._queues.get(name)
        assert state is not None, "the pool was asked for by its name"
        return summary(state, self.inventory, self.capacity)

    def set_pool(self, pool: Pool, now: float) -> list[Action]:
        """Adds or changes the pool. Its template's isolation and limits hold for later claims."""
        state = self._queues.get(pool.name)
        if state is None:
            self._queues.open(pool)
        elif state.pool == pool:
            return []
        else:
            state.pool = pool
        return self._cycle.run(pool.name, now)

    def remove_pool(self, name: str, now: float) -> list[Action]:
        """Refuses the pool's claims, and ends its sandboxes that serve no claim."""
        if self._queues.get(name) is None:
            return []
        actions: list[Action] = []
        problem = ClaimReason.POOL_NOT_FOUND.problem(f"cannot claim: pool {name} is gone", name)
        for waiting in [one for one in self.inventory.waiting.values() if one.claim.pool == name]:
            if not self._queues.is_binding(waiting):
                actions += self._transitions.refuse(waiting, problem, now)
        for state in (State.STARTING, State.WARM):
            for sandbox in list(self.inventory.of_pool(name, state)):
                actions += self._transitions.apply(sandbox, lifecycle.ended(sandbox, EndReason.POOL_REMOVED.value), now)
        self._queues.close(name)
        self.capacity.shares.want(name, 0)
        return actions

    # Events of callers.

    def knows(self, key: RequestKey) -> bool:
        """Whether the claim waits, was answered, or has ended recently."""
        return any((self.inventory.waiting.get(key), self.inventory.of_session(key), self.ended_claims.get(key)))

    def ask(self, claim: Claim, now: float, place: Place | None = None) -> list[Action]:
        """A claim arrives, perhaps with its `place` at an earlier leader. Raises FleetError if it cannot be served."""
        if claim.key in self.inventory.waiting:
            return []
        session = self.inventory.of_session(claim.key)
        if session is not None and not session.answered:
            return [*self._transitions.rejoin(session, now), *self._cycle.run(session.pool, now)]
        if session is not None:
            return [Answer(claim.key, self.session(session.sandbox_id, now))]
        if (problem := self.ended_claims.get(claim.key)) is not None:
            raise FleetError(problem)
        claim = self._admissible(claim, now)
        self._queues.arrive(claim, now, place=place)
        actions = self._cycle.run(claim.pool, now)
        return [*actions, *self._patience.arrived(claim.key, now)]

    def _admissible(self, claim: Claim, now: float) -> Claim:
        """The claim with its weight. Raises FleetError if it can never be served, or no more claims may wait."""
        pool, beside = self.pool(claim.pool), self._queues.waiting_beside(claim.pool)
        mine = weighed(claim, pool)
        come_back = partial(self._patience.come_back, mine, now)
        if pool is None:
            raise no_pool(claim.pool, [state.pool.name for state in self._queues.all()])
        admit(mine, pool, self.inventory, self.limits, waiting_beside=beside, come_back=come_back)
        if claim.gang is not None and (state := self._queues.get(claim.pool)) is not None:
            state.queue.gangs.check(claim)
        return mine

    def leave(self, key: RequestKey, now: float) -> list[Action]:
        """The last caller of the claim has left: the claim is undone, unless it was answered."""
        waiting = self.inventory.waiting.get(key)
        if waiting is None or self._queues.caller_left(waiting):
            return []
        return [*self._transitions.withdraw(key, now), *self._cycle.run(waiting.claim.pool, now)]

    def release(self, sandbox_id: str, now: float) -> list[Action]:
        """The holder releases the sandbox."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None:
            return []
        return self._apply(sandbox, lifecycle.ended(sandbox, EndReason.RELEASED.value), now)

    def renew(self, sandbox_id: str, lease: float, now: float) -> Sandbox:
        """The executor has taken a new lease. Raises FleetError if the session has ended meanwhile."""
        sandbox = self._with_lease(self.session(sandbox_id, now), now + lease)
        self.inventory.put(sandbox)
        return sandbox

    def lease_told(self, sandbox_id: str, left: float | None, now: float) -> list[Action]:
        """What is left of a lease that an earlier leader may have renewed, by the executor's word; None: it has none.

        The executor is not trusted: its word counts up to the longest lease that a claim may have.
        """
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or sandbox.lease_known or sandbox.lease_expires is None:
            return []
        expires = sandbox.lease_expires if left is None else now + max(0.0, min(left, MAX_LEASE))
        self.inventory.put(self._with_lease(sandbox, expires))
        return []

    @staticmethod
    def _with_lease(sandbox: Sandbox, expires: float) -> Sandbox:
        return replace(sandbox, lease_expires=expires, lease_known=True, lease_asked=None)

    def discard(self, sandbox_id: str, reason: str, now: float) -> list[Action]:
        """A warm sandbox is not fit to be claimed any more."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.WARM:
            return []
        return self._apply(sandbox, lifecycle.ended(sandbox, reason), now)

    # Events of sandboxes. Events of an incarnation that was replaced are ignored.

    def made(self, sandbox_uid: str, now: float) -> list[Action]:
        """The API server has taken what the start needs: more of them may be sent to it."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None or not sandbox.unmade:
            return []
        self._transitions.start_made(sandbox.pool)
        return self._apply(sandbox, lifecycle.made(sandbox), now)

    def held(self, sandbox_id: str, hold: Hold, now: float) -> list[Action]:
        """The start stands, or goes on: a start's time counts only while its pod can start."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or sandbox.state not in {State.STARTING, State.RESUMING} or sandbox.hold is hold:
            return []
        return self._apply(sandbox, lifecycle.held(sandbox, hold, now), now)

    def not_made(self, sandbox_uid: str, why: NotCreated, now: float) -> list[Action]:
        """The API server has refused what the start needs."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        if why.cause is Cause.INVALID or sandbox.state not in {State.STARTING, State.ENDED}:
            return self.exited(sandbox_uid, Exit(message=why.message), now)
        return self._apply(sandbox, lifecycle.not_made(sandbox, why), now)

    def ready(self, sandbox_uid: str, now: float, received: frozenset[Mark] = frozenset()) -> list[Action]:
        """The executor answers, and is the expected one. `received`: what it was filled with had received."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        state = self._queues.get(sandbox.pool)
        if sandbox.state is State.STARTING and state is not None:
            state.start_seconds = observed(state.start_seconds, now - sandbox.started)
            state.health, state.start_error = StartHealth(), ""
            if sandbox.unmade:
                self._transitions.start_made(sandbox.pool)
        return self._apply(sandbox, lifecycle.ready(sandbox, now, received), now)

    def bound(self, sandbox_uid: str, now: float) -> list[Action]:
        """The executor is open for its claim."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        first = not sandbox.bound
        actions = self._transitions.apply(sandbox, lifecycle.bound(sandbox), now)
        if first:
            actions += self._transitions.begin_session(sandbox.sandbox_id, now)
        alone = not (first and self._transitions.binding_works(sandbox.pool))
        return [*actions, *self._cycle.run_after(sandbox, now, alone=alone)]

    def unfit(self, sandbox_uid: str, problem: Problem, now: float) -> list[Action]:
        """The executor is not the expected one, or cannot be opened."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._apply(sandbox, lifecycle.unfit(sandbox, problem), now)

    def exited(self, sandbox_uid: str, end: Exit, now: float) -> list[Action]:
        """The executor's process has ended."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._apply(sandbox, lifecycle.exited(sandbox, end, now, self.limits), now)

    # Events of other writers: a fleet on Kubernetes is not the only one.

    def adopt(self, sandbox: Sandbox, now: float) -> list[Action]:
        """The sandbox was there before this fleet, or another writer has made it."""
        if self.inventory.get(sandbox.sandbox_id) is not None:
            return []
        self.inventory.put(sandbox)
        self.inventory.kept_workspaces.discard(sandbox.workspace_id)
        if not sandbox.answered:
            return self._transitions.adopt_part(sandbox, now)
        waited = self._queues.leave(sandbox.claim.key) if sandbox.claim else None
        answer: list[Action] = [Answer(waited.claim.key, sandbox)] if waited else []
        return [*answer, *self._cycle.run(sandbox.pool, now)]

    def taken(self, sandbox_uid: str, now: float) -> list[Action]:
        """Another fleet has taken the sandbox: the claim that was to get it waits again, in its old place."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._apply(sandbox, lifecycle.taken(sandbox), now)

    def refused(self, sandbox_uid: str, problem: Problem, now: float, *, untouched: bool) -> list[Action]:
        """The API server refuses the claim of this sandbox, which is fit for another one if it is `untouched`."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._apply(sandbox, lifecycle.refused(sandbox, problem, untouched=untouched), now)

    def recovered(self, sandbox_id: str, sandbox_uid: str, now: float) -> list[Action]:
        """The operator has replaced the executor of a session, or started that of a resumed one."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or sandbox.state not in {State.RECOVERING, State.RESUMING}:
            return []
        return self._apply(sandbox, lifecycle.recovered(sandbox, sandbox_uid, now), now)

    def removed(self, sandbox_id: str, reason: str, now: float) -> list[Action]:
        """Another writer has ended the sandbox, with all that belongs to it."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None:
            return []
        return self._apply(sandbox, lifecycle.removed(sandbox, reason), now)

    # Time.

    def tick(self, now: float) -> list[Action]:
        """Time has passed. Called several times a second, so that deadlines are kept."""
        actions = [*self._deadlines.pass_to(now), *self.queues.drain(now)]
        for state in self._queues.all():
            actions += self._cycle.run(state.pool.name, now)
        return [*actions, *self._cycle.run(DECLARED, now)]

    # Queries.

    def session(self, sandbox_id: str, now: float) -> Sandbox:
        """A claimed sandbox. Raises FleetError with NOT_FOUND."""
        sandbox = self.inventory.get(sandbox_id)
        live = sandbox is not None and sandbox.bound and sandbox.state is not State.ENDED
        if sandbox is not None and live and self._deadlines.has_time(sandbox, now):
            return sandbox
        reason = EndReason.LEASE_EXPIRED.value if live else self.why_ended(sandbox_id)
        why = f"it ended: {reason}" if reason else "there is none of that id"
        raise ClaimReason.SANDBOX_NOT_FOUND.error(f"cannot find sandbox {sandbox_id[:80]!r}: {why}", sandbox_id[:80])

    def why_ended(self, sandbox_id: str) -> str | None:
        """In a word of EndReason; None of a session that has not ended, or so many others ago."""
        return self._transitions.ended_sandboxes.get(sandbox_id)

    def standings(self, now: float, only: RequestKey | None = None) -> dict[RequestKey, Queued]:
        """The standing of each waiting claim, or of one of them."""
        if only is None:
            return self.standing.all(now)
        found = self.standing.of(only, now)
        return {} if found is None else {only: found}

    def expect(self, claim: Claim, now: float) -> Explanation:
        """What would become of this claim."""
        try:
            claim = self._admissible(claim, now)
        except FleetError as error:
            return would_be_refused(error.problem)
        found = self.standing.expect(claim, now)
        problem = self._patience.refusal(claim, now) if found.fate is Fate.WOULD_WAIT else None
        return found if problem is None else would_be_refused(problem)

    def why_not(self, key: RequestKey) -> WhyNot | None:
        """Why the last cycle did not admit the claim; None if it does not wait."""
        return self.standing.why_not(key)

    def _apply(self, sandbox: Sandbox, step: Step, now: float) -> list[Action]:
        """The step, and the cycles that follow from it."""
        actions = self._transitions.apply(sandbox, step, now)
        return [*actions, *self._cycle.run_after(sandbox, now, alone=step.outcome is None)]
