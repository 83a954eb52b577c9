"""What happens to queues: they are made, edited and removed, and the operator's sandboxes ask for their quota."""

from sandfleet_operator.api.kinds.queue import QueueSpec, StopPolicy
from sandfleet_operator.api.reasons import AdmissionReason, EndReason
from sandfleet_operator.api.values import Amount
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action
from sandfleet_operator.plan.scheduler.claim_queue import WhyNot
from sandfleet_operator.plan.scheduler.cycle import SchedulingCycle
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.queues.declared import DeclaredSandboxes
from sandfleet_operator.plan.scheduler.queues.places import DECLARED
from sandfleet_operator.plan.scheduler.queues.quota import vector
from sandfleet_operator.plan.scheduler.queues.standing.explain import why_kept, why_quota
from sandfleet_operator.plan.scheduler.queues.summary import QueueSummary, summary
from sandfleet_operator.plan.scheduler.queues.weights import ONE_SANDBOX, weight_of
from sandfleet_operator.plan.scheduler.transitions import Transitions


class QueueEvents:
    """Each event returns what to do about it, as those of the scheduler do."""

    def __init__(
        self,
        inventory: Inventory,
        queues: PoolQueues,
        *,
        transitions: Transitions,
        cycle: SchedulingCycle,
        declared: DeclaredSandboxes,
    ) -> None:
        self._inventory = inventory
        self._queues = queues
        self._transitions = transitions
        self._cycle = cycle
        self._declared = declared

    @property
    def names(self) -> list[str]:
        return self._inventory.ledger.names()

    def named(self, name: str, default: str = "") -> str:
        """The queue that a claim is for: the one that it names, else `default` where there is one, else none ("")."""
        return name or (default if self._inventory.ledger.spec(default) is not None else "")

    def spec(self, name: str) -> QueueSpec | None:
        return self._inventory.ledger.spec(name)

    def admission_rate(self, name: str, now: float) -> float:
        """Sandboxes per second of late."""
        return self._queues.traffic.admission_rate(name, now)

    def put(self, name: str, spec: QueueSpec, now: float) -> list[Action]:
        """Adds or edits the queue. What uses its quota stays, also where the edit leaves less than that."""
        if self._inventory.ledger.spec(name) == spec:
            return []
        self._inventory.ledger.put(name, spec)
        self._reform(name)
        return [*self.drain(now), *self._cycle.run_freed(now)]

    def remove(self, name: str, now: float) -> list[Action]:
        """Refuses the claims that wait in it. Its sandboxes live on and use no cohort's quota any more."""
        if self._inventory.ledger.spec(name) is None:
            return []
        actions: list[Action] = []
        problem = AdmissionReason.QUEUE_NOT_FOUND.problem(f"cannot claim: queue {name} is gone", name)
        for waiting in [one for one in self._inventory.waiting.values() if one.claim.queue == name]:
            if not self._queues.is_binding(waiting):
                actions += self._transitions.refuse(waiting, problem, now)
        self._inventory.ledger.remove(name)
        self._queues.traffic.forget(name)
        self._declared.queue_changed(name)
        return [*actions, *self._cycle.run_freed(now)]

    def drain(self, now: float) -> list[Action]:
        """Ends the sessions of queues whose stop policy says so."""
        ledger, actions = self._inventory.ledger, list[Action]()
        drained = {name for name in ledger.names() if _drains(ledger.spec(name))}
        for sandbox in self._inventory.all() if drained else ():
            if sandbox.bound and sandbox.claim is not None and sandbox.claim.queue in drained:
                step = lifecycle.ended(sandbox, EndReason.QUEUE_DRAINED.value)
                actions += self._transitions.apply(sandbox, step, now)
        return actions

    def declare(
        self,
        key: str,
        queue: str,
        amount: Amount,
        *,
        priority: str = "",
        asked: float,
        admitted: bool = False,
        now: float,
    ) -> list[Action]:
        """The operator is to make a sandbox that needs quota: Admit(key) follows, now or with a later event.

        `asked` is when its object was made, `admitted` whether an earlier leader has admitted it. Declaring it again
        changes what is different.
        """
        self._declared.add(key, queue, amount, priority, asked, admitted=admitted)
        return self._cycle.run(DECLARED, now)

    def rename(self, key: str, new: str) -> bool:
        """What was admitted under `key` counts under `new` from now on; False if it was not admitted."""
        return self._declared.rename(key, new)

    def withdraw(self, key: str, now: float) -> list[Action]:
        """The declared sandbox is no more, or is suspended: its quota is free."""
        self._declared.withdraw(key)
        return self._cycle.run_freed(now)

    def why_declared(self, key: str) -> WhyNot | None:
        """Why the declared sandbox was not admitted yet; None where it was, or is not known."""
        waiting = self._declared.waiting(key)
        if waiting is None:
            return None
        queue = waiting.claim.queue
        if self._inventory.ledger.spec(queue) is None:
            return WhyNot(AdmissionReason.QUEUE_NOT_FOUND.value, f"there is no queue {queue}")
        found = why_quota(self._inventory.ledger, queue, weight_of(waiting))
        return found or why_kept(queue, self._declared.kept_at(waiting))

    def summary(self, name: str, now: float) -> QueueSummary:
        """How full the queue is, and why its claims wait."""
        places, ledger = self._queues.places, self._inventory.ledger
        found = [one for one in (self._queues.oldest_in(name), self._declared.oldest_in(name)) if one is not None]
        pending = places.waiting(name)
        why = why_quota(ledger, name, self._first_amount(name)) if pending or _stops(ledger.spec(name)) else None
        return summary(ledger, name, pending=pending, oldest=min(found, default=None), why=why, now=now)

    def _first_amount(self, name: str) -> tuple[float, float, float]:
        """Of a claim that waits in the queue."""
        for pool in self._queues.places.of([name]):
            state = self._queues.get(pool)
            if state is not None:
                return vector(state.pool.template.amount)
        waiting = self._declared.first_in(name)
        return weight_of(waiting) if waiting else ONE_SANDBOX

    def _reform(self, name: str) -> None:
        for pool in self._queues.places.of([name]):
            state = self._queues.get(pool)
            if state is not None:
                state.queue.reform(name)
        self._declared.queue_changed(name)


def _stops(spec: QueueSpec | None) -> bool:
    return spec is not None and spec.stop is not StopPolicy.NONE


def _drains(spec: QueueSpec | None) -> bool:
    return spec is not None and spec.stop is StopPolicy.HOLD_AND_DRAIN
