"""Queues within their nominal quota in fair turns by weight, then borrowers, the one that borrows least first."""

from sandfleet_operator.plan.scheduler.queues.orders import Candidate
from sandfleet_operator.plan.scheduler.queues.quota import Verdict


def fair(candidate: Candidate) -> tuple[float, ...]:
    within = candidate.verdict is Verdict.WITHIN
    return (0.0 if within else 1.0), (candidate.start if within else candidate.share), *candidate.arrival
