"""How long one executor may be waited for. Who moves nothing holds a turn no longer than who moves much.

An executor that waits has a credit of seconds: what it moves earns it, and it is never more than at the beginning. So
a transfer takes as long as its size needs at the least rate, and a stall ends it, wherever it begins.
"""

# Until the first word, before which the executor saves variables and walks the files, and after the last, when it
# unpacks; without a word in between.
FIRST_SECONDS, SILENCE_SECONDS = 300.0, 30.0
CREDIT_SECONDS = 60.0
LEAST_BYTES_PER_SECOND = 256 << 10
# What an entry counts beside its data: 256 entries a second are the least, too.
ENTRY_BYTES = 1 << 10


class Pace:
    """Of one transfer."""

    def __init__(self) -> None:
        self._credit = CREDIT_SECONDS
        self._has_begun = False

    @property
    def patience(self) -> float:
        """Seconds until its next step has to be done."""
        return min(SILENCE_SECONDS, max(self._credit, 0.0)) if self._has_begun else FIRST_SECONDS

    def moved(self, seconds: float, size: int = 0, entries: int = 0) -> None:
        """A step is done, that was waited for so long."""
        earned = (size + ENTRY_BYTES * entries) / LEAST_BYTES_PER_SECOND
        spent = seconds if self._has_begun else 0.0
        self._has_begun = True
        self._credit = min(CREDIT_SECONDS, self._credit - spent + earned)


def unpacking_seconds(size: int) -> float:
    """How long an executor may take with so many bytes that it has got."""
    return FIRST_SECONDS + size / LEAST_BYTES_PER_SECOND / 16
