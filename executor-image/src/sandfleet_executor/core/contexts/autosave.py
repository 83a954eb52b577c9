"""When variables are saved behind cells. Times are seconds."""

from dataclasses import dataclass

# How long nothing has to have come after a cell: a fork beside the next cell would be felt there.
QUIET_SECONDS, MOST_QUIET_SECONDS = 1.0, 10.0
# When to look again where a cell runs.
AGAIN_SECONDS = 0.25
# How long changes wait at the most where cells leave no such pause.
LONGEST_SECONDS = 30.0
# Of a context's time, how much saves may take.
SHARE = 0.1
# How long one save waits in all for the cells that come beside it.
GIVE_WAY_SECONDS = 2.0
# How long the end of a sandbox waits for the last saves.
LAST_SECONDS = 2.0


@dataclass
class Pace:
    """Of one context."""

    _cost: float = 0.0
    # When the oldest and the newest change came that are not saved.
    _first: float | None = None
    _last: float = 0.0

    @property
    def due(self) -> float | None:
        """When a save may begin; None while nothing has changed."""
        if self._first is None:
            return None
        quiet = min(max(QUIET_SECONDS, self._cost), MOST_QUIET_SECONDS)
        return min(self._last + quiet, self._first + self._longest)

    def presses(self, now: float) -> bool:
        """Whether changes have waited so long that there need be no pause."""
        return self._first is not None and now >= self._first + self._longest

    @property
    def _longest(self) -> float:
        return max(LONGEST_SECONDS, self._cost / SHARE)

    def changed(self, now: float) -> None:
        """A cell has ended."""
        self._last = now
        if self._first is None:
            self._first = now

    def begins(self) -> None:
        """What has changed up to now is being saved."""
        self._first = None

    def took(self, seconds: float) -> None:
        """What a save took, however it ended."""
        self._cost = seconds

    def forget(self) -> None:
        """The changes are not saved any more."""
        self._first = None
