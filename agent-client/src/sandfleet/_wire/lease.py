"""The lease of a sandbox, renewed while the sandbox is used."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet._wire.link import Link


class LeaseKeeper:
    """Renews one lease of `seconds` (None: as at the claim) from `start` to `stop`, or until the sandbox ends."""

    def __init__(self, link: Link, seconds: float | None, *, fresh: bool) -> None:
        self.seconds = seconds
        self._link = link
        self._fresh = fresh
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to renew. Starting twice is no error."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep())

    def stop(self) -> None:
        """Renew no more. Stopping twice is no error."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _keep(self) -> None:
        # A lease that another process claimed may be nearly over: renew it at once.
        pause: float | None = self.seconds / 2 if self._fresh and self.seconds else 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            pause = await self._link.keep(self.seconds)
