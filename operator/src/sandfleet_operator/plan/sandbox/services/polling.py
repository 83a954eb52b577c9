"""When an executor is asked for its services again, and which of its answers are reported. Times are seconds.

An executor is asked often while its services change, seldom at rest, and ever more seldom while it does not answer.
A report becomes a write to the API server. Each sandbox has a burst of reports, and then one in two minutes, however
fast its services come and go.
"""

from dataclasses import dataclass, replace

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.kinds.sandbox import ServiceStatus
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.observed import Heard
from sandfleet_operator.plan.sandbox.services.status import AT_REST

# Delay of the first poll after Ready: most services are ready by then, which saves a write.
FIRST = 1.0
# Delay after a change; it doubles with each answer without a change.
QUICK = 1.0
RESTING = 30.0
# Polls of all sandboxes at rest together: the more sandboxes, the more seldom each is asked.
MAX_PER_SECOND = 40.0
# The longest delay while the executor does not answer.
LONGEST = 300.0
UNANSWERED = Backoff(2 * QUICK, LONGEST)
# After this many unanswered polls in a row, the services are reported as unknown.
SILENT_AFTER = 3
BURST = 8.0
REFILL = 120.0
# Reports that a new pod has at least. A pod that becomes Ready costs writes anyway.
ANEW = 2.0
# Slightly below 1, because a refill computed from floating-point times may end a little below a whole report.
ONE_REPORT = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class PollState:
    """The state of polling one executor. `heard` is what was reported last."""

    ask: AskServices
    heard: Heard | None = None
    # Unanswered polls in a row.
    failures: int = 0
    # Answers without a change, in a row.
    quiet: int = 0
    # Reports that are left, as of the time `since`.
    left: float = BURST
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class PollStep:
    """`wait` is the time until the next poll; `news`: there is something new to report."""

    state: PollState
    wait: float
    news: bool = False


def resting_interval(asked: int) -> float:
    """Time between two polls of an executor at rest, when this many executors are polled."""
    return max(RESTING, asked / MAX_PER_SECOND)


def begun(
    ask: AskServices, before: PollState | None, now: float, *, known: bool, asked: int, chance: float
) -> PollStep:
    """Starts polling a pod. Reports that the sandbox's earlier pod has used up stay used up, except for a few.

    `known`: the status already has an answer of this pod, as after a change of leaders, when all polls start at once.
    `chance` is from 0 to below 1, here and below: it spreads polls that would otherwise come at the same moment.
    """
    wait = chance * resting_interval(asked) if known else _spread(FIRST, chance)
    fresh = PollState(ask=ask, since=now)
    return PollStep(replace(fresh, left=max(before.left, ANEW)) if before else fresh, wait)


def answered(one: PollState, services: tuple[ServiceStatus, ...], now: float, *, asked: int, chance: float) -> PollStep:
    heard = Heard(pod_uid=one.ask.pod_uid, services=services)
    after = _reported(replace(one, failures=0), heard, now)
    changed = heard != one.heard
    after = replace(after, quiet=0 if changed else one.quiet + 1)
    rest = resting_interval(asked)
    at_rest = all(service.state in AT_REST for service in services)
    pause = rest if at_rest else Backoff(QUICK, rest).after(after.quiet + 1)
    return _step(one, after, _spread(pause, chance), now)


def failed(one: PollState, problem: str, now: float, *, chance: float) -> PollStep:
    """The executor did not answer, or its answer could not be used."""
    after = replace(one, failures=one.failures + 1, quiet=0)
    already = one.heard is not None and one.heard.problem
    if after.failures >= SILENT_AFTER and not already:
        after = _reported(after, Heard(pod_uid=one.ask.pod_uid, problem=problem), now)
    pause = UNANSWERED.after(after.failures)
    return _step(one, after, _spread(pause, chance), now)


def _reported(one: PollState, heard: Heard, now: float) -> PollState:
    """An answer that may not be reported now is dropped; the executor is asked again when a report is allowed."""
    left = min(BURST, one.left + max(0.0, now - one.since) / REFILL)
    refilled = replace(one, left=left, since=now)
    if heard == one.heard or left < ONE_REPORT:
        return refilled
    return replace(refilled, heard=heard, left=left - 1)


def _step(before: PollState, after: PollState, pause: float, now: float) -> PollStep:
    until_more = (1 - after.left) * REFILL - (now - after.since)
    return PollStep(after, max(pause, until_more), news=after.heard != before.heard)


def _spread(pause: float, chance: float) -> float:
    """Up to a quarter less or more."""
    return pause * (0.75 + chance / 2)
