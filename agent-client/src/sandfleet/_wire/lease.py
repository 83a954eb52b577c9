"""The lease of a sandbox, renewed while the sandbox is used."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Protocol

from sandfleet.observe import tracing

# The reason of what ended with its lease, of executors and fleets.
LEASE_EXPIRED = "LeaseExpired"
# How long a lease is taken to last whose end is not known, in seconds.
_UNKNOWN = 60.0


class Link(Protocol):
    """What can renew the lease."""

    async def keep(self, lease: float | None) -> float | None:
        """Renew it; return in how many seconds to renew it again, None for never."""
        ...


class Running(Protocol):
    """What runs in the sandbox, until it has ended."""

    @property
    def ended(self) -> bool: ...


class LeaseKeeper:
    """Renews the lease of one sandbox: always between `start` and `stop`, else while this client runs something in it.

    Between renewals nothing holds the keeper or its link but the sandbox's own object: once that is gone, the lease is
    renewed no more.
    """

    def __init__(self, link: Link, expires: float | None) -> None:
        """`expires` is the end of the lease in seconds of the epoch, None for one that is not known."""
        # What renewals ask for; None means as at the claim.
        self._seconds: float | None = None
        # None: only while something runs; False: never.
        self.always: bool | None = None
        self._link = weakref.ref(link)
        self._running: weakref.WeakSet[Running] = weakref.WeakSet()
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        left = _UNKNOWN if expires is None else expires - time.time()
        # When to renew it, by the clock of event loops.
        self._due = time.monotonic() + left / 2

    def lasts(self, seconds: float | None, *, now: bool = True) -> None:
        """Ask for so many seconds from now on; `now`: the lease has just become so long."""
        self._seconds = seconds
        if now and seconds is not None:
            self._due = time.monotonic() + seconds / 2
            if self._timer is not None:
                self._arm()

    def start(self, *, at_once: bool) -> None:
        """Renew it always. A lease that another process claimed may be nearly over: renew that one `at_once`."""
        if self.always is not True:
            self.always = True
            if at_once:
                self._due = 0.0
            self._arm()

    def stop(self) -> None:
        """Renew it no more."""
        self.always = False
        self._disarm()
        if self._renewing is not None:
            self._renewing.cancel()

    def run(self, execution: Running) -> None:
        """Renew it until this has ended."""
        if self.always is None:
            self._running.add(execution)
            if self._timer is None and (self._renewing is None or self._renewing.done()):
                self._arm()

    def renew_if_used(self) -> None:
        """The time has come."""
        self._timer = None
        link = self._link()
        used = self.always or (self.always is None and not all(one.ended for one in self._running))
        if link is not None and used:
            self._renewing = asyncio.get_running_loop().create_task(self._renew(link))

    async def _renew(self, link: Link) -> None:
        pause = await link.keep(self._seconds)
        if pause is not None and self.always is not False:
            self._due = time.monotonic() + pause
            self._arm()

    def _arm(self) -> None:
        self._disarm()
        pause = max(0.0, self._due - time.monotonic())
        with tracing.apart():
            self._timer = asyncio.get_running_loop().call_later(pause, _renew, weakref.ref(self))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _renew(keeper: weakref.ref[LeaseKeeper]) -> None:
    if (alive := keeper()) is not None:
        alive.renew_if_used()


def lease_was_over(sandbox_id: str) -> str:
    """Say that a lease was over, whose, and what to do."""
    return (
        f"The lease of sandbox {sandbox_id} was over, and no client had renewed it. Use the sandbox in a `with` block,"
        " or create it with keep_alive=True or a longer timeout."
    )
