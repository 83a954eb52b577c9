"""How full a queue is, for its status."""

from dataclasses import dataclass

from sandfleet_operator.api.values import Amount
from sandfleet_operator.plan.scheduler.claim_queue import WhyNot
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.quota import above, amount_of


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """`reason` (a QueueReason) says why its claims wait; empty where none waits for quota."""

    # Claims and declared sandboxes that wait.
    pending: int
    # Sandboxes that use its quota.
    admitted: int
    usage: Amount
    # The part of its usage that is above its nominal quota.
    borrowed: Amount
    # Seconds that the oldest one waits; None where none waits.
    oldest_wait: float | None
    # Of its cohort's capacity, what it borrows of the scarcest resource, divided by its weight.
    share: float
    reason: str = ""
    message: str = ""


def summary(
    ledger: Ledger, name: str, *, pending: int, oldest: float | None, why: WhyNot | None, now: float
) -> QueueSummary:
    usage = ledger.usage(name)
    return QueueSummary(
        pending=pending,
        admitted=round(usage[0]),
        usage=amount_of(usage),
        borrowed=amount_of(above(usage, ledger.terms(name).nominal)),
        oldest_wait=None if oldest is None else max(0.0, now - oldest),
        share=ledger.share(name),
        reason=why.reason if why else "",
        message=why.message if why else "",
    )
