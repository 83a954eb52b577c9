"""Terminals: commands with a pseudo-terminal."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Self

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.events import EventCollector, Output
from sandfleet._wire.stream import COMMANDS, ExecutionStream
from sandfleet.resources.commands import AsyncCommandHandle, Command, pid_of
from sandfleet.resources.contexts import Listeners
from sandfleet.values.execution import CommandOutput, Stream
from sandfleet.values.options import FileText

if TYPE_CHECKING:
    from sandfleet._wire.link import Link
    from sandfleet.values.execution import CommandResult

_SHELL = ("/bin/bash",)


class AsyncPtyHandle:
    """A command in a terminal of its own. Iterate over it to read its output as bytes; `wait` for its end.

    Output is read only while you iterate or wait; a program whose output is not read blocks. The program chooses every
    byte, escape sequences included: written to a real terminal they move its cursor, set its title, make it answer.
    Dropping the handle does not end the program; its deadline does, and the end of a `with` block around the handle.
    """

    def __init__(self, link: Link, stream: ExecutionStream, pid: int | None) -> None:
        """Use `sandbox.pty.create`."""
        self._link = link
        self._handle = AsyncCommandHandle(link, stream, Listeners(None, None), None, pid)

    def __repr__(self) -> str:
        return repr(self._handle).replace("AsyncCommandHandle", type(self).__name__, 1)

    @property
    def execution_id(self) -> str:
        """The command's id."""
        return self._handle.execution_id

    @property
    def pid(self) -> int | None:
        """The program's process id inside the sandbox; None where none was started."""
        return self._handle.pid

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._handle.__aexit__()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            piece = await anext(self._handle)
            if piece.data:
                return piece.data

    @checked
    async def send(self, data: str | bytes) -> None:
        """Type into the terminal: Ctrl-C is byte 3, Ctrl-D byte 4, Enter byte 13. Returns when it has taken everything.

        Raises NotFoundError when the command has ended.
        """
        await self._handle.send_stdin(data)

    @checked
    async def resize(self, rows: int, cols: int) -> None:
        """Set the terminal's size; its foreground programs get SIGWINCH.

        Raises NotFoundError (it has ended), InvalidArgument.
        """
        request = api.process.ResizeRequest(execution_id=self.execution_id, rows=rows, cols=cols)
        await self._link.unary(lambda c: c.process.Resize, request, idempotent=True)

    @checked
    async def signal(self, number: int) -> bool:
        """Send a signal to the command. Returns whether it was still running.

        Raises InvalidArgument (no such signal).
        """
        return await self._handle.signal(number)

    async def kill(self) -> bool:
        """Kill the command with all its processes. Returns whether it was still running."""
        return await self._handle.kill()

    @checked
    async def wait(self, *, check: bool = False) -> CommandResult:
        """Read to the end and return the result, without the output. `check` raises CommandFailed unless it is ok."""
        return await self._handle.wait(check=check)


class AsyncPty:
    """Terminals of one sandbox."""

    def __init__(self, link: Link) -> None:
        """Use `sandbox.pty`."""
        self._link = link

    @checked
    async def create(
        self,
        *,
        rows: int = 24,
        cols: int = 80,
        command: Command | None = None,
        cwd: FileText = "",
        envs: Mapping[str, str] | None = None,
        term: str = "",
        timeout: float | None = None,
        execution_id: str | None = None,
    ) -> AsyncPtyHandle:
        """Start a program in a new terminal.

        rows, cols    size in characters, 1 to 4096 each.
        command       None is bash, as in a login; a str is a line for bash, a sequence the program and its arguments.
        cwd           relative to /workspace.
        term          the value of TERM; "" means xterm-256color.
        timeout       deadline in seconds; None means the sandbox's default.

        Raises InvalidArgument, LimitReached, SandboxEnded, UnavailableError.
        """
        words = _SHELL if command is None else command
        request = api.process.StartRequest(
            execution_id=execution_id or os.urandom(16).hex(),
            argv=[] if isinstance(words, str) else [os.fsencode(word) for word in words],
            shell=os.fsencode(words or "\n") if isinstance(words, str) else b"",
            cwd=os.fsencode(cwd or self._link.cwd),
            envs=dict(envs or {}),
            timeout=convert.seconds(timeout),
            pty=api.process.Pty(rows=rows, cols=cols, term=term),
        )
        stream = ExecutionStream(self._link, _passing_on(request.execution_id), timeout, COMMANDS)
        await stream.open(request)
        return AsyncPtyHandle(self._link, stream, await pid_of(self._link, stream.collector))

    @checked
    async def connect(self, execution_id: str, *, rows: int = 0, cols: int = 0) -> AsyncPtyHandle:
        """Use a terminal that this or another process created, from the oldest output that is still stored.

        rows, cols  its new size, which makes full-screen programs draw anew; 0 and 0 leave the size as it is.

        Raises NotFoundError when no terminal has the id, PreconditionFailed when the command has no terminal,
        InvalidArgument.
        """
        stream = ExecutionStream(self._link, _passing_on(execution_id), None, COMMANDS)
        await stream.attach()
        handle = AsyncPtyHandle(self._link, stream, await pid_of(self._link, stream.collector))
        if rows or cols:
            await handle.resize(rows, cols)
        return handle


def _passing_on(execution_id: str) -> EventCollector:
    """Make a collector that stores no output: a terminal may run for days."""
    collector = EventCollector(execution_id)
    collector.outputs = {stream: _Passing(stream) for stream in Stream}
    return collector


class _Passing(Output):
    """A stream whose output is not stored."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, 0, keep_bytes=False)

    def add(self, data: bytes) -> tuple[CommandOutput, ...]:
        """Take a chunk."""
        return (CommandOutput(self.stream, "", data),)
