"""Decides who leads, from a Lease that all contenders see and from each contender's own monotonic clock, in seconds.

Clocks of different machines are never compared. A contender takes over when it has seen the same record for as long as
the record promises. A leader stops earlier than that, counted from before it sent its last renewal.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

# Numbers above this are forged: `leaseTransitions` has 31 bits, and a leader needs a second at least.
HIGHEST_SEEN = 1 << 30


class Decision(Enum):
    WAIT = "wait"
    ACQUIRE = "acquire"
    RENEW = "renew"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Terms:
    """A record promises its holder `duration`. A leader that could not renew for `renew_deadline` stops."""

    duration: float = 15.0
    renew_deadline: float = 10.0

    def __post_init__(self) -> None:
        if not self.renew_every < self.renew_deadline < self.duration:
            raise ValueError(
                f"cannot hold a lease: the renew deadline ({self.renew_deadline} s) is not between "
                f"a fifth of the duration and the duration ({self.duration} s)"
            )

    @property
    def renew_every(self) -> float:
        return self.duration / 5

    @property
    def retry_every(self) -> float:
        return self.duration / 10

    @property
    def request_timeout(self) -> float:
        """Time for one answer. A dead connection leaves time for another attempt."""
        return self.renew_deadline / 2


@dataclass(frozen=True, slots=True)
class Record:
    """The content of the Lease. `renewed` is only compared for equality; `transitions` is the fencing number."""

    holder: str
    transitions: int
    renewed: str
    duration: float


@dataclass(frozen=True, slots=True)
class Leading:
    fencing: int
    # When the last successful write was sent.
    since: float


@dataclass(frozen=True, slots=True)
class View:
    """What one contender knows. `seen` is when it first saw the current record; without a record there is no Lease."""

    identity: str
    record: Record | None = None
    seen: float = 0.0
    leading: Leading | None = None


def decide(view: View, now: float, terms: Terms) -> Decision:
    if view.leading is None:
        return Decision.ACQUIRE if _free(view, now, terms) else Decision.WAIT
    record = view.record
    # The next leader of a deleted Lease takes a number above all that it sees, which may be this one: it is over.
    if record is None or record.holder != view.identity or record.transitions != view.leading.fencing:
        return Decision.LOST
    if not holds(view, now, terms):
        return Decision.LOST
    return Decision.RENEW if now - view.leading.since >= terms.renew_every else Decision.WAIT


def holds(view: View, now: float, terms: Terms) -> bool:
    """Whether this leadership still allows a write."""
    return view.leading is not None and now - view.leading.since < terms.renew_deadline


def _free(view: View, now: float, terms: Terms) -> bool:
    record = view.record
    # Our own name in the record: the reply to our write was lost.
    if record is None or record.holder in {"", view.identity}:
        return True
    # The holder counts on the duration of its record. A record without one promises our own.
    return now - view.seen >= max(record.duration, terms.duration if record.duration <= 0 else 0.0)


def next_number(last: int, seen: Iterable[int]) -> int:
    """The fencing number of a new leadership: above the Lease's last one, and above what earlier leaders have written.

    `seen` matters where the Lease was deleted, or restored from a backup. A number that is too large to be honest does
    not count: tenants may forge it, and the Lease's count has an end.
    """
    return max((last, *(number for number in seen if number <= HIGHEST_SEEN))) + 1


def observe(view: View, record: Record | None, now: float) -> View:
    """The view after reading the Lease. An unchanged record keeps the time when it was first seen."""
    return View(view.identity, record, view.seen if record == view.record and record else now, view.leading)


def renewed(view: View, sent: float) -> View:
    """The view after a successful write that was sent at `sent`."""
    leading = view.leading
    return replace(view, leading=replace(leading, since=max(leading.since, sent))) if leading else view


def left(view: View, now: float, terms: Terms) -> float:
    """Seconds until leadership ends without another renewal."""
    return max(0.0, view.leading.since + terms.renew_deadline - now) if view.leading else 0.0


def pause(view: View, now: float, terms: Terms, tried: float = -math.inf) -> float:
    """Seconds until the next step, at most until leadership ends. `tried` is when the last step began."""
    if view.leading is None:
        return terms.retry_every
    due = max(view.leading.since + terms.renew_every, tried + terms.retry_every)
    return min(max(0.0, due - now), left(view, now, terms))
