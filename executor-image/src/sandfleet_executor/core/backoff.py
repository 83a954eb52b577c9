"""Exponential back-off."""

from dataclasses import dataclass

# The exponent is bounded, not only the pause: 2 ** 1000 is no float.
MOST_DOUBLINGS = 30


@dataclass(frozen=True)
class Backoff:
    """Pauses that double with each failure in a row, from `first` to `longest` seconds."""

    first: float
    longest: float

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (1 or more)."""
        return float(min(self.first * 2 ** min(failures - 1, MOST_DOUBLINGS), self.longest))
