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
        self._told: dict[str, SandboxInfo] = {}
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
                yield from self._changed(convert.sandbox(message.changed))
            case "removed":
                info = convert.sandbox(message.removed)
                self._told.pop(info.sandbox_id, None)
                yield SandboxChange("removed", info)
            case "synced":
                yield from self._in_step()

    def _changed(self, info: SandboxInfo) -> Iterator[SandboxChange]:
        if self._fresh is not None:
            self._fresh.add(info.sandbox_id)
        if self._told.get(info.sandbox_id) != info:
            self._told[info.sandbox_id] = info
            yield SandboxChange("changed", info)

    def _in_step(self) -> Iterator[SandboxChange]:
        for gone in sorted(self._told.keys() - (self._fresh or set())):
            yield SandboxChange("removed", self._told.pop(gone))
        self._fresh = None
        if not self._synced:
            self._synced = True
            yield SandboxChange("synced")


async def changes(connection: FleetConnection, request: api.fleet.WatchRequest) -> AsyncIterator[SandboxChange]:
    """Yield changes without end. Raises UnavailableError when the fleet is away for too long."""
    clock = asyncio.get_running_loop().time
    seen, failures, deadline = WatchState(), 0, clock() + _PATIENCE
    while True:
        stub = connection.stub
        seen.connect()
        try:
            async for message in stub.Watch(request, metadata=await connection.metadata()):
                failures, deadline = 0, clock() + _PATIENCE
                for change in seen.feed(message):
                    yield change
        except api.aio.AioRpcError as error:
            try:
                connection.check_worth_it(error, deadline)
            except api.aio.AioRpcError:
                raise to_fleet_error(error) from error
        failures += 1
        await asyncio.sleep(connection.backoff.after(failures))
        await connection.look_again(stub)
