"""When a sandbox's time is over. Times are seconds of a monotonic clock; `core/rpcs.py` says what counts as use."""

from dataclasses import dataclass
from enum import StrEnum


class Expiry(StrEnum):
    """Why the time is over."""

    LEASE = "lease"
    IDLE = "idle"


@dataclass(frozen=True)
class Lease:
    """When the sandbox ends in any case, and after how long without use; None: never."""

    until: float | None = None
    idle_timeout: float | None = None

    def remaining(self, now: float) -> float | None:
        """Seconds; None without a lease."""
        return None if self.until is None else max(0.0, self.until - now)


def expired(lease: Lease, now: float, last_use: float) -> Expiry | None:
    """Whether the sandbox's time is over. Running executions and installations are use: `last_use` is now then."""
    if lease.until is not None and now >= lease.until:
        return Expiry.LEASE
    if lease.idle_timeout is not None and now - last_use >= lease.idle_timeout:
        return Expiry.IDLE
    return None


class Tenancy:
    """The sandbox's lease, its last use and its last work."""

    def __init__(self, lease: Lease, now: float) -> None:
        self.lease = lease
        self._last_use = self._last_work = now

    def touch(self, now: float, *, works: bool = True) -> None:
        """A caller has used the sandbox. `works`: with its contexts, files, …, and not only to keep it."""
        self._last_use = now
        if works:
            self._last_work = now

    def idle(self, now: float) -> float:
        """Seconds since the last work."""
        return max(0.0, now - self._last_work)

    def expired(self, now: float, *, in_use: bool) -> Expiry | None:
        """`in_use`: an execution or an installation is running."""
        if in_use:
            self._last_use = self._last_work = now
        return expired(self.lease, now, self._last_use)
