"""Commands: each has a supervisor in the namespace and pipes in the executor."""

import asyncio
import errno
import os
import signal
import socket
import termios
import time
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions.events import STDERR, STDOUT, Notice, Output, Started
from sandfleet_executor.core.executions.outcomes import NO_FOLDER, Cause, Facts, Verdict, judge_command
from sandfleet_executor.core.executions.tracing import TraceParent
from sandfleet_executor.core.review import verdicts
from sandfleet_executor.core.review.subject import Subject
from sandfleet_executor.effects.executions import spans
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.meter import ExecutionMeter, SessionServices, end_or_stop, signal_name
from sandfleet_executor.effects.executions.pump import Pump, make_pipe
from sandfleet_executor.effects.namespace.channel import take_descriptor
from sandfleet_executor.effects.namespace.children import COMMAND, Child, Exit, NamespaceError, Sample
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.effects.review.reviews import as_decided
from sandfleet_executor.worker.base.frames import Frame, FrameError

MAX_FAILURE_TEXT = 4096
# Of programs that a command left running.
MAX_NAMES = 5
# How long the process id of a program that is starting may take, in seconds.
PID_SECONDS = 1.0


@dataclass(frozen=True)
class CommandRequest:
    # argv joined by NUL, or the shell's line.
    payload: bytes
    shell: bool
    cwd: bytes
    envs: dict[str, str]
    open_stdin: bool
    merge_output: bool
    # Seconds.
    timeout: float
    traceparent: TraceParent | None
    # Bytes; only to name it in the message when the command reaches it.
    memory_limit: int
    disk_limit: int
    # (rows, columns) of the terminal that it gets.
    terminal: tuple[int, int] | None = None
    started: float = field(default_factory=time.time)
    # What a reviewer sees of it, where there is one; and what its agent is told of the review.
    subject: Subject | None = None
    notices: tuple[Notice, ...] = ()

    def told(self, notices: tuple[Notice, ...]) -> Self:
        return replace(self, notices=notices)

    def edited(self, content: bytes) -> Self:
        """With another line for the shell."""
        return replace(self, payload=content)


@dataclass(frozen=True)
class Ended:
    """How the program ended; `message` where it could not be started."""

    code: int
    signal: int
    leftover: int = 0
    # Of what was left running.
    names: tuple[str, ...] = ()
    memory: bool = False
    message: str = ""
    # It is the working directory that cannot be entered.
    no_folder: bool = False


class InputClosedError(Exception):
    """The command's standard input is closed."""


class NoTerminalError(Exception):
    """The command has no terminal."""


class Command:
    """Made by the session; `run` takes it to its end."""

    def __init__(self, execution: Execution, request: CommandRequest, session: SessionServices) -> None:
        self.execution = execution
        self.request = request
        self._session = session
        attributes = {"sandfleet.execution.id": execution.id}
        self._meter = ExecutionMeter(execution, session, "run_command", request.traceparent, attributes)
        self._end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._child: Child | None = None
        self._pumps: list[Pump] = []
        self._stdin = -1
        self._writing = asyncio.Lock()
        self._pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # Nothing is waited for before that.
        self._starting = False
        # The terminal exists, or it is certain that it will not.
        self._begun = asyncio.Event()

    async def run(self) -> None:
        execution, trace = self.execution, self._meter.trace
        waited = await self._session.settled(execution)
        trace.enter(spans.REVIEW if self.request.subject else spans.PREPARE)
        decision = await self._session.reviews.of_execution(execution, self.request.subject)
        request = self.request = as_decided(self.request, decision)
        if waited or request.subject:
            self._meter.restart_clock()
        if self._close_stopped():
            return
        if not decision.allowed:
            self._close_early(verdicts.denied(decision))
            return
        try:
            namespace = await self._session.namespace()
            self._child = await self._start(namespace)
            self._begun.set()
        except (NamespaceError, BadRequest) as error:
            if not self._close_stopped():
                self._close_early(Verdict("lost", "platform", "CommandNotStarted", str(error)))
            return
        self._tell_start(await self.pid())
        trace.enter(spans.RUN)
        with namespace.busy():
            # What ends a terminal's programs; a shell there does not mind the other.
            kindly = signal.SIGHUP if request.terminal else signal.SIGTERM
            await end_or_stop(self._meter, self._end, request.timeout, lambda: self.signal(kindly))
            if self._end.done():
                namespace.children.give_back(self._child, self._meter.written_bytes)
            else:
                # Even if its end is reported meanwhile: a killed supervisor cannot serve the next command.
                namespace.kill(self._child.pid)
                await self._child.gone
        self._child = None
        for pump in self._pumps:
            pump.drain()
        self._close()
        self._finish(self._end.result())

    def _close_stopped(self) -> bool:
        """Whether it was stopped before it ran, which is then its end."""
        cause = self.execution.cause
        if cause is Cause.NONE:
            return False
        self._close_early(judge_command(Facts(cause=cause, timeout=self.request.timeout)))
        return True

    def _close_early(self, verdict: Verdict) -> None:
        """Ends a command of which no program was started."""
        self._tell_start(0)
        self._meter.close(verdict)
        self._close()

    def _tell_start(self, pid: int) -> None:
        """The event that all others follow: output is read from now on."""
        execution = self.execution
        notices = (*self.request.notices, *self._session.notices(""))
        execution.emit(Started(execution.id, notices=notices, pid=pid))
        for pump in self._pumps:
            pump.resume()
            execution.add_source(pump)

    def signal(self, number: int) -> None:
        """Sends the signal to the program's process group."""
        if self._child:
            self._child.channel.send({"op": "signal", "signal": int(number)})

    async def send_input(self, data: bytes) -> None:
        """Returns when the pipe has taken everything. Raises InputClosedError."""
        async with self._writing:
            if self.request.terminal:
                await self._begun.wait()
            view = memoryview(data)
            while view:
                if self._stdin < 0:
                    raise InputClosedError
                try:
                    view = view[os.write(self._stdin, view) :]
                except BlockingIOError:
                    await self._until_writable()
                except OSError as error:
                    # EIO: the last process has closed the terminal.
                    if error.errno not in (errno.EPIPE, errno.EIO):
                        raise
                    raise InputClosedError from error

    async def pid(self) -> int:
        """The program's process id in the session namespace; 0 before it runs.

        The supervisor tells it after the start, when the program may have written already.
        """
        if self._starting:
            await asyncio.wait((self._pid,), timeout=PID_SECONDS)
        return self._pid.result() if self._pid.done() else 0

    async def resize(self, rows: int, cols: int) -> None:
        """Of its terminal. Raises NoTerminalError."""
        if self.request.terminal:
            await self._begun.wait()
        if not self.request.terminal or self._stdin < 0:
            raise NoTerminalError
        try:
            termios.tcsetwinsize(self._stdin, (rows, cols))
        except termios.error as error:
            raise NoTerminalError from error
        if self._child and "gvisor" in os.uname().release:
            # gVisor sends no SIGWINCH, and does not tell which process group is in the foreground.
            self._child.channel.send({"op": "signal", "signal": int(signal.SIGWINCH), "all": True})

    def close_input(self) -> None:
        if self._stdin >= 0:
            asyncio.get_running_loop().remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    async def _until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        writable: asyncio.Future[None] = loop.create_future()

        def on_writable() -> None:
            if not writable.done():
                writable.set_result(None)

        loop.add_writer(self._stdin, on_writable)
        try:
            await asyncio.wait((writable, self._end), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._stdin >= 0:
                loop.remove_writer(self._stdin)
        if not writable.done():
            raise InputClosedError

    async def _start(self, namespace: Namespace) -> Child:
        """The supervisor. Raises NamespaceError."""
        request = self.request
        self._starting = True
        self._meter.trace.enter(spans.PREPARE)
        envs = request.envs | self._meter.environment()
        header = {"cwd": os.fsdecode(request.cwd), "envs": envs, "shell": request.shell, "tell": True}
        if request.terminal:
            return await self._start_in_terminal(namespace, header, request.terminal)
        inherited: list[int] = []
        try:
            inherited.append(self._make_stdin())
            for stream in (STDOUT,) if request.merge_output else (STDOUT, STDERR):
                reader, writer = make_pipe()
                inherited.append(writer)
                pump = Pump(reader, lambda data, stream=stream: self.execution.output(stream, data))  # type: ignore[misc]
                pump.pause()
                self._pumps.append(pump)
            if request.merge_output:
                inherited.append(os.dup(inherited[-1]))
            return await namespace.children.start(COMMAND, header, request.payload, inherited, self)
        finally:
            for fd in inherited:
                os.close(fd)

    async def _start_in_terminal(self, namespace: Namespace, header: dict[str, Any], size: tuple[int, int]) -> Child:
        """The supervisor makes the terminal, and sends its master before it says that it begins."""
        header["terminal"] = dict(zip(("rows", "cols"), size, strict=True))
        ours, theirs = socket.socketpair()
        try:
            child = await namespace.children.start(COMMAND, header, self.request.payload, [theirs.fileno()], self)
            try:
                master = take_descriptor(ours)
                os.set_blocking(master, False)
            except FrameError as error:
                namespace.kill(child.pid)
                raise NamespaceError(f"cannot start the command: its terminal is missing ({error})") from error
        finally:
            ours.close()
            theirs.close()
        self._stdin = os.dup(master)
        pump = Pump(master, lambda data: self.execution.output(STDOUT, data), quick=True)
        pump.pause()
        self._pumps.append(pump)
        return child

    def _make_stdin(self) -> int:
        if not self.request.open_stdin:
            return os.open(os.devnull, os.O_RDONLY)
        reader, self._stdin = os.pipe()
        os.set_blocking(self._stdin, False)
        return reader

    def on_frame(self, frame: Frame) -> None:
        header = frame.header
        match header["event"]:
            case "running":
                self._set_pid(int(header["pid"]))
            case "exited":
                self._meter.cpu_seconds = max(self._meter.cpu_seconds, float(header["cpu"]))
                self._meter.sample(int(header["peak"]), 1)
                self._count_written(int(header["written"]))
                names = tuple(map(str, header.get("names", ())[:MAX_NAMES]))
                self._set_end(Ended(int(header["code"]), int(header["signal"]), int(header["leftover"]), names))
            case "failed":
                message = str(header["message"])[:MAX_FAILURE_TEXT]
                self._set_end(Ended(int(header["code"]), 0, message=message, no_folder=bool(header.get("folder"))))

    def on_data(self) -> None:
        """Output and the end of a command come in no order."""

    def on_channel_end(self, error: FrameError | None) -> None:
        """The end of the supervisor tells the rest."""

    def on_exit(self, ended: Exit) -> None:
        # The supervisor has not reported: it was killed, and the program with it.
        self._count_written(ended.written)
        self._set_end(Ended(128 + signal.SIGKILL, signal.SIGKILL, memory=ended.memory))

    def _set_pid(self, pid: int) -> None:
        if not self._pid.done():
            self._pid.set_result(pid)

    def _set_end(self, end: Ended) -> None:
        self._set_pid(0)
        if not self._end.done():
            self._end.set_result(end)

    def on_sample(self, sample: Sample) -> None:
        # The supervisor itself is not the command.
        self._meter.sample(sample.rss, max(1, sample.processes - 1))
        # A sample of the emptied tree may come after the end has told the sum.
        self._meter.cpu_seconds = max(self._meter.cpu_seconds, sample.cpu)
        self._count_written(sample.written)

    def _count_written(self, size: int) -> None:
        self._meter.written_bytes = max(self._meter.written_bytes, size)

    def _finish(self, end: Ended) -> None:
        if end.message:
            where = " in its working directory" if end.no_folder else ""
            text = f"cannot start the command{where}: {end.message}\n".encode(errors="replace")
            self.execution.emit(Output(STDOUT if self.request.terminal else STDERR, text))
        cause = Cause.MEMORY if end.memory and self.execution.cause is Cause.NONE else self.execution.cause
        facts = Facts(
            cause=cause,
            error_name=NO_FOLDER if end.no_folder else "",
            exit_code=end.code,
            signal=signal_name(end.signal),
            timeout=self.request.timeout,
            memory_limit=self.request.memory_limit,
            disk_limit=self.request.disk_limit,
            leftover=end.leftover,
            left_names=end.names,
        )
        self._meter.close(judge_command(facts), facts, leftover=end.leftover)

    def _close(self) -> None:
        self._begun.set()
        self.close_input()
        for pump in self._pumps:
            pump.close()
