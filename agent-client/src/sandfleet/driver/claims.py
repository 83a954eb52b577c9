"""How many claims wait at once: as many as the fleet admits. `ClaimWindow` is pure, `ClaimGate` waits.

A thousand claims that wait side by side cost the fleet a thousand places to keep up to date, and the machine a
thousand connections; a few that wait keep the next free sandbox in use just as well. The window grows by one with each
claim that is served at once and is halved when claims are made to wait, as TCP's does (Chiu and Jain, "Analysis of the
increase and decrease algorithms for congestion avoidance", 1989).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet.values.fleet import Queued

FIRST, LEAST = 8.0, 2.0


@dataclass(frozen=True, slots=True)
class ClaimWindow:
    """How many claims may wait, and how many do.

    size    the claims that may wait side by side.
    waiting the claims that do.
    epoch   grows with each halving: a claim that began before the last one cannot halve again.
    """

    most: float
    size: float = FIRST
    waiting: int = 0
    epoch: int = 0

    @property
    def is_open(self) -> bool:
        """Whether another claim may begin."""
        return self.waiting < int(self.size)

    def began(self) -> ClaimWindow:
        """One more claim waits."""
        return replace(self, waiting=self.waiting + 1)

    def held_up(self, epoch: int) -> ClaimWindow:
        """The fleet lets a claim of this epoch wait."""
        if epoch < self.epoch:
            return self
        return replace(self, size=max(LEAST, self.size / 2), epoch=self.epoch + 1)

    def ended(self, *, served_at_once: bool) -> ClaimWindow:
        """A claim waits no longer."""
        size = min(self.most, self.size + 1) if served_at_once else self.size
        return replace(self, waiting=self.waiting - 1, size=size)


class Claiming:
    """One claim that may wait: give `heard` to it as `on_queued`."""

    def __init__(self, gate: ClaimGate, epoch: int) -> None:
        self._gate = gate
        self._epoch = epoch
        self.was_held_up = False

    def heard(self, news: Queued) -> None:
        """Note what the fleet says of it."""
        # The first position is told to each claim, also to one that is served at once.
        if news.position > 1 or (news.eta or 0.0) > 1.0 or not news.position:
            self.was_held_up = True
            self._gate.hold(self._epoch)


class ClaimGate:
    """Lets claims begin as the window allows, in the order in which they come."""

    def __init__(self, most: int) -> None:
        self._window = ClaimWindow(float(max(most, int(LEAST))))
        self._queue: asyncio.Condition = asyncio.Condition()

    @property
    def window(self) -> ClaimWindow:
        """Return the window as it is now."""
        return self._window

    def hold(self, epoch: int) -> None:
        """Note that the fleet lets claims wait."""
        self._window = self._window.held_up(epoch)

    @asynccontextmanager
    async def claim(self) -> AsyncIterator[Claiming]:
        """Wait for the turn to claim. The body is the claim."""
        async with self._queue:
            await self._queue.wait_for(lambda: self._window.is_open)
            self._window = self._window.began()
        claiming, is_served = Claiming(self, self._window.epoch), False
        try:
            yield claiming
            is_served = True
        finally:
            self._window = self._window.ended(served_at_once=is_served and not claiming.was_held_up)
            async with self._queue:
                self._queue.notify(max(1, int(self._window.size) - self._window.waiting))
