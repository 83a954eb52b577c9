"""Commands: programs that end by themselves."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, overload

from sandfleet import _api as api
from sandfleet import _late as late
from sandfleet.errors import CommandFailed, InvalidArgument, NotFoundError, SandfleetError

if TYPE_CHECKING:
    from sandfleet.collect import Collector, Piece
    from sandfleet.follow import Follower
    from sandfleet.interpreter import Listeners
    from sandfleet.transport import Link
    from sandfleet.values import CommandOutput, CommandResult, OnText, RunningCommand

# The most that one SendInput takes, in bytes.
_INPUT_CHUNK = 1024 * 1024
_SIGKILL = 9

Command = str | Sequence[str | bytes]


class AsyncCommandHandle:
    """A command that was started. Iterate it for its output as it comes; `wait` for its result.

    Output is read from the sandbox as it is asked for: by iterating or by waiting. Letting go of the handle does not end the
    command; its deadline does.
    """

    def __init__(self, link: Link, follower: Follower, listeners: Listeners, stdin: bytes | str | None) -> None:
        """Use `commands.run(…, background=True)`."""
        self._link = link
        self._follower = follower
        self._listeners = listeners
        self._feeding = late.asyncio.ensure_future(self._feed(stdin)) if stdin is not None else None
        self._pieces = follower.pieces()
        self._turn = late.asyncio.Lock()
        self._next: late.asyncio.Future[Piece] | None = None

    @property
    def execution_id(self) -> str:
        """Its id."""
        return self._follower.collector.execution_id

    @property
    def spans(self) -> Sequence[api.common.Span]:
        """The executor's own spans, at the end."""
        return self._follower.collector.spans

    def __aiter__(self) -> AsyncIterator[CommandOutput]:
        return self

    async def __anext__(self) -> CommandOutput:
        while True:
            piece = await self._piece()
            await self._listeners.tell(piece)
            if isinstance(piece, late.values.CommandOutput):
                return piece

    async def _piece(self) -> Piece:
        """Take the next one. Whoever gives up waiting leaves it to whoever waits next."""
        async with self._turn:
            if self._next is None:
                self._next = late.asyncio.ensure_future(anext(self._pieces))
                # Where nobody comes any more nobody has to hear how it ended.
                self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
            waited = self._next
            try:
                return await late.asyncio.shield(waited)
            finally:
                if waited.done():
                    self._next = None

    async def wait(self, *, check: bool = False) -> CommandResult:
        """Read to the end and return the result, with all output. `check` raises CommandFailed unless it is ok."""
        async for _ in self:
            pass
        if self._feeding is not None:
            # The command has ended: what it did not read nobody will.
            self._feeding.cancel()
        return _checked(result_of(self._follower.collector), check=check)

    async def kill(self) -> bool:
        """Kill it with all its processes. Returns whether it was still running."""
        return await self.signal(_SIGKILL)

    async def signal(self, number: int) -> bool:
        """Send it a signal. Returns whether it was still running. Raises InvalidArgument: there is no such signal."""
        request = api.process.SignalRequest(execution_id=self.execution_id, signal=number)
        try:
            await self._link.unary(lambda c: c.process.Signal, request)
        except NotFoundError:
            return False
        return True

    async def send_stdin(self, data: str | bytes) -> None:
        """Write to its standard input; returns when its pipe has taken everything.

        Raises NotFoundError when it ended, PreconditionFailed when its standard input is closed.
        """
        raw = data.encode() if isinstance(data, str) else data
        for start in range(0, len(raw), _INPUT_CHUNK):
            chunk = raw[start : start + _INPUT_CHUNK]
            request = api.process.SendInputRequest(execution_id=self.execution_id, data=chunk)
            # How long it takes is the command's choice, so its deadline is the limit.
            await self._link.unary(lambda c: c.process.SendInput, request, timeout=self._follower.patience)

    async def close_stdin(self) -> None:
        """Close its standard input. Closing it twice, or after its end, is no error."""
        request = api.process.CloseInputRequest(execution_id=self.execution_id)
        with suppress(NotFoundError):
            await self._link.unary(lambda c: c.process.CloseInput, request, idempotent=True)

    async def _feed(self, data: bytes | str) -> None:
        # A command may end or close its input before it has read everything; what became of it is in its result.
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
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: Literal[False] = False,
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandResult: ...
    @overload
    async def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: Literal[True],
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> AsyncCommandHandle: ...
    @overload
    async def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: bool,
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandResult | AsyncCommandHandle: ...
    async def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: bool = False,
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandResult | AsyncCommandHandle:
        """Run a program: a str is a line for bash, a sequence is the program and its arguments.

        cwd           relative to /workspace.
        timeout       deadline in seconds; None means the sandbox's default.
        background    return a handle as soon as it began, instead of the result.
        check         raise CommandFailed unless it ends with exit code 0; without it any end is data.
        stdin         bytes or str: fed to it and closed. True: open, for a handle's `send_stdin`. None: /dev/null.
        merge_output  standard error goes into standard output, in the order of writing.
        on_stdout, on_stderr  called with each piece of text as it comes (awaited where they return an awaitable).
        output_limit  bytes of each stream that are kept (head and tail); None means the sandbox's default.

        Raises only what happened before the command was accepted, as `run_code` does. Cancelling kills the command.
        """
        if stdin is True and not background:
            raise InvalidArgument("cannot leave stdin open: without background=True nobody could write to it")
        if background and check:
            raise InvalidArgument("cannot check a command in the background: call wait(check=True)")
        request = api.process.StartRequest(
            execution_id=execution_id or os.urandom(16).hex(),
            argv=[] if isinstance(cmd, str) else [os.fsencode(word) for word in cmd],
            shell=os.fsencode(cmd) if isinstance(cmd, str) else b"",
            cwd=os.fsencode(cwd),
            envs=dict(envs or {}),
            open_stdin=stdin is not None and stdin is not False,
            merge_output=merge_output,
            timeout=late.convert.seconds(timeout),
            output_limit_bytes=output_limit or 0,
        )
        listeners = late.interpreter.Listeners(on_stdout, on_stderr)
        if background:
            return await self._start(request, timeout, listeners, stdin)
        return await self._run(request, timeout, listeners, stdin, check=check)

    async def connect(
        self, execution_id: str, *, on_stdout: OnText | None = None, on_stderr: OnText | None = None
    ) -> AsyncCommandHandle:
        """Follow a command that was started before, here or by another process, from its first output on.

        It may run or have ended; others may follow it as well. Letting go of the handle does not end it.

        Raises NotFoundError: no command of that id was started, or what it showed was forgotten.
        """
        collector = late.collect.Collector(execution_id, keep_bytes=True)
        follower = late.follow.Follower(self._link, collector, None, late.follow.COMMANDS)
        await follower.attach()
        return AsyncCommandHandle(self._link, follower, late.interpreter.Listeners(on_stdout, on_stderr), None)

    async def list(self) -> tuple[RunningCommand, ...]:
        """List the commands that are running."""
        answer = await self._link.unary(lambda c: c.process.List, api.process.ListRequest(), idempotent=True)
        return tuple(late.convert.command(message) for message in answer.commands)

    async def _start(
        self,
        request: api.process.StartRequest,
        deadline: float | None,
        listeners: Listeners,
        stdin: bytes | str | bool | None,
    ) -> AsyncCommandHandle:
        limit = request.output_limit_bytes or None
        follower = late.follow.Follower(
            self._link,
            late.collect.Collector(request.execution_id, output_limit=limit, keep_bytes=True),
            deadline,
            late.follow.COMMANDS,
        )
        await follower.open(request)
        return AsyncCommandHandle(self._link, follower, listeners, None if isinstance(stdin, bool) else stdin)

    async def _run(
        self,
        request: api.process.StartRequest,
        deadline: float | None,
        listeners: Listeners,
        stdin: bytes | str | bool | None,
        *,
        check: bool,
    ) -> CommandResult:
        name, attributes = late.telemetry.tool(
            "run_command", request.execution_id, self._link.sandbox_id, self._link.uid
        )
        with late.telemetry.call(name, attributes) as span:
            handle = await self._start(request, deadline, listeners, stdin)
            try:
                result = await handle.wait()
            except BaseException:  # Cancelled, or a listener raised: nobody waits for it any more.
                self._link.spawn(handle.kill())
                raise
            span.set("process.exit.code", result.exit_code)
            span.conclude(result.outcome, result.reason, handle.spans)
        return _checked(result, check=check)


def result_of(collector: Collector) -> CommandResult:
    """Return what became of a command that ended."""
    ending = collector.ending
    assert ending is not None
    said, out, err = (
        ending.message,
        collector.outputs[late.values.Stream.STDOUT],
        collector.outputs[late.values.Stream.STDERR],
    )
    return late.values.CommandResult(
        execution_id=collector.execution_id,
        outcome=ending.outcome,
        exit_code=said.exit_code,
        stdout=out.text,
        stderr=err.text,
        blame=late.convert.blame(said.blame, ending.outcome),
        reason=said.reason,
        message=said.message,
        signal=said.signal,
        gaps=collector.gaps,
        usage=late.convert.usage(said.usage),
        files=late.convert.changes(said.files),
        lost=ending.lost,
        leftover_processes_killed=said.leftover_processes_killed,
        not_stored=said.not_stored,
        stdout_bytes=out.data,
        stderr_bytes=err.data,
        notices=late.convert.notices(collector.started) if collector.started else (),
    )


def _checked(result: CommandResult, *, check: bool) -> CommandResult:
    if not check or result.ok:
        return result
    last = (result.stderr or result.stdout).strip().rpartition("\n")[2][:200] or result.message
    raise CommandFailed(
        f"cannot go on: the command ended with exit code {result.exit_code} ({result.outcome}): {last}", result
    )
