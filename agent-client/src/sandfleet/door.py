"""The way to a fleet: a connection that is made anew where it breaks, to wherever the fleet is then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from sandfleet import _api as api
from sandfleet._status import detail
from sandfleet.channel import open_channel
from sandfleet.errors import UnavailableError
from sandfleet.transport import trace_metadata

if TYPE_CHECKING:
    from sandfleet.cluster import Place
    from sandfleet.transport import Metadata

    Stub = api.fleet_grpc.FleetServiceAsyncStub

Answer = TypeVar("Answer")

# Seconds between two attempts: the first, and the longest. Up to half of it is left to chance.
_PAUSES = (0.1, 2.0)
# The fleet is not looked for more often, however many calls fail, in seconds.
_BETWEEN_LOOKS = 0.5
# How long calls that are running on the old connection have to end, in seconds.
_OLD_CALLS = 30.0


def is_broken(error: api.aio.AioRpcError) -> bool:
    """Say whether the fleet went away, is not serving yet, or is not the one that serves: another attempt may succeed."""
    code = error.code().name
    # A server that stops may cancel what it was doing, and says nothing then.
    return code == "UNAVAILABLE" or (code == "CANCELLED" and detail(error) is None)


def pauses() -> Iterator[float]:
    """Say how long to wait before each next attempt, in seconds."""
    pause, longest = _PAUSES
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311  so that not everybody comes at once
        pause = min(2 * pause, longest)


class Door:
    """A connection to a fleet, with what says who we are.

    `find` says where the fleet is now, given the address that was tried; it may take a moment. None: it is in one place
    only, as on one machine, where a fleet that is gone does not come back; then nothing is tried twice.
    """

    def __init__(self, address: str, place: Place | None = None, find: Callable[[str], Place] | None = None) -> None:
        self.address = address
        self._tokens = place.tokens if place else None
        self._find = find
        self._moving = asyncio.Lock()
        self._next_look = 0.0
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        self._open(place)

    def _open(self, place: Place | None) -> None:
        if place is not None:
            self.address = place.address
        name, ca = (place.name, place.ca) if place else ("", b"")
        self._channel = open_channel(self.address, ca=ca, name=name)
        self.stub: Stub = api.fleet_grpc.FleetServiceStub(self._channel)

    async def close(self) -> None:
        """Close it; calls that are running fail."""
        self._closed = True
        for task in self._closing:
            task.cancel()
        await self._channel.close(None)

    async def metadata(self) -> Metadata:
        """Return what goes with each call. Raises UnavailableError where nobody says who we are."""
        trace = trace_metadata()
        if self._tokens is None:
            return trace
        token = await asyncio.to_thread(self._tokens.token)
        return (("authorization", f"Bearer {token}"), *trace)

    async def call(
        self,
        attempt: Callable[[Stub, Metadata], Awaitable[Answer]],
        patience: float,
        waiting: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """Make an attempt, and others while the connection breaks, for `patience` seconds; `waiting` hears of each break.

        What is attempted may thus happen twice: it has to be idempotent. Raises the error of the last attempt.
        """
        deadline, steps = asyncio.get_running_loop().time() + patience, pauses()
        while True:
            stub = self.stub
            try:
                return await attempt(stub, await self.metadata())
            except api.aio.AioRpcError as error:
                pause = next(steps)
                self.check_worth_it(error, deadline - pause)
            if waiting is not None:
                await waiting()
            await asyncio.sleep(pause)
            await self.look_again(stub)

    def check_worth_it(self, error: api.aio.AioRpcError, deadline: float) -> None:
        """Raise the error where another attempt would not help, or its time (of the loop's clock) is over."""
        if self._find is None or not is_broken(error) or asyncio.get_running_loop().time() > deadline:
            raise error

    async def look_again(self, broken: Stub) -> None:
        """Connect anew, to where the fleet is now, unless somebody has done so since `broken` was in use.

        Also where the address is the same: behind it there may be another fleet, and a connection stays with the one it met.
        """
        clock = asyncio.get_running_loop().time
        async with self._moving:
            if self._find is None or self.stub is not broken or clock() < self._next_look:
                return
            self._next_look = clock() + _BETWEEN_LOOKS
            try:
                place = await asyncio.to_thread(self._find, self.address)
            except UnavailableError:
                # Who knows where it is may be away for a moment too.
                return
            self._check_open()
            old = self._channel
            self._open(place)
            task = asyncio.ensure_future(old.close(_OLD_CALLS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("cannot call the fleet: this object was closed", reason="Closed")
