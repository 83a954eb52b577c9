"""Why quota keeps claims waiting, in a word and in a sentence that people read. Pure."""

from sandfleet_operator.api.reasons import QueueReason
from sandfleet_operator.plan.scheduler.claim_queue import Eta, WhyNot
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.quota import NOTHING, Vector, Verdict, above, drawn, minus, plus, times

GIB = 1 << 30
# Seconds.
ROUNDED, MINUTE, IN_MINUTES = 2, 60, 120


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


def why_kept(queue: str, pool: str | None) -> WhyNot | None:
    """Why a claim may not have what its quota has left; None where no gang, at this pool, keeps it."""
    if pool is None:
        return None
    return WhyNot(
        QueueReason.QUOTA_REACHED.value, f"what queue {queue} has left is kept for a gang that waits at pool {pool}"
    )


def missing(ledger: Ledger, queue: str, amount: Vector, position: int) -> tuple[Vector, str]:
    """What quota lacks so that the claim at this position could be admitted, and in whose quota: queue or cohort."""
    spec, terms, usage = ledger.spec(queue), ledger.terms(queue), ledger.usage(queue)
    after = plus(usage, times(amount, position))
    lacks = above(after, terms.most)
    if spec is None or not spec.cohort or lacks != NOTHING:
        return lacks, f"queue {queue}"
    cohort = ledger.cohort(queue)
    drawn_then = plus(cohort.drawn, minus(drawn(terms, after), drawn(terms, usage)))
    return above(drawn_then, cohort.capacity), f"cohort {spec.cohort}"


def sentence(why: WhyNot, lacks: tuple[Vector, str] | None, eta: Eta | None) -> str:
    """The whole explanation of a claim that waits: why, and what would let it in."""
    ways = []
    if lacks is not None and lacks[0] != NOTHING:
        ways.append(f"{words(lacks[0])} more in {lacks[1]}")
    if eta is not None:
        ways.append(f"about {seconds(eta.p50)} ({seconds(eta.p90)} for nine of ten claims)")
    return f"{why.message}; it takes {', or '.join(ways)}" if ways else why.message


def words(amount: Vector) -> str:
    """As in "3 sandboxes, 1.5 CPU"."""
    sandboxes, cpu, memory = amount
    plural = "" if sandboxes == 1 else "es"
    parts = (
        (sandboxes, f"{sandboxes:.0f} sandbox{plural}"),
        (cpu, f"{cpu / 1000:g} CPU"),
        (memory, f"{memory / GIB:.4g} GiB of memory"),
    )
    return ", ".join(text for value, text in parts if value)


def seconds(length: float) -> str:
    """As in "0.4 s", "40 s", "12 min"."""
    if length < ROUNDED:
        return f"{length:.1f} s"
    return f"{length:.0f} s" if length < IN_MINUTES else f"{length / MINUTE:.0f} min"


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
