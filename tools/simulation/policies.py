"""Policies to compare the fleet's own with."""

from sandfleet_operator.plan.scheduler.queues.fair_queue import FAIR, Policy
from sandfleet_operator.plan.scheduler.queues.orders import Candidate


def first_come(candidate: Candidate) -> tuple[float, ...]:
    """In the order of arrival, whatever the queues' weights: what a fleet without fair queues does."""
    return candidate.arrival


def priority(candidate: Candidate) -> tuple[float, ...]:
    """The highest priority class of any queue first, then the order of arrival."""
    return float(candidate.rank), *candidate.arrival


FIRST_COME_FIRST_SERVED = Policy(first_come, classes=False, holders=False)
PRIORITY = Policy(priority, holders=False)
POLICIES = {"fair": FAIR, "fifo": FIRST_COME_FIRST_SERVED, "priority": PRIORITY}
