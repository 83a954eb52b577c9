"""Lanes on the event loop: a task waits for its turn, which ends with the block that it is for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandfleet_operator.plan.lanes import Bounds, Lane, Party, Turn


class NoTurnError(Exception):
    """The party had no turn in time, or too many wait. The message is "cannot X: why"."""


class Turns:
    """The turns of one lane, for tasks. `stalls` are the errors of a turn that had no answer."""

    def __init__(self, bounds: Bounds, stalls: type[Exception] | tuple[type[Exception], ...] = TimeoutError) -> None:
        self._lane, self._stalls = Lane(bounds), stalls
        self._waiting: dict[Turn, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, party: Party, within: float) -> AsyncIterator[None]:
        """Waits for a turn for `within` seconds; 0: it has to be free. Raises NoTurnError."""
        turn = await self._begun(party, within)
        stalled: bool | None = None
        try:
            yield
            stalled = False
        except self._stalls:
            stalled = True
            raise
        except Exception:
            # An answer, whatever it is.
            stalled = False
            raise
        finally:
            self._end(turn, stalled=stalled)

    async def _begun(self, party: Party, within: float) -> Turn:
        turn = self._lane.ask(party)
        if turn is None:
            raise NoTurnError(f"cannot begin: {self._lane.bounds.waiting} wait already")
        self._waiting[turn] = future = asyncio.get_running_loop().create_future()
        self._begin()
        try:
            if not future.done():
                async with asyncio.timeout(within):
                    await future
        except BaseException as error:
            self._given_up(turn)
            if not isinstance(error, TimeoutError):
                raise
            why = f"namespace {party.namespace} had no turn within {within:g} s"
            raise NoTurnError(f"cannot begin: {why}") from None
        return turn

    def _given_up(self, turn: Turn) -> None:
        if self._waiting.pop(turn, None) is not None:
            self._lane.leave(turn)
        else:
            # It began, and its task did not come to know.
            self._end(turn, stalled=None)

    def _end(self, turn: Turn, *, stalled: bool | None) -> None:
        self._lane.end(turn, asyncio.get_running_loop().time(), stalled=stalled)
        self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        for turn in self._lane.begin(loop.time()):
            future = self._waiting.pop(turn)
            if not future.done():
                future.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        wakes = self._lane.wakes_at(loop.time())
        self._timer = loop.call_at(wakes, self._begin) if wakes is not None else None
