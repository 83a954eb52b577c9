"""In the order of arrival, whatever the queues' weights: what a fleet without fair queues does."""

from sandfleet_operator.plan.scheduler.queues.orders import Candidate


def first_come(candidate: Candidate) -> tuple[float, ...]:
    return candidate.arrival
