"""A watch of sandboxes that goes on when its connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet._status import to_fleet_error
from sandfleet.door import pauses
from sandfleet.fleet_values import SandboxChange
from sandfleet.values import SandboxInfo

if TYPE_CHECKING:
    from sandfleet.door import Door

# How long a fleet may be away, in seconds.
_PATIENCE = 60.0


class Seen:
    """What a watch has told so far: after a break the fleet tells everything again, and says nothing of what has gone."""

    def __init__(self) -> None:
        self._told: dict[str, SandboxInfo] = {}
        self._synced = False
        # Those that were told since the connection was made; None once it is in step.
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


async def changes(door: Door, request: api.fleet.WatchRequest) -> AsyncIterator[SandboxChange]:
    """Yield what changes, for ever. Raises UnavailableError when the fleet is away for too long."""
    clock = asyncio.get_running_loop().time
    seen, steps, deadline = Seen(), pauses(), clock() + _PATIENCE
    while True:
        stub = door.stub
        seen.connect()
        try:
            async for message in stub.Watch(request, metadata=await door.metadata()):
                steps, deadline = pauses(), clock() + _PATIENCE
                for change in seen.feed(message):
                    yield change
        except api.aio.AioRpcError as error:
            try:
                door.check_worth_it(error, deadline)
            except api.aio.AioRpcError:
                raise to_fleet_error(error) from error
        await asyncio.sleep(next(steps))
        await door.look_again(stub)
