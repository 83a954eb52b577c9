"""The highest priority class of any queue first, then the order of arrival."""

from sandfleet_operator.plan.scheduler.queues.orders import Candidate


def priority(candidate: Candidate) -> tuple[float, ...]:
    return float(candidate.rank), *candidate.arrival
