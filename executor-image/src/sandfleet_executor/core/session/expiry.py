"""When a sandbox's time is over, and what counts as its use. Times are seconds of a monotonic clock."""

from dataclasses import dataclass
from enum import StrEnum

# RPCs that only look at the sandbox. They are no use of it: a watcher does not keep an idle sandbox alive.
LOOKING = ("/Health", "/Describe", "/Usage", "/WatchUsage", "/ProbeEgress", "ServiceManagerService/List")


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


def is_use(method: str) -> bool:
    """Whether the RPC ("/package.Service/Method") counts as use of the sandbox."""
    return not method.endswith(LOOKING)


def expired(lease: Lease, now: float, last_use: float) -> Expiry | None:
    """Whether the sandbox's time is over. Running executions and installations are use: `last_use` is now then."""
    if lease.until is not None and now >= lease.until:
        return Expiry.LEASE
    if lease.idle_timeout is not None and now - last_use >= lease.idle_timeout:
        return Expiry.IDLE
    return None


class Tenancy:
    """The sandbox's lease and its last use."""

    def __init__(self, lease: Lease, now: float) -> None:
        self.lease = lease
        self._last_use = now

    def touch(self, now: float) -> None:
        """A caller has used the sandbox."""
        self._last_use = now

    def expired(self, now: float, *, in_use: bool) -> Expiry | None:
        """`in_use`: an execution or an installation is running."""
        if in_use:
            self._last_use = now
        return expired(self.lease, now, self._last_use)
