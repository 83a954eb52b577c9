"""One live interpreter: its process, its pipes and its control socket."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from sandfleet_executor.core.contexts import frames, rollback
from sandfleet_executor.core.contexts.frames import Asked, BadFrame, Clearing, Done, Prompted, Said
from sandfleet_executor.core.contexts.rollback import Refusal
from sandfleet_executor.core.errors import NotStartedError
from sandfleet_executor.core.executions import usage
from sandfleet_executor.core.executions.events import STDERR, STDOUT, Error, Gap, Output, Result
from sandfleet_executor.core.executions.output import HeadAndTail
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.inputs import Inputs
from sandfleet_executor.effects.executions.meter import ExecutionMeter
from sandfleet_executor.effects.executions.pump import Pump, make_pipe
from sandfleet_executor.effects.namespace.children import CONTEXT, Child, Exit, NamespaceError, Sample
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.worker.base.frames import Frame, FrameError

# Output of threads and background processes between two cells is kept for the next cell, up to so many bytes a stream.
BETWEEN_CELLS_BYTES = 64 << 10
# All results that one execution shows together, in bytes; larger ones are left out, and their size is reported. Those
# that were updated or cleared do not count any more.
RESULT_BYTES = 64 << 20
# How long the end of the process may be behind the end of its socket, in seconds.
EXIT_SECONDS = 2.0
# How long a context may take to fork copies of itself, and a copy to go on, in seconds. A busy machine has needed more
# than ten, and the context is lost behind it; who waits is only the next cell of the same context.
COPY_SECONDS = 60.0
# How long a context that says when it is ready may take for that, in seconds.
READY_SECONDS = 60.0
# Frames that an interpreter has not read yet.
MAX_BACKLOG = 64
CORES = os.cpu_count() or 1
# What a socket holds of a table on its way, in bytes; the kernel may allow less.
TABLE_BUFFER = 1 << 20
# Of what such a context has printed before it ended, in characters.
LAST_WORDS = 500
RESUME_SECONDS = 10.0


# Asks another context to send a table to the descriptor; why it does not, as a header, where it does not.
Lend = Callable[[Asked, int], Awaitable[dict[str, Any]]]


@dataclass
class Cell:
    """The cell that an interpreter runs."""

    execution: Execution
    # Done: the interpreter is ready for the next. Exit: it has ended. BadFrame: it broke the protocol.
    end: asyncio.Future[Done | Exit | BadFrame]
    meter: ExecutionMeter
    cpu_at_start: float
    # A table that it waits for.
    lending: asyncio.Task[None] | None = None
    error_name: str = ""
    # The interpreter has ended without reading it: another execution has killed it.
    unread: bool = False
    results_left: int = RESULT_BYTES
    # The size of the result that is shown under each display id.
    shown: dict[str, int] = field(default_factory=dict)


class Interpreter:
    """Made by `start`; ends with `kill`, by itself, or with the namespace."""

    def __init__(self, namespace: Namespace, stdout: int, stderr: int) -> None:
        self._namespace = namespace
        self._child: Child
        self._between = _between_cells()
        self._pumps = {
            STDOUT: Pump(stdout, lambda data: self._on_output(STDOUT, data)),
            STDERR: Pump(stderr, lambda data: self._on_output(STDERR, data)),
        }
        self._cell: Cell | None = None
        # What it says between two cells, where it was asked for something.
        self._awaited: asyncio.Future[dict[str, Any]] | None = None
        # Seconds of its processes as of the last sample, and those that belong to its start and to ended cells.
        self._cpu_seen = self._cpu_told = 0.0
        self._sampled = False
        # What cells that ended have written, of all that it has.
        self._written_told = 0
        self._kill_timer: asyncio.TimerHandle | None = None
        # It spoke out of turn: later frames may be about another cell. Or its socket has ended.
        self.broken = False
        # It has a process; before that, the end of the namespace may end its socket.
        self._started = False
        # How it gets tables of other contexts.
        self.lend: Lend | None = None
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, namespace: Namespace, cwd: str, envs: dict[str, str], options: dict[str, Any], *, announced: bool = False
    ) -> "Interpreter":
        """`announced`: it says when it is ready. Raises NamespaceError, and BadRequest where it never says so."""
        request = {"cwd": cwd, "envs": envs, "options": options}

        async def begin(self: Interpreter, fds: Sequence[int]) -> Child:
            if announced:
                self._awaited = asyncio.get_running_loop().create_future()
            return await namespace.children.start(CONTEXT, request, b"", fds, self)

        self = await cls._begin(namespace, begin)
        if announced:
            await self._become_ready()
        return self

    async def _become_ready(self) -> None:
        """Raises NotStartedError."""
        assert self._awaited is not None
        try:
            await asyncio.wait((self._awaited, self.ended), timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.kill()
            raise
        said, self._awaited = self._awaited, None
        if said.done() and said.result() == {"event": "ready"}:
            # What it has printed at its start is of no cell.
            self._between = _between_cells()
            return
        self.kill()
        _, kept = self._between[STDERR].finish()
        words = b"".join(kept).decode("utf-8", "replace").strip()[-LAST_WORDS:]
        how = (
            f"it ended with {self.ended.result().how}"
            if self.ended.done()
            else f"it was not ready in {READY_SECONDS:g} s"
        )
        raise NotStartedError(f"cannot start the interpreter: {how}{words and f': {words}'}")

    @classmethod
    async def resume(cls, namespace: Namespace, copy: Child, seed: str = "") -> "Interpreter":
        """A copy goes on from where it was taken; a `seed` gives it random numbers of its own.

        Raises NamespaceError.
        """

        async def begin(self: Interpreter, fds: Sequence[int]) -> Child:
            namespace.wake_copy(copy.pid)
            if not await copy.begin({"seed": seed}, b"", fds, self, RESUME_SECONDS):
                raise NamespaceError("cannot go on with a copy: it does not answer")
            return copy

        return await cls._begin(namespace, begin)

    @classmethod
    async def _begin(
        cls, namespace: Namespace, begin: Callable[["Interpreter", Sequence[int]], Awaitable[Child]]
    ) -> "Interpreter":
        stdout, stdout_writer = make_pipe()
        stderr, stderr_writer = make_pipe()
        self = cls(namespace, stdout, stderr)
        try:
            self._child = await begin(self, [stdout_writer, stderr_writer])
        except BaseException:  # After a cancellation, too, the pipes have no reader.
            for pump in self._pumps.values():
                pump.close()
            raise
        finally:
            os.close(stdout_writer)
            os.close(stderr_writer)
        self._started = True
        return self

    def begin(self, meter: ExecutionMeter, header: dict[str, Any], code: str) -> Cell:
        """Sends a cell to the interpreter."""
        execution = meter.execution
        cell = Cell(
            execution,
            asyncio.get_running_loop().create_future(),
            meter,
            cpu_at_start=max(self._cpu_told, self._cpu_seen),
        )
        for stream, limiter in self._between.items():
            self._pass_on(limiter, stream, execution)
            self._between[stream] = HeadAndTail(BETWEEN_CELLS_BYTES, tail_only=True)
        self._cell = cell
        execution.inputs = Inputs(execution.emit, self._child.channel.send, taken=bool(header.get("input")))
        for pump in self._pumps.values():
            execution.add_source(pump)
        execution.add_source(self._child.channel)
        self._child.channel.send({"op": "execute", **header}, code.encode("utf-8", "surrogatepass"))
        if self.ended.done():
            self._finish(self.ended.result())
        return cell

    async def copy(self, sockets: Sequence[socket.socket], most_bytes: int) -> list[int] | Refusal:
        """Between two cells: has it forked as often as there are sockets; the pids.

        Raises BadFrame when it does not do so; it is ended then.
        """
        self._awaited = asyncio.get_running_loop().create_future()
        fds = [each.fileno() for each in sockets]
        self._child.channel.send({"op": "copy", "most_bytes": most_bytes}, fds=fds)
        await asyncio.wait((self._awaited, self.ended), timeout=COPY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        answer, self._awaited = self._awaited, None
        try:
            return rollback.copied(answer.result() if answer.done() else {}, len(sockets))
        except BadFrame:
            self.broken = True
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can take a cell."""
        return not (self.ended.done() or self.broken)

    def tell(self, request: dict[str, Any], fd: int, payload: bytes = b"") -> None:
        """Asks for what answers on the descriptor, and not here."""
        self._child.channel.send(request, payload, fds=(fd,))

    def interrupt(self) -> None:
        self._namespace.signal(self._child.pid, signal.SIGINT)

    async def interrupt_now(self) -> None:
        """As `interrupt`; returns when it has reached the process. Raises NamespaceError."""
        self.interrupt()
        await self._namespace.ping()

    def busy(self) -> AbstractContextManager[None]:
        """While it works, and no cell of it runs."""
        return self._namespace.busy()

    def kill(self) -> None:
        """Ends the process and everything below it."""
        self._namespace.kill(self._child.pid)

    def _on_output(self, stream: int, data: bytes) -> None:
        if self._cell:
            self._cell.execution.output(stream, data)
        else:
            self._between[stream].feed(data)

    def _pass_on(self, limiter: HeadAndTail, stream: int, execution: Execution) -> None:
        dropped, kept = limiter.finish()
        if dropped:
            execution.emit(Gap(stream, dropped))
        for data in kept:
            execution.emit(Output(stream, data))

    def on_data(self) -> None:
        """What was written before a frame comes before it."""
        for pump in self._pumps.values():
            pump.drain()

    def on_frame(self, frame: Frame) -> None:
        cell = self._cell
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(frame.header)
            return
        if cell is None:
            # After the end of its cell an interpreter is silent: the end was a forged one, and the real one comes now.
            self.broken = True
            self.kill()
            return
        try:
            if self._child.channel.backlog > MAX_BACKLOG:
                raise BadFrame("cannot take more of the interpreter: it does not read its answers")  # noqa: TRY301
            said = frames.parse(frame.header, frame.payload)
        except BadFrame as error:
            self._finish(error)
            return
        self._on_said(cell, said)

    def _on_said(self, cell: Cell, said: Said) -> None:
        match said:
            case Result():
                self._on_result(cell, said)
            case Clearing():
                cell.results_left, cell.shown = RESULT_BYTES, {}
                cell.execution.emit(said.event)
                if said.answer:
                    self._child.channel.send({"op": "cleared"})
            case Asked():
                if cell.lending and not cell.lending.done():
                    self._finish(BadFrame("cannot lend a table: the interpreter asks for two at once"))
                else:
                    cell.lending = asyncio.create_task(self._lend(said))
            case Prompted() if inputs := cell.execution.inputs:
                inputs.ask(said)
            case Error():
                cell.error_name = said.name
                cell.execution.emit(said)
            case Done():
                self._take_usage(cell, said)
                cell.execution.ending = True
                self._finish(said)

    def _take_usage(self, cell: Cell, said: Done) -> None:
        meter = cell.meter
        seen = usage.Claim(meter.cpu_seconds, meter.peak_memory, meter.written_bytes)
        claimed = usage.Claim(said.cpu_seconds, said.peak_bytes, said.written_bytes)
        believed = usage.believed(claimed, seen, meter.usage().wall_seconds, CORES)
        meter.sample(believed.peak_bytes, 1)
        meter.cpu_seconds, meter.written_bytes = believed.cpu_seconds, believed.written_bytes
        self._cpu_told = max(self._cpu_seen, cell.cpu_at_start + believed.cpu_seconds)
        self._written_told += believed.written_bytes

    async def _lend(self, asked: Asked) -> None:
        """Both interpreters get an end of a socket: the table goes past the executor."""
        ours, theirs = wide_pair()
        with ours, theirs:
            refusal = await self.lend(asked, theirs.fileno()) if self.lend else {"reason": "NoTable"}
            self._child.channel.send({"op": "frame", **refusal}, fds=() if refusal else (ours.fileno(),))

    def _on_result(self, cell: Cell, result: Result) -> None:
        if result.is_update:
            cell.results_left += cell.shown.pop(result.display_id, 0)
        if result.size > cell.results_left:
            result = replace(result, parts=(), dropped_bytes=result.dropped_bytes + result.data_bytes)
        cell.results_left -= result.size
        if result.display_id:
            cell.shown[result.display_id] = cell.shown.get(result.display_id, 0) + result.size
        cell.execution.emit(result)

    def on_sample(self, sample: Sample) -> None:
        self._cpu_seen = sample.cpu
        if cell := self._cell:
            if not self._sampled:
                # What it took to start is not the cell's.
                cell.cpu_at_start = sample.cpu
            self._sampled = True
            cell.meter.sample(sample.rss, sample.processes)
            # An interpreter that does not live to say it has used at least this.
            cell.meter.cpu_seconds = max(0.0, sample.cpu - cell.cpu_at_start)
            cell.meter.written_bytes = max(cell.meter.written_bytes, sample.written - self._written_told)

    def on_channel_end(self, error: FrameError | None) -> None:
        self.broken = True
        if self._cell is None and self._started:
            self.kill()
        if error:
            self._finish(BadFrame(str(error)))
        if not self.ended.done():
            # The end of the process usually follows at once. If not, the code closed the socket: then it is of no use
            # any more.
            self._kill_timer = asyncio.get_running_loop().call_later(EXIT_SECONDS, self.kill)

    def on_exit(self, ended: Exit) -> None:
        if self._kill_timer:
            self._kill_timer.cancel()
        self.on_data()
        if cell := self._cell:
            cell.meter.written_bytes = max(cell.meter.written_bytes, ended.written - self._written_told)
        if not self.ended.done():
            self.ended.set_result(ended)
        self._finish(ended)
        for pump in self._pumps.values():
            pump.close()

    def _finish(self, end: Done | Exit | BadFrame) -> None:
        cell, self._cell = self._cell, None
        if cell:
            cell.unread = isinstance(end, Exit) and self._child.channel.unread
        if cell and not cell.end.done():
            cell.end.set_result(end)


def wide_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a socket for a table on its way."""
    pair = socket.socketpair()
    for each in pair:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TABLE_BUFFER)
    return pair


def _between_cells() -> dict[int, HeadAndTail]:
    return {stream: HeadAndTail(BETWEEN_CELLS_BYTES, tail_only=True) for stream in (STDOUT, STDERR)}
