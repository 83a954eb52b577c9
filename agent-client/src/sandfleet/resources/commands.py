"""Commands: programs that end by themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self, Unpack, overload

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.events import EventCollector
from sandfleet._wire.stream import COMMANDS, ExecutionStream
from sandfleet.errors import InvalidArgument, NotFoundError, SandfleetError
from sandfleet.observe import tracing
from sandfleet.observe.intent import intent
from sandfleet.resources.contexts import Listeners
from sandfleet.values.execution import CommandOutput, CommandResult, Stream
from sandfleet.values.options import FileText, RunOptions

if TYPE_CHECKING:
    from sandfleet._wire.events import Piece
    from sandfleet._wire.link import Link
    from sandfleet.values.execution import OnText, RunningCommand

# The most that one SendInput takes, in bytes.
_INPUT_CHUNK = 1024 * 1024
# How long a command without a deadline may take to read its input, in seconds: gRPC has no infinite deadline.
_LONGEST_INPUT = 7 * 86400.0
_SIGKILL = 9

Command = FileText | Sequence[FileText | bytes]


class AsyncCommandHandle:
    """A command that was started. Iterate over it to read its output as it comes; `wait` returns its result.

    Output is read from the sandbox only while you iterate or wait. Dropping the handle does not end the command; its
    deadline does, and so does the end of a `with` block around the handle.
    """

    def __init__(
        self,
        link: Link,
        stream: ExecutionStream,
        listeners: Listeners,
        stdin: bytes | str | None,
        pid: int | None = None,
    ) -> None:
        """Use `commands.run(…, background=True)`."""
        self._link = link
        self._stream = stream
        self._listeners = listeners
        self._feeding = asyncio.ensure_future(self._feed(stdin)) if stdin is not None else None
        self._pieces = stream.pieces()
        self._pid = pid
        self._turn = asyncio.Lock()
        self._next: asyncio.Future[Piece] | None = None

    def __repr__(self) -> str:
        ending = self._stream.collector.ending
        return f"{type(self).__name__}({self.execution_id}, {ending.outcome if ending else 'running'})"

    @property
    def execution_id(self) -> str:
        """The command's id."""
        return self._stream.collector.execution_id

    @property
    def pid(self) -> int | None:
        """The process id inside the sandbox; None where no program was started."""
        return self._pid

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream.collector.ending is None and await self.kill():
            await self.wait()

    @property
    def spans(self) -> Sequence[api.common.Span]:
        """The executor's own spans, at the end."""
        return self._stream.collector.spans

    def __aiter__(self) -> AsyncIterator[CommandOutput]:
        return self

    async def __anext__(self) -> CommandOutput:
        while True:
            piece = await self._piece()
            await self._listeners.tell(piece)
            if isinstance(piece, CommandOutput):
                return piece

    async def _piece(self) -> Piece:
        """Take the next piece. A reader that is cancelled leaves the piece to the next reader."""
        async with self._turn:
            if self._next is None:
                self._next = asyncio.ensure_future(anext(self._pieces))
                # Without a next reader, its exception is not reported.
                self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
            waited = self._next
            try:
                return await asyncio.shield(waited)
            finally:
                if waited.done():
                    self._next = None

    @checked
    async def wait(self, *, check: bool = False) -> CommandResult:
        """Read to the end and return the result, with all output. `check` raises CommandFailed unless it is ok."""
        async for _ in self:
            pass
        if self._feeding is not None:
            # The command has ended and will not read the rest.
            self._feeding.cancel()
        result = result_of(self._stream.collector)
        return result.raise_for_error() if check else result

    async def kill(self) -> bool:
        """Kill the command with all its processes. Returns whether it was still running."""
        return await self.signal(_SIGKILL)

    @checked
    async def signal(self, number: int) -> bool:
        """Send a signal to the command. Returns whether it was still running.

        Raises InvalidArgument (no such signal).
        """
        return await _signal(self._link, self.execution_id, number)

    @checked
    async def send_stdin(self, data: str | bytes) -> None:
        """Write to the command's standard input; returns when the pipe has taken everything.

        Raises NotFoundError when the command has ended, PreconditionFailed when its standard input is closed.
        """
        raw = data.encode() if isinstance(data, str) else data
        for start in range(0, len(raw), _INPUT_CHUNK):
            chunk = raw[start : start + _INPUT_CHUNK]
            request = api.process.SendInputRequest(execution_id=self.execution_id, data=chunk)
            # The command decides how long this takes, so its deadline is the limit.
            await self._link.unary(
                lambda c: c.process.SendInput, request, timeout=min(self._stream.patience, _LONGEST_INPUT)
            )

    async def close_stdin(self) -> None:
        """Close the command's standard input. Closing it twice, or after the command's end, is no error."""
        request = api.process.CloseInputRequest(execution_id=self.execution_id)
        with suppress(NotFoundError):
            await self._link.unary(lambda c: c.process.CloseInput, request, idempotent=True)

    async def _feed(self, data: bytes | str) -> None:
        # A command may end or close its input before it has read everything; its result says how it ended.
        with suppress(SandfleetError):
            await self.send_stdin(data)
            await self.close_stdin()


class AsyncCommands:
    """Programs that end by themselves, in one sandbox."""

    def __init__(self, link: Link) -> None:
        """Use `sandbox.commands`."""
        self._link = link

    @overload
    async def run(
        self, cmd: Command, *, background: Literal[False] = False, check: bool = False, **options: Unpack[RunOptions]
    ) -> CommandResult: ...
    @overload
    async def run(
        self, cmd: Command, *, background: Literal[True], check: bool = False, **options: Unpack[RunOptions]
    ) -> AsyncCommandHandle: ...
    @overload
    async def run(
        self, cmd: Command, *, background: bool, check: bool = False, **options: Unpack[RunOptions]
    ) -> CommandResult | AsyncCommandHandle: ...
    @checked
    async def run(
        self, cmd: Command, *, background: bool = False, check: bool = False, **options: Unpack[RunOptions]
    ) -> CommandResult | AsyncCommandHandle:
        """Run a program: a str is a line for bash, a sequence is the program and its arguments.

        background  return a handle as soon as the command began, instead of the result.
        check       raise CommandFailed unless it ends with exit code 0; without it any end is a result.
        options     see `RunOptions`: cwd, envs, timeout, stdin, merge_output, on_stdout, on_stderr, output_limit,
                    execution_id, intent.

        Raises only before the command is accepted, as `run_code` does. Cancelling the call kills the command.
        """
        if options.get("stdin") is True and not background:
            raise InvalidArgument("cannot leave stdin open without background=True: only a handle can write to it")
        if background and check:
            raise InvalidArgument("cannot check a command in the background: call wait(check=True)")
        request = _start_request(cmd, options, self._link.cwd)
        listeners = Listeners(options.get("on_stdout"), options.get("on_stderr"))
        with intent(options.get("intent")):
            if background:
                return await self._start(request, listeners, options, known=True)
            return await self._run(request, listeners, options, check=check)

    @checked
    async def connect(
        self,
        execution_id: str | int | AsyncCommandHandle,
        *,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
    ) -> AsyncCommandHandle:
        """Follow a command from its first output on: by its id or handle, or by its process id while it runs.

        This or another process started it; it may be running or have ended, and others may follow it as well. Dropping
        the handle does not end it.

        Raises NotFoundError when no command has the id, or its output is no longer stored.
        """
        collector = EventCollector(await self._id_of(execution_id), keep_bytes=True)
        stream = ExecutionStream(self._link, collector, None, COMMANDS)
        await stream.attach()
        pid = await pid_of(self._link, collector)
        return AsyncCommandHandle(self._link, stream, Listeners(on_stdout, on_stderr), None, pid)

    @checked
    async def kill(self, command: str | int | AsyncCommandHandle) -> bool:
        """Kill a running command with all its processes, by its id, its handle or its process id (see `list`).

        Returns whether it was running; killing a command that has ended is no error.
        """
        try:
            return await _signal(self._link, await self._id_of(command), _SIGKILL)
        except NotFoundError:
            return False

    async def _id_of(self, command: str | int | AsyncCommandHandle) -> str:
        if isinstance(command, (str, AsyncCommandHandle)):
            return command if isinstance(command, str) else command.execution_id
        for each in await self.list():
            if each.pid == command:
                return each.execution_id
        raise NotFoundError(f"cannot follow process {command}: no command that runs has it", reason="CommandNotFound")

    async def list(self) -> tuple[RunningCommand, ...]:
        """List the commands that are running, with their process ids inside the sandbox."""
        return await running(self._link)

    async def _start(
        self, request: api.process.StartRequest, listeners: Listeners, options: RunOptions, *, known: bool = False
    ) -> AsyncCommandHandle:
        """Start a command; `known`: its process id is needed."""
        collector = EventCollector(
            request.execution_id, output_limit=request.output_limit_bytes or None, keep_bytes=True
        )
        stream = ExecutionStream(self._link, collector, options.get("timeout"), COMMANDS)
        try:
            await stream.open(request)
        except asyncio.CancelledError:
            # Its program may be starting, or have started a moment ago.
            self._link.spawn(_signal(self._link, request.execution_id, _SIGKILL))
            raise
        stdin = options.get("stdin")
        pid = await pid_of(self._link, collector) if known else None
        return AsyncCommandHandle(self._link, stream, listeners, None if isinstance(stdin, bool) else stdin, pid)

    async def _run(
        self, request: api.process.StartRequest, listeners: Listeners, options: RunOptions, *, check: bool
    ) -> CommandResult:
        name, attributes = tracing.tool("run_command", request.execution_id, self._link.sandbox_id, self._link.uid)
        with tracing.call(name, attributes) as span:
            handle = await self._start(request, listeners, options)
            try:
                result = await handle.wait()
            except BaseException:  # Cancelled, or a listener raised: the result has no reader any more.
                self._link.spawn(handle.kill())
                raise
            span.set("process.exit.code", result.exit_code)
            line = request.shell or b" ".join(request.argv)
            span.conclude(line.decode(errors="replace"), result, handle.spans)
        return result.raise_for_error() if check else result


async def running(link: Link) -> tuple[RunningCommand, ...]:
    """List the commands of a sandbox that are running."""
    answer = await link.unary(lambda c: c.process.List, api.process.ListRequest(), idempotent=True)
    return tuple(convert.command(message) for message in answer.commands)


async def pid_of(link: Link, collector: EventCollector) -> int | None:
    """Return the process id of a command that began; None where no program was started."""
    if collector.started is None or collector.started.HasField("pid"):
        return (collector.started.pid if collector.started else 0) or None
    # An older executor tells it in its list alone.
    return next((each.pid for each in await running(link) if each.execution_id == collector.execution_id), 0) or None


async def _signal(link: Link, execution_id: str, number: int) -> bool:
    request = api.process.SignalRequest(execution_id=execution_id, signal=number)
    try:
        await link.unary(lambda c: c.process.Signal, request)
    except NotFoundError:
        return False
    return True


def _start_request(cmd: Command, options: RunOptions, cwd: str) -> api.process.StartRequest:
    stdin = options.get("stdin")
    return api.process.StartRequest(
        execution_id=options.get("execution_id") or os.urandom(16).hex(),
        argv=[] if isinstance(cmd, str) else [os.fsencode(word) for word in cmd],
        # An empty line is a line: the shell runs nothing, and ends well.
        shell=os.fsencode(cmd or "\n") if isinstance(cmd, str) else b"",
        cwd=os.fsencode(options.get("cwd") or cwd),
        envs=dict(options.get("envs") or {}),
        open_stdin=stdin is not None and stdin is not False,
        merge_output=options.get("merge_output", False),
        timeout=convert.seconds(options.get("timeout")),
        output_limit_bytes=options.get("output_limit") or 0,
    )


def result_of(collector: EventCollector) -> CommandResult:
    """Build the result of a command that has ended."""
    ending = collector.ending
    assert ending is not None
    said, out, err = (
        ending.message,
        collector.outputs[Stream.STDOUT],
        collector.outputs[Stream.STDERR],
    )
    return CommandResult(
        execution_id=collector.execution_id,
        outcome=ending.outcome,
        exit_code=said.exit_code,
        stdout=out.text,
        stderr=err.text,
        blame=convert.blame(said.blame, ending.outcome),
        reason=said.reason,
        message=said.message,
        signal=said.signal,
        gaps=collector.gaps,
        usage=convert.usage(said.usage),
        files=convert.changes(said.files),
        lost=ending.lost,
        leftover_processes_killed=said.leftover_processes_killed,
        not_stored=said.not_stored,
        stdout_bytes=out.data,
        stderr_bytes=err.data,
        notices=convert.notices(collector.started) if collector.started else (),
        denied_hosts=convert.denied_hosts(said),
    )
