"""Has the session namespace load the template's modules, and a new one without those that have ended it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.packages import preload
from sandfleet_executor.core.packages.preload import Preloads

# The most modules that may end a namespace, one after the other.
MAX_ENDS = 3

_log = logging.getLogger(__name__)


class Preload:
    def __init__(self, names: Sequence[str]) -> None:
        self.status = Preloads.of(names)
        self._changed = asyncio.Event()

    def heard(self, said: Mapping[str, Any]) -> None:
        """What the spawner says, or {"event": "ended"} at the end of its namespace."""
        before = self.status
        self.status = before.ended() if said.get("event") == "ended" else before.heard(said)
        for each in self.status.failed:
            if each not in before.failed:
                _log.warning("%s", preload.told([each]))
        self._changed.set()

    async def settle(self, begin: Callable[[], Awaitable[object]], end: Callable[[], Awaitable[None]]) -> None:
        """Returns when each module is loaded or left out. `begin` makes a namespace where there is none, `end` ends it.

        Raises NamespaceError.
        """
        until, late = time.monotonic() + preload.SECONDS, False
        ends = 0
        while not self.status.settled:
            self._changed.clear()
            failed = len(self.status.failed)
            await begin()
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                await self._cut(end, late=late)
                until, late = until + preload.MORE_SECONDS, True
            ends += len(self.status.failed) > failed and not self.status.settled
            if ends > MAX_ENDS:
                await self._give_up("other modules have failed too often", end)
        await begin()

    async def _cut(self, end: Callable[[], Awaitable[None]], *, late: bool) -> None:
        """Leaves out the module that takes too long; if it is late, all that are not loaded."""
        if late:
            return await self._give_up(f"it was not done within {preload.SECONDS + preload.MORE_SECONDS:g} s", end)
        self.status = self.status.ended(f"it was not done within {preload.SECONDS:g} s")
        _log.warning("%s", preload.told(self.status.failed))
        await end()
        return None

    async def _give_up(self, why: str, end: Callable[[], Awaitable[None]]) -> None:
        self.status = self.status.given_up(why)
        _log.warning("%s", preload.told(self.status.failed))
        await end()

    def notices(self) -> tuple[Notice, ...]:
        """What contexts do not have although the template names it."""
        failed = self.status.failed
        return (Notice(preload.NOT_PRELOADED, preload.told(failed)),) if failed else ()
