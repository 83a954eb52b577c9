"""When a claim may be served: from observed rates, with quantiles that learn from how earlier estimates turned out.

An estimate is a base time (waves of starts, or releases at the rate of late) times the quantile of what the base times
of late had to be multiplied by. The quantiles are those of the last claims that were served, so a base that is wrong by
a constant factor gives right quantiles all the same. Times are seconds.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet_operator.plan.scheduler.claim_queue import Eta

# Events count less the older they are: after so many seconds by a factor e.
DECAY = 60.0
# A rate is not known before it was watched for so long.
LEAST_WATCH = 2.0
# Estimates that turned out, of which the quantiles are, and how many there have to be.
REMEMBERED = 256
LEAST_KNOWN = 8
# Before there are enough: half of all claims as estimated, nine of ten within so many times that.
UNKNOWN_FACTORS = (1.0, 2.5)
# Added to both times of a ratio, so that waits of milliseconds do not decide.
SLACK = 0.25


class Rate:
    """Events per second of late."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._at = 0.0
        self._level = 0.0

    def note(self, now: float, many: int = 1) -> None:
        """`many` happened just now."""
        self._fade(now)
        self._level += many

    def per_second(self, now: float) -> float | None:
        """None where it is not known yet, or nothing happened of late."""
        if self._since is None:
            return None
        self._fade(now)
        watched = now - self._since
        if watched < LEAST_WATCH or self._level < 1e-3:
            return None
        return self._level / (DECAY * -math.expm1(-watched / DECAY))

    def _fade(self, now: float) -> None:
        if self._since is None:
            self._since = self._at = now
        passed = max(0.0, now - self._at)
        self._level *= math.exp(-passed / DECAY)
        self._at += passed


class Traffic:
    """How many sandboxes of each queue are admitted and end, of late."""

    def __init__(self) -> None:
        self._admitted: dict[str, Rate] = {}
        self._released: dict[str, Rate] = {}

    def admitted(self, queue: str, now: float) -> None:
        self._admitted.setdefault(queue, Rate()).note(now)

    def released(self, queue: str, now: float) -> None:
        self._released.setdefault(queue, Rate()).note(now)

    def forget(self, queue: str) -> None:
        self._admitted.pop(queue, None)
        self._released.pop(queue, None)

    def admission_rate(self, queue: str, now: float) -> float:
        """In a second."""
        rate = self._admitted.get(queue)
        return (rate.per_second(now) or 0.0) if rate else 0.0

    def release_rate(self, queues: Iterable[str], now: float) -> float | None:
        """Of all these queues together, in a second; None where it is not known."""
        rates = (self._released[one].per_second(now) for one in queues if one in self._released)
        known = [one for one in rates if one is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class EtaErrors:
    """Of the last estimates that turned out: quantiles of |actual - p50| / actual, and the share served within p90."""

    known: int
    p50: float
    p90: float
    within_p90: float


@dataclass(frozen=True, slots=True)
class Base:
    """The estimate before what was learned: seconds from now, and what kind of wait it is."""

    seconds: float
    kind: str


@dataclass(frozen=True, slots=True)
class _Prediction:
    asked: float
    base: Base
    eta: Eta


class Estimates:
    """Claims are known by their numbers. Each kind of wait learns from its own claims."""

    def __init__(self) -> None:
        self._open: dict[int, _Prediction] = {}
        self._factors: dict[str, deque[float]] = {}
        self._quantiles: dict[str, tuple[float, float]] = {}
        # Actual wait and estimate of those that turned out.
        self._turned_out: deque[tuple[float, Eta]] = deque(maxlen=REMEMBERED)

    def eta(self, base: Base | None) -> Eta | None:
        """None where nothing is known."""
        if base is None:
            return None
        median, late = self._quantiles.get(base.kind, UNKNOWN_FACTORS)
        return Eta(base.seconds * median, base.seconds * late)

    def surely(self, base: Base | None) -> float | None:
        """Seconds that half of such claims wait at the least; None before enough estimates turned out.

        A factor above 1 may be one of the past, which nothing corrects while no claim waits: the base counts then.
        """
        if base is None or base.kind not in self._quantiles:
            return None
        return base.seconds * min(1.0, self._quantiles[base.kind][0])

    def predict(self, number: int, base: Base | None, now: float) -> None:
        """Remembers what the claim is told at its arrival."""
        eta = self.eta(base)
        if base is not None and eta is not None:
            self._open[number] = _Prediction(now, base, eta)

    def served(self, number: int, now: float) -> None:
        prediction = self._open.pop(number, None)
        if prediction is None:
            return
        actual, base = max(0.0, now - prediction.asked), prediction.base
        self._turned_out.append((actual, prediction.eta))
        factors = self._factors.setdefault(base.kind, deque(maxlen=REMEMBERED))
        factors.append((actual + SLACK) / (base.seconds + SLACK))
        if len(factors) >= LEAST_KNOWN:
            ordered = sorted(factors)
            self._quantiles[base.kind] = quantile(ordered, 0.5), quantile(ordered, 0.9)

    def forget(self, number: int) -> None:
        """The claim left without a sandbox."""
        self._open.pop(number, None)

    def errors(self) -> EtaErrors:
        errors = sorted(abs(actual - eta.p50) / max(actual, SLACK) for actual, eta in self._turned_out)
        if not errors:
            return EtaErrors(0, 0.0, 0.0, 1.0)
        within = sum(actual <= eta.p90 for actual, eta in self._turned_out)
        return EtaErrors(len(errors), quantile(errors, 0.5), quantile(errors, 0.9), within / len(errors))


def quantile(ordered: list[float], share: float) -> float:
    """The value below which the share of the others lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
