"""A watch of sandboxes that goes on when its connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.status import to_fleet_error
from sandfleet.values.fleet import SandboxChange
from sandfleet.values.sandbox import SandboxInfo

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection

# How long a fleet may be away, in seconds.
_PATIENCE = 60.0


class WatchState:
    """What a watch has reported: after a break the fleet reports all sandboxes again, but not those that have gone."""

    def __init__(self) -> None:
        # By id: the last change.
        self._told: dict[str, SandboxChange] = {}
        self._synced = False
        # Sandboxes reported since the last connection; None once it is synced.
        self._fresh: set[str] | None = set()

    def connect(self) -> None:
        """Begin again."""
        self._fresh = set()

    def feed(self, message: api.fleet.WatchResponse) -> Iterator[SandboxChange]:
        """Say what is new in a message."""
        match message.WhichOneof("event"):
            case "changed":
                info = convert.sandbox(message.changed)
                yield from self._tell(info.sandbox_id, SandboxChange("changed", info))
            case "unreadable":
                said = message.unreadable
                told = self._told.get(said.sandbox_id)
                known = told.sandbox if told is not None else SandboxInfo(said.sandbox_id)
                yield from self._tell(said.sandbox_id, SandboxChange("unreadable", known, said.reason, said.message))
            case "removed":
                info = convert.sandbox(message.removed)
                self._told.pop(info.sandbox_id, None)
                yield SandboxChange("removed", info)
            case "synced":
                yield from self._in_step()

    def _tell(self, sandbox_id: str, change: SandboxChange) -> Iterator[SandboxChange]:
        if self._fresh is not None:
            self._fresh.add(sandbox_id)
        if self._told.get(sandbox_id) != change:
            self._told[sandbox_id] = change
            yield change

    def _in_step(self) -> Iterator[SandboxChange]:
        for gone in sorted(self._told.keys() - (self._fresh or set())):
            yield SandboxChange("removed", self._told.pop(gone).sandbox)
        self._fresh = None
        if not self._synced:
            self._synced = True
            yield SandboxChange("synced")


async def changes(connection: FleetConnection, request: api.fleet.WatchRequest) -> AsyncIterator[SandboxChange]:
    """Yield changes without end. Raises UnavailableError when the fleet is away for too long."""
    clock = asyncio.get_running_loop().time
    seen, failures, deadline = WatchState(), 0, clock() + _PATIENCE
    while True:
        metadata = await connection.metadata()
        # Only now: meanwhile another task may have moved on to a new channel and closed the old one.
        stub = connection.stub
        seen.connect()
        call = stub.Watch(request, metadata=metadata)
        try:
            async for message in call:
                failures, deadline = 0, clock() + _PATIENCE
                for change in seen.feed(message):
                    yield change
        except api.aio.AioRpcError as error:
            try:
                connection.check_worth_it(error, deadline)
            except api.aio.AioRpcError:
                raise to_fleet_error(error) from error
        finally:
            # gRPC leaves the call open where its reader is cancelled in the moment in which its request has gone out.
            call.cancel()
        failures += 1
        await asyncio.sleep(connection.backoff.after(failures))
        await connection.look_again(stub)
