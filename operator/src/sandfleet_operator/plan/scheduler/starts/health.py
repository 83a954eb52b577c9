"""How a pool's starts go: failures in a row, what keeps starts from being made, and how many may be on their way.

Starts fail in rounds. A round is all starts that began before the pause after its first failure: a batch of which each
start fails is one round, so one refusal of the API server counts once, however many starts it hits.
"""

from dataclasses import dataclass

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.kube import Cause, NotCreated

# The longest pause that the API server may ask for, in seconds.
LONGEST_PAUSE = 60.0
# Starts of one pool that wait for the API server at the same time, at most.
MOST_UNMADE = 32
MAX_MESSAGE = 500

REASONS = {
    Cause.BUSY: PoolReason.API_SERVER_FAILED,
    Cause.QUOTA: PoolReason.QUOTA_EXCEEDED,
    Cause.FORBIDDEN: PoolReason.CREATION_FORBIDDEN,
}


@dataclass(frozen=True, slots=True)
class StartHealth:
    """Rounds of starts lost in a row, and when the next round may begin."""

    failures: int = 0
    retry_at: float = 0.0

    def after_loss(self, began: float, now: float, backoff: Backoff) -> "StartHealth":
        """A start that began at `began` is lost."""
        if began < self.retry_at:
            return self
        failures = self.failures + 1
        return StartHealth(failures, now + backoff.after(failures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the API server keeps a pool from starting sandboxes: a PoolReason and the API server's words."""

    reason: str
    message: str
    # Refused rounds in a row.
    rounds: int
    retry_at: float
    # Warm sandboxes cannot be bound either.
    binds: bool = False

    def stops_binding(self, now: float) -> bool:
        return self.binds and now < self.retry_at

    def is_stale(self, now: float) -> bool:
        """Only a claim that is bound shows that binding works, and none may have come."""
        return self.binds and now >= self.retry_at + LONGEST_PAUSE


def after_refusal(
    before: Trouble | None, why: NotCreated, *, began: float, now: float, backoff: Backoff, binds: bool = False
) -> Trouble:
    """What keeps the pool after the refusal of a write for a start (or, with `binds`, for a claim) of `began`."""
    asked = max(0.0, min(why.retry_after or 0.0, LONGEST_PAUSE))
    if before is not None and began < before.retry_at:
        rounds, retry_at = before.rounds, max(before.retry_at, now + asked)
    else:
        rounds = before.rounds + 1 if before else 1
        retry_at = now + max(asked, backoff.after(rounds))
    return Trouble(
        reason=REASONS.get(why.cause, PoolReason.API_SERVER_FAILED).value,
        message=why.message[:MAX_MESSAGE],
        rounds=rounds,
        retry_at=retry_at,
        binds=binds or (before is not None and before.stops_binding(now)),
    )


@dataclass(frozen=True, slots=True)
class SlowStart:
    """How many starts may wait for the API server: 1, 2, 4, … while it takes them, and 1 again after a refusal."""

    window: int = 1

    def made(self) -> "SlowStart":
        """Each start that is made makes room for two."""
        return SlowStart(min(self.window + 1, MOST_UNMADE))
