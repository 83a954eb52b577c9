"""The parts of a sandbox that are used and seen from outside: its ports, and what it uses."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from sandfleet._arguments import checked
from sandfleet.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandfleet._wire.link import Link
    from sandfleet.resources.ports import AsyncForward, Forwards, OnError
    from sandfleet.values.environment import Environment
    from sandfleet.values.usage import Health, SandboxUsage


class HasPorts:
    """The part of a sandbox whose programs can be reached."""

    _link: Link

    @cached_property
    def _forwards(self) -> Forwards:
        from sandfleet.resources.ports import Forwards

        return Forwards(self._link)

    @checked
    async def forward(self, port: int, *, local_port: int = 0, on_error: OnError | None = None) -> AsyncForward:
        """Forward a TCP port of this machine to a port of the sandbox, until `close` or the end of this object.

        port        on the sandbox's loopback; whether a program listens there is found out with each connection.
        local_port  on 127.0.0.1; 0 means a free port.
        on_error    called with each SandfleetError that ended a connection, which is reset (PreconditionFailed: no
                    program listens, …), in the thread of the event loop: the sync class must not call the sandbox.

        Raises InvalidArgument (no such port), OSError (the local port is taken).
        """
        return await self._forwards.open(port, local_port=local_port, on_error=on_error)

    @checked
    async def get_host(self, port: int) -> str:
        """Return the "127.0.0.1:PORT" that leads to a port of the sandbox: a `forward`, once for each port."""
        return await self._forwards.host(port)

    @checked
    async def get_url(self, port: int, *, expires: float = 3600.0) -> str:
        """Return a link for browsers of this machine to a port of the sandbox; it opens the port for `expires` seconds.

        Raises PreconditionFailed while no `sandfleet serve` runs, InvalidArgument (no such port; a cluster's sandbox).
        """
        from sandfleet.resources import links

        if not 1 <= port <= links.MOST_PORT:
            raise InvalidArgument(f"cannot link to port {port}: it has to be 1 to {links.MOST_PORT}")
        return links.url(links.Place(port, self._link.sandbox_id), int(time.time() + expires))


class HasUsage:
    """The part of a sandbox that says what it uses, what it has, and whether it can work."""

    _link: Link

    async def usage(self) -> SandboxUsage:
        """Return what the sandbox uses now and has used since its start, and its limits. Raises SandboxEnded."""
        from sandfleet.resources.usage import ask

        return await ask(self._link)

    @checked
    async def watch_usage(self, interval: float = 1.0) -> AsyncIterator[SandboxUsage]:
        """Yield what the sandbox and each of its running executions use, until the sandbox ends or falls asleep.

        At most once in `interval` seconds (0.1 to 60), after a change, and after 5 seconds without one. Watching does
        not keep an idle sandbox alive. Raises UnavailableError, LimitReached when 64 clients are watching.
        """
        from sandfleet.resources.usage import watch

        async for usage in watch(self._link, interval):
            yield usage

    async def environment(self) -> Environment:
        """List languages, packages with their origin, and what is the same in each run. Raises PreconditionFailed."""
        return await self._link.environment()

    async def health(self) -> Health:
        """Return whether the sandbox can run code now. Nothing is raised, and no session is woken or kept awake."""
        return await self._link.health()
