"""One live interpreter: its process, its pipes and its control socket."""

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core import contextframes
from sandfleet_executor.core.contextframes import BadFrame, Done
from sandfleet_executor.core.events import STDERR, STDOUT, Error, Gap, Output, Result
from sandfleet_executor.core.output import HeadAndTail
from sandfleet_executor.effects.accounting import Account
from sandfleet_executor.effects.children import CONTEXT, Child, Exit
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.namespace import Namespace
from sandfleet_executor.effects.pump import Pump, make_pipe
from sandfleet_executor.worker.frames import Frame, FrameError

# What threads and background processes write between two cells is kept for the next one, up to this many bytes of each stream.
BETWEEN_CELLS_BYTES = 64 << 10
# All results of one execution together, in bytes; larger ones are left out, and it is said.
RESULT_BYTES = 64 << 20
# How long the end of the process may be behind the end of its socket, in seconds.
EXIT_SECONDS = 2.0


@dataclass
class Cell:
    """The execution that an interpreter is at."""

    execution: Execution
    # Done: the interpreter is ready for the next. Exit: it has ended. BadFrame: it broke the protocol.
    end: asyncio.Future[Done | Exit | BadFrame]
    account: Account
    cpu_at_start: float
    error_name: str = ""
    results_left: int = RESULT_BYTES


class Interpreter:
    """Made by `start`; ends with `kill`, by itself, or with the namespace."""

    def __init__(self, namespace: Namespace, stdout: int, stderr: int) -> None:
        self._namespace = namespace
        self._child: Child
        self._between = {stream: HeadAndTail(BETWEEN_CELLS_BYTES, tail_only=True) for stream in (STDOUT, STDERR)}
        self._pumps = {
            STDOUT: Pump(stdout, lambda data: self._on_output(STDOUT, data)),
            STDERR: Pump(stderr, lambda data: self._on_output(STDERR, data)),
        }
        self._cell: Cell | None = None
        self._cpu_seen = 0.0
        self._kill_timer: asyncio.TimerHandle | None = None
        # Spoke out of turn: whatever it says from now on may be about another cell.
        self.broken = False
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, namespace: Namespace, cwd: str, envs: dict[str, str], options: dict[str, Any]
    ) -> "Interpreter":
        """Raises NamespaceError."""
        stdout, stdout_writer = make_pipe()
        stderr, stderr_writer = make_pipe()
        self = cls(namespace, stdout, stderr)
        request = {"cwd": cwd, "envs": envs, "options": options}
        try:
            self._child = await namespace.children.start(CONTEXT, request, b"", [stdout_writer, stderr_writer], self)
        except BaseException:  # A cancellation too leaves nobody who reads them.
            for pump in self._pumps.values():
                pump.close()
            raise
        finally:
            os.close(stdout_writer)
            os.close(stderr_writer)
        return self

    def begin(self, account: Account, header: dict[str, Any], code: str) -> Cell:
        """Sends a cell to the interpreter."""
        execution = account.execution
        cell = Cell(execution, asyncio.get_running_loop().create_future(), account, cpu_at_start=self._cpu_seen)
        for stream, limiter in self._between.items():
            self._pass_on(limiter, stream, execution)
            self._between[stream] = HeadAndTail(BETWEEN_CELLS_BYTES, tail_only=True)
        self._cell = cell
        for pump in self._pumps.values():
            execution.add_source(pump)
        execution.add_source(self._child.channel)
        if self.ended.done():
            self._finish(self.ended.result())
        self._child.channel.send({"op": "execute", **header}, code.encode("utf-8", "surrogatepass"))
        return cell

    def tell(self, request: dict[str, Any], fd: int) -> None:
        """Asks for what answers on the descriptor, and not here."""
        self._child.channel.send(request, fds=(fd,))

    def interrupt(self) -> None:
        self._namespace.signal(self._child.pid, signal.SIGINT)

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
        if cell is None:
            # After the end of its cell an interpreter is silent: the end was a forged one, and the real one comes now.
            self.broken = True
            self.kill()
            return
        try:
            said = contextframes.parse(frame.header, frame.payload)
        except BadFrame as error:
            self._finish(error)
            return
        match said:
            case Result():
                self._on_result(cell, said)
            case Error():
                cell.error_name = said.name
                cell.execution.emit(said)
            case Done():
                cell.account.sample(said.peak_bytes, 1)
                cell.account.cpu_seconds = said.cpu_seconds
                cell.execution.ending = True
                self._finish(said)

    def _on_result(self, cell: Cell, result: Result) -> None:
        if result.size > cell.results_left:
            result = Result((), result.is_main, result.dropped_bytes + result.size)
        cell.results_left -= result.size
        cell.execution.emit(result)

    def on_sample(self, rss: int, processes: int, cpu: float) -> None:
        self._cpu_seen = cpu
        if cell := self._cell:
            cell.account.sample(rss, processes)
            # An interpreter that does not live to say it has used at least this.
            cell.account.cpu_seconds = max(0.0, cpu - cell.cpu_at_start)

    def on_channel_end(self, error: FrameError | None) -> None:
        if error:
            self._finish(BadFrame(str(error)))
        if not self.ended.done():
            # The end of the process usually follows at once. If not, the code closed the socket: then it is of no use any more.
            self._kill_timer = asyncio.get_running_loop().call_later(EXIT_SECONDS, self.kill)

    def on_exit(self, ended: Exit) -> None:
        if self._kill_timer:
            self._kill_timer.cancel()
        self.on_data()
        if not self.ended.done():
            self.ended.set_result(ended)
        self._finish(ended)
        for pump in self._pumps.values():
            pump.close()

    def _finish(self, end: Done | Exit | BadFrame) -> None:
        cell, self._cell = self._cell, None
        if cell and not cell.end.done():
            cell.end.set_result(end)
