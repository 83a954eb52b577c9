"""Between queues: whose first claim is served next. One file a policy, each of the one type Order."""

from collections.abc import Callable
from dataclasses import dataclass

from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.queues.quota import Verdict


@dataclass(frozen=True, slots=True)
class Candidate:
    """The claim of a queue whose turn it is in the queue. `rank` is that of its priority class with its age."""

    waiting: Waiting
    rank: int
    # WITHIN or BORROWS.
    verdict: Verdict
    # The start tag of its queue at this pool.
    start: float
    # What its queue borrows already, of its cohort's capacity and divided by its weight.
    share: float

    @property
    def arrival(self) -> tuple[float, int]:
        return self.waiting.asked, self.waiting.number


# The key of a candidate: the least is served next.
Order = Callable[[Candidate], tuple[float, ...]]
