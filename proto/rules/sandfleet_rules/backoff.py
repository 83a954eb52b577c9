"""How long to wait before the next attempt of what is tried again."""

from dataclasses import dataclass

# More doublings than any pause needs: 2.0 ** 5000 is no float.
MAX_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure in a row, from `first` to `longest`. Both are seconds."""

    first: float
    longest: float

    def after(self, failures: int) -> float:
        """The pause after this many failures in a row. It is `first` after one failure, and also before any."""
        doublings = min(max(failures - 1, 0), MAX_DOUBLINGS)
        return min(self.first * 2.0**doublings, self.longest)
