"""A context of Python: a live interpreter with its variables.

It runs one cell at a time, as asked over a private socket.
"""

import gc
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult

from ..base import frames, linux, parts, process
from ..tools import functions
from ..wasm import skill
from . import cells, copies, errors, looks, rehearsal, streams
from .history import History
from .outbox import MAX_RESULTS, Outbox
from .shell import Shell
from .shown import display
from .state import sql, tables, variables
from .user_process import UserProcess

MAX_COPIES = 64
# Beside the directory in which the context starts: the folders of the user's files.
FOLDERS = ("/workspace", "/tmp")  # noqa: S108 the session's own /tmp
# Kept, because code may replace it: a forked child must not answer for the context.
_getpid = os.getpid
_shells: list[Shell] = []


def preimport() -> None:
    """Loads what all contexts share, before they are forked; only the first call does something.

    Starts no thread, opens no file.
    """
    if _shells:
        return
    shell = Shell()
    shell.become_singleton()
    # Before modules that are loaded ahead may add theirs.
    shell.adopt_callbacks()
    _warm_up(shell)
    _shells.append(shell)
    gc.collect()
    # The collector of a context then skips what all contexts share, and does not cause copies of its pages.
    gc.freeze()


def run(control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves cells until the socket ends; then ends the process."""

    def serve() -> None:
        preimport()
        copies.seed_anew()
        if options.get("reviewed"):
            # What a reviewer reads as an expression is one: `rm -rf` would else be a magic where `rm` has no value.
            _shells[0].automagic = False
        if options.get("brokered"):
            functions.install()
        skill.install()
        ContextLoop(control, _shells[0], int(options.get("memory_bytes", 0))).serve()

    process.end_after(serve, errors.value_of)


def _warm_up(shell: Shell) -> None:
    """Runs each path once, so that late imports and caches are done before the fork."""
    compiler = cells.Compiler(shell)
    compiler.compile("%time 1", "<cell 0>")
    cells.Runner({}).run(compiler.compile("1 + 1", "<cell 0>"))
    shell.display_formatter.format([1, "a"])
    try:
        raise ValueError("warm-up")  # noqa: TRY301 needs a traceback
    except ValueError as error:
        errors.Reporter(("/",)).describe(error)


class ContextLoop:
    """Serves the requests of one context."""

    def __init__(self, control: socket.socket, shell: Shell, memory_bytes: int) -> None:
        """`memory_bytes`: the sandbox's limit; 0: not known."""
        self._pid = _getpid()
        self._control = socket.socket(fileno=process.private_copy(control.fileno()))
        self._control.setblocking(True)
        control.close()
        linux.become_subreaper()
        self._user = UserProcess(shell)
        self._meter = process.Meter()
        self._outbox = Outbox(self._control, self._user.interrupts, self._user.streams.flush)
        self._compiler = cells.Compiler(shell)
        self._runner = cells.Runner(shell.user_ns)
        self._reporter = errors.Reporter((self._user.workspace, *FOLDERS), (self._user.packages,))
        self._history = History(shell, memory_bytes // 2)
        self._looks = looks.Looks(shell)
        self._rehearsal = rehearsal.Rehearsal(self._user.interrupts, self._user.streams.flush)
        sql.install(self._outbox.ask_frame)
        streams.set_reader(self._read_input)
        shell.publish, shell.clear = self._publish, self._clear
        os.register_at_fork(after_in_child=self._close_control)
        self._user.adopt()
        self._variables = variables.Variables(shell.user_ns)
        self._moves = {"restore": self._variables.restore, "give": self._give, "take": self._take}

    def serve(self) -> None:
        """Returns when the executor has closed the socket."""
        while True:
            frame, fds = frames.receive_with_fds(self._control, MAX_COPIES)
            if frame is None:
                return
            match frame.header.get("op"):
                case "execute":
                    self._execute(frame.header, frame.payload.decode("utf-8", "surrogatepass"))
                case "save":
                    self._variables.save(frame.header, fds[0])
                case "restore" | "give" | "take" as op:
                    self._between_cells(self._moves[op], frame.header, fds[0])
                case "complete" | "inspect":
                    self._looks.look(frame.header, frame.payload.decode("utf-8", "surrogatepass"), fds[0])
                case "input":
                    # An answer for code that has gone on.
                    continue
                case "copy":
                    self._copy(int(frame.header["most_bytes"]), fds)
                case unknown:
                    raise frames.FrameError(f"cannot do {unknown!r}")

    def _copy(self, most_bytes: int, fds: list[int]) -> None:
        """Makes a copy for each descriptor, which is its socket."""
        self._user.streams.restore()
        self._user.streams.flush()
        try:
            copies.check(most_bytes)
            pids = copies.make(
                len(fds), lambda copy: process.end_after(lambda: self._go_on(copy, fds), errors.value_of)
            )
        except copies.CannotCopyError as error:
            self._outbox.answer({"event": "copied", "pids": [], "reason": error.reason, "message": str(error)})
        except Exception as error:  # noqa: BLE001 audit hooks of the code may raise anything at a fork
            message = f"a hook of the code that runs at forks raised {type(error).__name__}"
            self._outbox.answer({"event": "copied", "pids": [], "reason": "ForkForbidden", "message": message})
        else:
            self._outbox.answer({"event": "copied", "pids": pids})
            self._rehearsal.run(self._control, self._meter)
        for fd in fds:
            os.close(fd)

    def _go_on(self, copy: copies.Copy, fds: list[int]) -> None:
        """In a copy: waits until it is needed, and then serves as a context."""
        control = socket.socket(fileno=fds[copy.number])
        for fd in fds:
            if fd != control.fileno():
                os.close(fd)
        self._user.descriptors.close()
        self._meter.close()
        copies.freeze(copy, control.fileno())
        request = copies.wait(control)
        copies.thaw(copy)
        self._pid = _getpid()
        self._control = socket.socket(fileno=process.private_copy(control.fileno()))
        control.close()
        self._outbox.move(self._control)
        self._user.descriptors = process.Descriptors()
        self._meter = process.Meter()
        self._runner.forget_loop()
        self._variables.forget_watchers()
        self._looks.forget()
        if name := request.get("seed"):
            copies.reseed(name)
        self._user.stand_deeper()
        frames.send(self._control, {"event": "begun"})
        self.serve()

    def _close_control(self) -> None:
        """In each forked child: only the context itself answers the executor."""
        self._control.close()

    def _execute(self, header: Mapping[str, Any], source: str) -> None:
        self._user.repair()
        self._outbox.open(takes_input=header.get("input") is True)
        self._user.shell.display_formatter.rows = int(header.get("rows", 0))
        before = self._user.set_environment(header.get("envs") or {})
        self._meter.start()
        number = int(header.get("cell", 0))
        self._history.begin(number, source)
        error = self._run(source, f"<cell {number}>")
        usage = self._meter.stop()
        if error is not None and error["name"] == "MemoryError":
            # Cycles of frames and exceptions may hold the memory that was needed.
            gc.collect()
        self._user.set_environment(before)
        self._finish(error, usage)

    def _between_cells(self, work: Callable[[Mapping[str, Any], int], None], header: Any, descriptor: int) -> None:
        """Restores variables, or moves a table. What that prints is output of the next cell; results are dropped."""
        self._user.repair()
        self._user.interrupts.open()
        try:
            work(header, descriptor)
        finally:
            self._user.interrupts.close()
            self._user.tame()

    def _give(self, header: Mapping[str, Any], descriptor: int) -> None:
        tables.give(self._user.shell.user_ns, header, descriptor)

    def _take(self, header: Mapping[str, Any], descriptor: int) -> None:
        tables.take(self._user.shell.user_ns, header, descriptor)

    def _run(self, source: str, name: str) -> dict[str, Any] | None:
        """Runs a cell; the error, or None."""
        report: dict[str, Any] | None = None
        self._user.interrupts.open()
        try:
            report = self._run_reported(source, name)
        except (KeyboardInterrupt, MemoryError) as failure:
            # A second interrupt, or a lack of memory, while the first error was described.
            report = errors.bare(failure)
        finally:
            self._user.interrupts.close()
            self._user.tame()
        return report

    def _run_reported(self, source: str, name: str) -> dict[str, Any] | None:
        error: BaseException | None = None
        try:
            self._run_cell(source, name)
        except MemoryError as raised:
            self._user.reserve.release()
            error = raised
        except BaseException as raised:  # noqa: BLE001 what the user's code raises is the cell's outcome
            error = raised
        try:
            shown = self._user.shell.take_shown()
            return self._report(error if error is not None else shown)
        finally:
            # The traceback holds this frame, and with it all that the cell's frames hold.
            error = shown = None

    def _report(self, error: BaseException | None) -> dict[str, Any] | None:
        self._user.tame()
        if _getpid() != self._pid:
            self._user.leave_child(error)
        self._user.streams.flush_replaced()
        return self._reporter.describe(error) if error is not None else None

    def _run_cell(self, source: str, name: str) -> None:
        cell = self._compiler.compile(source, name)
        events = self._user.shell.events
        info = ExecutionInfo(source, False, False, True, None, None)
        result = ExecutionResult(info)
        events.trigger("pre_execute")
        events.trigger("pre_run_cell", info)
        if self._user.interrupts.seen:
            # IPython swallows what its callbacks raise.
            raise KeyboardInterrupt
        try:
            try:
                value = self._runner.run(cell)
            finally:
                self._user.tame()
            if value is not None:
                result.result = value
                self._history.keep(value)
                self._user.shell.show_value(value, main=True)
        finally:
            if _getpid() == self._pid:
                events.trigger("post_execute")
                events.trigger("post_run_cell", result)

    def _publish(self, shown: display.Shown) -> None:
        if _getpid() == self._pid:
            # A library may show figures between the result of a cell and its end.
            self._outbox.show(shown, last=shown.main and not self._user.shell.has_new_callbacks())
        else:
            print(shown.bundle.get(parts.PLAIN, ""))

    def _read_input(self, prompt: str, password: bool) -> str:
        if _getpid() != self._pid:
            streams.refuse()
        return self._outbox.ask_input(prompt, password)

    def _clear(self, *, wait: bool) -> None:
        if _getpid() == self._pid:
            self._outbox.clear(wait=wait)

    def _finish(self, error: dict[str, Any] | None, usage: process.Usage) -> None:
        if left_out := self._outbox.left_out:
            self._user.streams.err.write(f"{left_out} results dropped: the limit is {MAX_RESULTS} a cell\n")
        status = "ok" if error is None else "error"
        if error is not None and error["name"] == "KeyboardInterrupt" and self._user.interrupts.seen:
            status = "interrupted"
        self._outbox.close(error, {"status": status, "cpu": usage.cpu, "peak": usage.peak, "written": usage.written})
