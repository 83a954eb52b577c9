"""Terminals: commands that believe a person sits before them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from sandfleet import _api as api
from sandfleet import _late as late
from sandfleet.collect import Output
from sandfleet.commands import AsyncCommandHandle, Command

if TYPE_CHECKING:
    from sandfleet.follow import Follower
    from sandfleet.transport import Link
    from sandfleet.values import CommandOutput, CommandResult, Stream

_SHELL = ("/bin/bash",)


class AsyncPtyHandle:
    """A command in a terminal of its own. Iterate it for what it shows, as bytes; `wait` for its end.

    What it shows is read as it is asked for, and a program whose output nobody reads waits. Every byte is the program's
    choice, escape sequences included: written to a terminal they move its cursor, set its title, make it answer. Letting go of
    the handle does not end the program; its deadline does.
    """

    def __init__(self, link: Link, follower: Follower) -> None:
        """Use `sandbox.pty.create`."""
        self._link = link
        self._handle = AsyncCommandHandle(link, follower, late.interpreter.Listeners(None, None), None)

    @property
    def execution_id(self) -> str:
        """Its id."""
        return self._handle.execution_id

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            piece = await anext(self._handle)
            if piece.data:
                return piece.data

    async def send(self, data: str | bytes) -> None:
        """Type: Ctrl-C is the byte 3, Ctrl-D the byte 4, Enter the byte 13. Returns when the terminal has taken everything.

        Raises NotFoundError when it ended.
        """
        await self._handle.send_stdin(data)

    async def resize(self, rows: int, cols: int) -> None:
        """Set its size; the programs in front are told (SIGWINCH). Raises NotFoundError when it ended, InvalidArgument."""
        request = api.process.ResizeRequest(execution_id=self.execution_id, rows=rows, cols=cols)
        await self._link.unary(lambda c: c.process.Resize, request, idempotent=True)

    async def signal(self, number: int) -> bool:
        """Send a signal to the command. Returns whether it was still running. Raises InvalidArgument: there is no such signal."""
        return await self._handle.signal(number)

    async def kill(self) -> bool:
        """Kill it with everything that it started. Returns whether it was still running."""
        return await self._handle.kill()

    async def wait(self, *, check: bool = False) -> CommandResult:
        """Read to the end and return the result; what it showed is not in it. `check` raises CommandFailed unless it is ok."""
        return await self._handle.wait(check=check)


class AsyncPty:
    """Terminals of one sandbox."""

    def __init__(self, link: Link) -> None:
        """Use `sandbox.pty`."""
        self._link = link

    async def create(
        self,
        *,
        rows: int = 24,
        cols: int = 80,
        command: Command | None = None,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        term: str = "",
        timeout: float | None = None,
        execution_id: str | None = None,
    ) -> AsyncPtyHandle:
        """Start a program in a new terminal.

        rows, cols    its size in characters, 1 to 4096 each.
        command       None is bash, as in a login; a str is a line for bash, a sequence the program and its arguments.
        cwd           relative to /workspace.
        term          what TERM is; "" means xterm-256color.
        timeout       deadline in seconds; None means the sandbox's default.

        Raises InvalidArgument, LimitReached, SandboxEnded, UnavailableError.
        """
        words = _SHELL if command is None else command
        request = api.process.StartRequest(
            execution_id=execution_id or os.urandom(16).hex(),
            argv=[] if isinstance(words, str) else [os.fsencode(word) for word in words],
            shell=os.fsencode(words) if isinstance(words, str) else b"",
            cwd=os.fsencode(cwd),
            envs=dict(envs or {}),
            timeout=late.convert.seconds(timeout),
            pty=api.process.Pty(rows=rows, cols=cols, term=term),
        )
        collector = late.collect.Collector(request.execution_id)
        # What it shows may go on for days: it is passed on and forgotten.
        collector.outputs = {stream: _Passing(stream) for stream in late.values.Stream}
        follower = late.follow.Follower(self._link, collector, timeout, late.follow.COMMANDS)
        await follower.open(request)
        return AsyncPtyHandle(self._link, follower)


class _Passing(Output):
    """A stream of which nothing is kept."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, 0, keep_bytes=False)

    def add(self, data: bytes) -> tuple[CommandOutput, ...]:
        """Take a chunk."""
        return (late.values.CommandOutput(self.stream, "", data),)
