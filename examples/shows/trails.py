"""The states that services go through while something is waited for."""

import asyncio
import shutil
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from sandfleet.cli import table
from sandfleet.demo.stage import Stage
from sandfleet.errors import SandfleetError
from sandfleet.resources.services import AsyncServices
from sandfleet.values.services import Service, ServiceState

T = TypeVar("T")

# Between two looks, in seconds.
_LOOK = 0.03
_STYLES = {ServiceState.READY: "green", ServiceState.FAILED: "red", ServiceState.BACK_OFF: "yellow"}
_ARROW = " → "
# Of a trail: a service that crashes has three for each start.
_MOST = 50
# Of a reason: what is shorter says nothing.
_LEAST = 12


class Trails:
    """All states seen of each service, drawn as they change. States shorter than a look may be missing."""

    def __init__(self, stage: Stage, services: AsyncServices) -> None:
        self._stage = stage
        self._services = services
        self._drawn = 0
        self._shown: list[str] = []
        self._width = shutil.get_terminal_size().columns - 1
        self._found: dict[str, Service] = {}
        self.seen: dict[str, list[ServiceState]] = {}

    async def during(self, awaited: Awaitable[T]) -> T:
        """Show the states until something is over, and those after it.

        Returns what it returns, raises what it raises.
        """
        self.seen, self._found, self._drawn, self._shown = {}, {}, 0, []
        watching = asyncio.ensure_future(self._watch())
        try:
            return await awaited
        finally:
            watching.cancel()
            # What is wrong with the looking, what was awaited meets as well, and says so.
            await asyncio.gather(watching, return_exceptions=True)
            with suppress(SandfleetError):
                await self._look()
            if not self._stage.live:
                for line in self._lines():
                    self._stage.say(line)

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_LOOK)

    async def _look(self) -> None:
        for service in await self._services.list():
            self._found[service.name] = service
            trail = self.seen.setdefault(service.name, [])
            if trail[-1:] != [service.state]:
                trail.append(service.state)
                del trail[:-_MOST]
        if (lines := self._lines()) != self._shown:
            self._drawn, self._shown = self._stage.redraw(lines, self._drawn), lines

    def _lines(self) -> list[str]:
        return [self._line(name, trail) for name, trail in self.seen.items()]

    def _line(self, name: str, trail: list[ServiceState]) -> str:
        """The trail, and why it is where it is: on a terminal as much of it as there is room for."""
        last, why = trail[-1], self._found[name].message
        head, before = f"  {name:<4}", _ARROW.join([*trail[:-1], ""])
        after = f"  {table.plain(why)}" if why and last is not ServiceState.READY else ""
        if self._stage.live:
            room = max(0, self._width - len(head) - len(last))
            if len(before) > room:
                before = f"…{before[len(before) - room + 1 :]}" if room else ""
            after = _cut(after, room - len(before))
        paint = self._stage.paint
        return head + paint(before, "dim") + paint(last, _STYLES.get(last, "cyan")) + paint(after, "dim")


def _cut(text: str, room: int) -> str:
    """As much of it as says anything."""
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= _LEAST else ""
