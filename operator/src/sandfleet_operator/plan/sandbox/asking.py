"""When an executor is asked for its services again, and what of its answers is told on. Times are seconds.

Often while something changes, seldom at rest, ever more seldom while it does not answer. What is told on becomes a write to the
API server: each sandbox has so many at once, and then one in two minutes, however fast its services come and go.
"""

from dataclasses import dataclass, replace

from sandfleet_operator.api.resources import ServiceStatus
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.observed import Heard
from sandfleet_operator.plan.sandbox.services import AT_REST

# After Ready: most services are ready by then, which saves a write.
FIRST = 1.0
# After a change; it doubles with each answer that brings none.
QUICK = 1.0
STEADY = 30.0
# All sandboxes together, at rest: with more of them each is asked more seldom.
MOST_A_SECOND = 40.0
# Without an answer.
LONGEST = 300.0
# Asked in vain so often, nobody knows how its services are.
SILENT_AFTER = 3
BURST = 8.0
REFILL = 120.0
# Of another pod, or one that is Ready again: that costs as many writes anyway.
ANEW = 2.0
# Seconds since the epoch have a grain: what was waited for until it is one may be a little less.
WHOLE = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How far it is with one executor. `heard` is what was told on last."""

    ask: AskServices
    heard: Heard | None = None
    # Asked in vain, in a row.
    failures: int = 0
    # Answers without a change, in a row.
    quiet: int = 0
    # What is left to be told on, and since when.
    left: float = BURST
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Next:
    """`wait` is the time until it is asked again; `news`: there is something else to be told than before."""

    asking: Asking
    wait: float
    news: bool = False


def steady(asked: int) -> float:
    """Between two questions to an executor at rest, where so many are asked."""
    return max(STEADY, asked / MOST_A_SECOND)


def begun(ask: AskServices, before: Asking | None, now: float, *, known: bool, asked: int, chance: float) -> Next:
    """Anew, or for the first time. What an earlier pod of the sandbox has used up of what may be told on stays used up, but for a little.

    `known`: the status has an answer of this pod already, as after a change of leaders, when all are begun at once.
    `chance` is from 0 to below 1, here and below: it spreads what would be asked at one moment.
    """
    wait = chance * steady(asked) if known else _spread(FIRST, chance)
    fresh = Asking(ask=ask, since=now)
    return Next(replace(fresh, left=max(before.left, ANEW)) if before else fresh, wait)


def answered(one: Asking, services: tuple[ServiceStatus, ...], now: float, *, asked: int, chance: float) -> Next:
    heard = Heard(pod_uid=one.ask.pod_uid, services=services)
    after = _told(replace(one, failures=0), heard, now)
    changed = heard != one.heard
    after = replace(after, quiet=0 if changed else one.quiet + 1)
    rest = steady(asked)
    at_rest = all(service.state in AT_REST for service in services)
    # The exponent is bounded, not only the pause: 2 ** 5000 is no float.
    pause = rest if at_rest else min(QUICK * 2.0 ** min(after.quiet, 30), rest)
    return _next(one, after, _spread(pause, chance), now)


def failed(one: Asking, problem: str, now: float, *, chance: float) -> Next:
    """It did not answer, or not in a way that says anything."""
    after = replace(one, failures=one.failures + 1, quiet=0)
    already = one.heard is not None and one.heard.problem
    if after.failures >= SILENT_AFTER and not already:
        after = _told(after, Heard(pod_uid=one.ask.pod_uid, problem=problem), now)
    pause = min(QUICK * 2.0 ** min(after.failures, 30), LONGEST)
    return _next(one, after, _spread(pause, chance), now)


def _told(one: Asking, heard: Heard, now: float) -> Asking:
    """What may not be told on now stays unheard, and is asked for again when it may."""
    left = min(BURST, one.left + max(0.0, now - one.since) / REFILL)
    refilled = replace(one, left=left, since=now)
    if heard == one.heard or left < WHOLE:
        return refilled
    return replace(refilled, heard=heard, left=left - 1)


def _next(before: Asking, after: Asking, pause: float, now: float) -> Next:
    until_more = (1 - after.left) * REFILL - (now - after.since)
    return Next(after, max(pause, until_more), news=after.heard != before.heard)


def _spread(pause: float, chance: float) -> float:
    """A quarter less or more."""
    return pause * (0.75 + chance / 2)
