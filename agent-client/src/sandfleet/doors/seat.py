"""The sandbox of one session of a door: claimed at its first use, released at the session's end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandfleet._toolkit import AsyncToolkit, toolkit
from sandfleet.sandbox import AsyncSandbox

if TYPE_CHECKING:
    from sandfleet.doors.mcp.answers import Background
    from sandfleet.values.options import CreateOptions


class Seat:
    """At most one sandbox at a time."""

    def __init__(self, template: str, options: CreateOptions) -> None:
        """Keep what `AsyncSandbox.create` is to be given at the first use."""
        self._template = template
        self._options: CreateOptions = {"keep_alive": True, **options}
        self._turn = asyncio.Lock()
        self._sandbox: AsyncSandbox | None = None
        self._kit: AsyncToolkit | None = None
        # Commands in the background, by their ids.
        self.commands: dict[str, Background] = {}

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox, and claim it at the first call. Raises what `create` raises."""
        async with self._turn:
            if self._sandbox is None:
                self._sandbox = await AsyncSandbox.create(self._template, **self._options)
            return self._sandbox

    async def kit(self) -> AsyncToolkit:
        """Return the prepared tools of the sandbox. Raises what `create` raises."""
        sandbox = await self.sandbox()
        if self._kit is None:
            self._kit = toolkit(sandbox)
        return self._kit

    async def leave(self) -> None:
        """Forget a sandbox that has ended: the next call claims another."""
        async with self._turn:
            ended, self._sandbox = self._sandbox, None
            self._kit = None
            self.commands.clear()
        if ended is not None:
            await ended.close()

    async def close(self) -> None:
        """End the sandbox, if there is one."""
        async with self._turn:
            ended, self._sandbox = self._sandbox, None
            for command in self.commands.values():
                command.reading.cancel()
            self.commands.clear()
            if ended is not None:
                await ended.kill()
