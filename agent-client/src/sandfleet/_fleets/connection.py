"""The connection to a fleet. After a break it connects again, to wherever the fleet is then."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sandfleet._wire import api
from sandfleet._wire.channel import open_channel
from sandfleet._wire.home import Home
from sandfleet._wire.link import trace_metadata
from sandfleet._wire.retry import Backoff
from sandfleet._wire.status import detail, to_error, to_fleet_error, told_pause
from sandfleet.errors import SandboxEnded, SandfleetError, UnavailableError
from sandfleet.observe import tracing

if TYPE_CHECKING:
    from sandfleet._fleets.cluster import Place
    from sandfleet._wire.link import Metadata

    Stub = api.fleet_grpc.FleetServiceAsyncStub

Answer = TypeVar("Answer")

_UNIX = "unix:"
# The reason of sandboxes whose fleet has ended.
FLEET_ENDED = "FleetEnded"
# Seconds between two searches for the fleet, no matter how many calls fail.
_BETWEEN_LOOKS = 0.5
# How long calls on the old connection may take to end, in seconds.
_OLD_CALLS = 30.0


def is_broken(error: api.aio.AioRpcError) -> bool:
    """Return whether the fleet went away, does not serve yet or does not lead: another attempt may succeed."""
    code = error.code().name
    # A server that stops may cancel its calls without a detail.
    return code == "UNAVAILABLE" or (code == "CANCELLED" and detail(error) is None)


def is_passing(error: api.aio.AioRpcError) -> bool:
    """Return whether the fleet refuses the call now and says when to come back."""
    return not is_broken(error) and told_pause(error) is not None and to_error(error).retryable


class FleetConnection:
    """A connection to a fleet, with the client's token.

    `find` returns the fleet's current place, given the address that failed; it may block. None: the fleet has one place
    only, as on one machine, where a fleet that has gone does not come back: no call is tried twice.
    """

    backoff = Backoff(0.1, 2.0)
    # How long the server at a fleet's one place may take to answer for the first time, in seconds.
    patience = 10.0

    def __init__(self, address: str, place: Place | None = None, find: Callable[[str], Place] | None = None) -> None:
        self._home = Home()
        self.address = address
        self._tokens = place.tokens if place else None
        self._find = find
        self._moving = asyncio.Lock()
        self._next_look = 0.0
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        self._reached = False
        self._open(place)

    def _open(self, place: Place | None) -> None:
        self.place = place
        if place is not None:
            self.address = place.address
        name, ca = (place.name, place.ca) if place else ("", b"")
        self.channel = open_channel(self.address, ca=ca, name=name)
        self.stub: Stub = api.fleet_grpc.FleetServiceStub(self.channel)

    async def close(self) -> None:
        """Close the connection; running calls fail."""
        if self._home.was_forked:
            # The connection is the parent's.
            return
        self._home.check("the fleet")
        self._closed = True
        for task in self._closing:
            task.cancel()
        await self.channel.close(None)

    async def reach(self) -> None:
        """Wait until a server answers at the fleet's one place. Raises UnavailableError."""
        if self._reached or self._find is not None:
            return
        self._check_open()
        ready, failed = api.grpc.ChannelConnectivity.READY, api.grpc.ChannelConnectivity.TRANSIENT_FAILURE
        why = f"nothing answers there for {self.patience:g} s"
        try:
            async with asyncio.timeout(self.patience):
                while (state := self.channel.get_state(try_to_connect=True)) not in (ready, failed):
                    await self.channel.wait_for_state_change(state)
        except TimeoutError:
            state = failed
        else:
            why = "no server is there"
        if state is failed:
            raise UnavailableError(
                f"cannot reach the fleet at {self.address}: {why}", reason="FleetUnreachable", retryable=True
            )
        self._reached = True

    async def metadata(self) -> Metadata:
        """Return the metadata of each call. Raises UnavailableError when there is no token."""
        trace = trace_metadata()
        if self._tokens is None:
            return trace
        token = await asyncio.to_thread(self._tokens.token)
        return (("authorization", f"Bearer {token}"), *trace)

    async def call(
        self,
        attempt: Callable[[Stub, Metadata], Awaitable[Answer]],
        patience: float,
        waiting: Callable[[api.aio.AioRpcError], Awaitable[None]] | None = None,
    ) -> Answer:
        """Make an attempt, and others for `patience` seconds while the connection breaks.

        A call with `waiting` is also made again where the fleet refuses it and says when to come back; `waiting` is
        called before each pause. The call may happen twice, so it has to be idempotent. Raises the error of the last
        attempt.
        """
        self._home.check("the fleet")
        await self.reach()
        clock = asyncio.get_running_loop().time
        deadline, failures = clock() + patience, 0
        while True:
            metadata = await self.metadata()
            # Only now: while the token is read, another task may have moved on to a new channel and closed the old one,
            # or may have closed this object.
            self._check_open()
            stub = self.stub
            try:
                return await attempt(stub, metadata)
            except api.aio.AioRpcError as error:
                failures += 1
                told, room = told_pause(error), deadline - clock()
                pause = self.backoff.after(failures) if told is None else self.backoff.told(told, failures, room)
                if waiting is None or not is_passing(error):
                    self.check_worth_it(error, deadline - pause)
                elif pause > room:
                    raise
                if waiting is not None:
                    await waiting(error)
            await asyncio.sleep(pause)
            await self.look_again(stub)

    def error_of(self, error: api.aio.AioRpcError, request: api.message.Message) -> SandfleetError:
        """Build the typed error of a call. A sandbox whose fleet of one machine has ended has ended with it."""
        sandbox_id = getattr(request, "sandbox_id", "")
        if not sandbox_id or not is_broken(error) or not self._has_ended():
            return to_fleet_error(error)
        why = "its fleet has ended, and its sandboxes with it; `Sandbox.resume` takes on what a snapshot keeps"
        return SandboxEnded(f"cannot use sandbox {sandbox_id}: {why}", reason=FLEET_ENDED, subject=sandbox_id)

    def _has_ended(self) -> bool:
        """Whether no process listens any more at the socket where this fleet was reached."""
        if not self._reached or not self.address.startswith(_UNIX):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            # A server that is busy is one.
            probe.setblocking(False)
            try:
                probe.connect(self.address.removeprefix(_UNIX))
            except (FileNotFoundError, ConnectionRefusedError):
                return True
            except OSError:
                return False
        return False

    async def unary(
        self,
        name: str,
        request: api.message.Message,
        timeout: float,
        patience: float,
        *,
        stub: Callable[[api.aio.Channel], Any] | None = None,
        metadata: Metadata | None = None,
    ) -> Any:
        """Make a call as `call` does, in a span. Each attempt has `timeout` seconds. Raises SandfleetError.

        `stub` and `metadata` take the place of the fleet service's and of this client's.
        """

        def attempt(own: Stub, own_metadata: Metadata) -> Any:
            rpcs = own if stub is None else stub(self.channel)
            return getattr(rpcs, name)(request, metadata=metadata or own_metadata, timeout=timeout)

        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            try:
                return await self.call(attempt, patience)
            except api.aio.AioRpcError as error:
                raise self.error_of(error, request) from error

    def check_worth_it(self, error: api.aio.AioRpcError, deadline: float) -> None:
        """Raise the error if another attempt would not help, or the deadline (of the loop's clock) is over."""
        if self._find is None or not is_broken(error) or asyncio.get_running_loop().time() > deadline:
            raise error

    async def look_again(self, broken: Stub) -> None:
        """Connect again, to the fleet's current place, unless another task has done so since `broken` was in use.

        This helps even if the address is the same: another fleet may now serve behind it.
        """
        clock = asyncio.get_running_loop().time
        async with self._moving:
            if self._find is None or self.stub is not broken or clock() < self._next_look:
                return
            self._next_look = clock() + _BETWEEN_LOOKS
            try:
                place = await asyncio.to_thread(self._find, self.address)
            except UnavailableError:
                # The cluster's API may be unavailable for a moment as well.
                return
            self._check_open()
            old = self.channel
            self._open(place)
            task = asyncio.ensure_future(old.close(_OLD_CALLS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("cannot call the fleet: this object was closed", reason="Closed")
