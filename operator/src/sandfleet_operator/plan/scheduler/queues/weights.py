"""What a waiting claim counts: at its turn, and against its queue's quota."""

from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.queues.quota import Vector, times, vector

ONE_SANDBOX: Vector = (1.0, 0.0, 0.0)


def arrival(waiting: Waiting) -> tuple[float, int]:
    return waiting.asked, waiting.number


def cost(waiting: Waiting) -> int:
    """Sandboxes that it stands for."""
    return waiting.many


def weight_of(waiting: Waiting) -> Vector:
    """The amount of the claim, or of all claims that it stands for."""
    amount = waiting.claim.amount
    one = vector(amount) if amount is not None else ONE_SANDBOX
    many = cost(waiting)
    return times(one, many) if many > 1 else one
