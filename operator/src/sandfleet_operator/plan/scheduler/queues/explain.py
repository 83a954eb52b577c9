"""Why quota keeps claims waiting, in a word and in a sentence that people read. Pure."""

from sandfleet_operator.api.reasons import QueueReason
from sandfleet_operator.plan.scheduler.claim_queue import WhyNot
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.quota import Vector, Verdict, plus

GIB = 1 << 30


def why_quota(ledger: Ledger, queue: str, amount: Vector) -> WhyNot | None:
    """Why the queue may not admit this amount now; None where it may."""
    spec = ledger.spec(queue)
    match ledger.judge(queue, amount):
        case Verdict.HELD:
            assert spec is not None, "only a spec can hold a queue"
            why = f"queue {queue} admits nothing now: its stopPolicy is {spec.stop.value}"
            return WhyNot(QueueReason.QUEUE_HELD.value, why)
        case Verdict.REACHED:
            scarce = _scarce(ledger.usage(queue), ledger.terms(queue).most, amount)
            return WhyNot(QueueReason.QUOTA_REACHED.value, f"queue {queue} uses {scarce} of its quota")
        case Verdict.EXHAUSTED | Verdict.LENT as verdict:
            assert spec is not None, "only a spec can name a cohort"
            scarce = _scarce(ledger.cohort(queue).drawn, ledger.cohort(queue).capacity, amount)
            lent = verdict is Verdict.LENT
            whose = f"the quota of queue {queue} is lent" if lent else f"queue {queue} would have to borrow"
            why = f"{whose}, and {scarce} of cohort {spec.cohort} are in use"
            return WhyNot(QueueReason.COHORT_EXHAUSTED.value, why)
        case _:
            return None


def _scarce(used: Vector, most: Vector, amount: Vector) -> str:
    """The resources that do not suffice, as in "50 of 50 sandboxes and 12.5 of 13 CPU"."""
    after = plus(used, amount)
    short = [resource for resource in range(len(after)) if after[resource] > most[resource]]
    return " and ".join(_spelled(resource, used[resource], most[resource]) for resource in short)


def _spelled(resource: int, used: float, most: float) -> str:
    match resource:
        case 0:
            return f"{used:.0f} of {most:.0f} sandboxes"
        case 1:
            return f"{used / 1000:g} of {most / 1000:g} CPU"
        case _:
            return f"{used / GIB:.4g} of {most / GIB:.4g} GiB of memory"
