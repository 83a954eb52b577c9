"""What callers see of queues, and of claims that wait in them."""

from collections.abc import Callable
from dataclasses import dataclass

from sandfleet_operator.api.kinds.queue import QueueSpec
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.plan.scheduler.queues.standing.standings import Explanation
from sandfleet_operator.plan.scheduler.queues.summary import QueueSummary
from sandfleet_operator.plan.scheduler.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue and how full it is. `admission_rate` is in sandboxes per second."""

    name: str
    spec: QueueSpec
    summary: QueueSummary
    admission_rate: float


class QueueViews:
    def __init__(self, scheduler: Scheduler, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._clock = clock

    def all(self, prefix: str = "") -> list[QueueView]:
        """Those whose names begin with the prefix, by name."""
        now, queues = self._clock(), self._scheduler.queues
        found = ((name, queues.spec(name)) for name in sorted(queues.names) if name.startswith(prefix))
        return [
            QueueView(name, spec, queues.summary(name, now), queues.admission_rate(name, now))
            for name, spec in found
            if spec is not None
        ]

    def explain_session(self, sandbox_id: str) -> Explanation:
        """Of the claim that has the sandbox. Raises FleetError with NOT_FOUND."""
        sandbox = self._scheduler.session(sandbox_id, self._clock())
        assert sandbox.claim is not None, "a session has a claim"
        return self._explain(sandbox.claim.key.request_id, [sandbox.claim.key])

    def explain_request(self, holder: str, request_id: str, prefix: str = "") -> Explanation:
        """Of a claim of this holder, at a pool whose name begins with the prefix. Raises FleetError with NOT_FOUND."""
        keys = self._scheduler.inventory.keys_of(holder, request_id)
        return self._explain(request_id, [key for key in keys if key.pool.startswith(prefix)])

    def _explain(self, request_id: str, keys: list[RequestKey]) -> Explanation:
        found = self._scheduler.standing.explain(keys[0], self._clock()) if keys else None
        if found is None:
            why = f"cannot explain claim {request_id[:80]!r}: there is none of that request id"
            raise ClaimReason.CLAIM_NOT_FOUND.error(why, request_id[:80])
        return found

    def expect(self, claim: Claim) -> Explanation:
        """What would become of a claim that is not made."""
        return self._scheduler.expect(claim, self._clock())
