"""A context: a live Python with its variables, one cell at a time, spoken to over a private socket."""

import builtins
import faulthandler
import gc
import os
import socket
import sys
from collections.abc import Mapping
from importlib.machinery import FileFinder
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult

from . import cells, copies, display, errors, frames, linux, orphans, packages, process, signals, state, streams
from .outbox import MAX_RESULTS, Outbox
from .shell import Shell

EXIT_CLOSED = 0
EXIT_BROKEN = 70
MAX_COPIES = 64
LOWEST_RECURSION_LIMIT = 1000
MATPLOTLIB = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MPLCONFIGDIR": "/tmp/.matplotlib"}  # noqa: S108 the session's own /tmp
# Beside the directory that the context starts in: where the user's own files are.
FOLDERS = ("/workspace", "/tmp")  # noqa: S108 the session's own /tmp
# Code may replace it, and whoever is not this process must not speak for it.
_getpid, _exit = os.getpid, os._exit
_made: list[Shell] = []


def preimport() -> None:
    """Called once, before contexts are forked: everything that makes them start fast. Starts no thread, opens no file."""
    if _made:
        return
    shell = Shell()
    _warm_up(shell)
    _made.append(shell)
    gc.collect()
    # The collector of a context need not look at (and copy) what all contexts share.
    gc.freeze()


def run(control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves cells until the socket ends, then ends the process."""
    del options
    code = EXIT_BROKEN
    try:
        preimport()
        Session(control, _made[0]).serve()
        code = EXIT_CLOSED
    except BaseException as error:  # noqa: BLE001 the process ends here; its parent reads the exit code
        _say_last_words(error)
    finally:
        os._exit(code)


def _say_last_words(error: BaseException) -> None:
    text = f"cannot go on with this context: {type(error).__name__}: {errors.value_of(error)}\n"
    os.write(2, text.encode("utf-8", "backslashreplace"))


def _warm_up(shell: Shell) -> None:
    """Runs each path once, so that late imports and caches are there before the fork."""
    compiler = cells.Compiler(shell)
    compiler.compile("%time 1", "<cell 0>")
    cells.Runner({}).run(compiler.compile("1 + 1", "<cell 0>"))
    shell.display_formatter.format([1, "a"])
    try:
        raise ValueError("warm-up")  # noqa: TRY301 needs a traceback
    except ValueError as error:
        errors.Reporter(("/",)).describe(error)


class Session:
    """The loop of one context."""

    def __init__(self, control: socket.socket, shell: Shell) -> None:
        self._pid = _getpid()
        self._made: copies.Made | None = None
        self._control = socket.socket(fileno=process.private(control.fileno()))
        self._control.setblocking(True)
        control.close()
        linux.become_subreaper()
        self._descriptors = process.Descriptors()
        self._meter = process.Meter()
        self._streams = streams.Streams()
        self._interrupts = signals.Interrupts()
        self._outbox = Outbox(self._control, self._interrupts, self._streams.flush)
        self._reserve = process.Reserve()
        self._orphans = orphans.Orphans()
        self._environ = os.environ
        self._workspace = str(Path.cwd())
        self._shell = shell
        self._compiler = cells.Compiler(shell)
        self._runner = cells.Runner(shell.user_ns)
        # Asked now: code may take os.environ away.
        self._packages = packages.folder()
        self._reporter = errors.Reporter((self._workspace, *FOLDERS), (self._packages,))
        self._last: object = shell.user_ns.get("_")
        self._own_callbacks = self._callbacks()
        self._adopt_process()
        self._builtins = builtins.__dict__
        self._builtins_kept = dict(self._builtins)
        self._state = state.State(shell.user_ns)

    def _adopt_process(self) -> None:
        """Makes the process the user's: IPython's singleton, __main__, paths, hooks."""
        shell = self._shell
        shell.publish = self._publish
        for each in type(shell)._walk_mro():  # noqa: SLF001 how traitlets makes an instance the singleton
            each._instance = shell  # noqa: SLF001
        sys.modules["__main__"] = shell.user_module
        sys.argv = [""]
        # Compiled files are valid for a second and a size: an edited module of the user's would be taken for the old one.
        sys.dont_write_bytecode = True
        sys.breakpointhook = _refuse_breakpoint
        # Says where a native crash was; the signal ends the process all the same.
        faulthandler.enable(2, all_threads=False)
        for name, value in MATPLOTLIB.items():
            self._environ.setdefault(name, value)
        for folder in (self._workspace, self._packages):
            while folder in sys.path:
                sys.path.remove(folder)
            sys.path.append(folder)
        os.register_at_fork(after_in_child=self._let_go)
        self._streams.flush_before_children()
        self._interrupts.install()

    def serve(self) -> None:
        """Until the other side closes the socket."""
        while True:
            # Of `self`: a copy goes on here with a socket of its own.
            frame, fds = frames.receive_with_fds(self._control, MAX_COPIES)
            if frame is None:
                return
            match frame.header.get("op"):
                case "execute":
                    self._execute(frame.header, frame.payload.decode("utf-8", "surrogatepass"))
                case "save":
                    self._state.save(frame.header, fds[0])
                case "restore":
                    self._restore(frame.header, fds[0])
                case "copy":
                    self._copy(int(frame.header["most_bytes"]), fds)
                case "release" if self._made is not None:
                    copies.release(self._made)
                    self._made = None
                case unknown:
                    raise frames.FrameError(f"cannot do {unknown!r}")

    def _copy(self, most_bytes: int, fds: list[int]) -> None:
        """As many copies as descriptors, each with one of them for its socket. Returns in the context, and in a copy when it is to go on."""
        self._streams.restore()
        self._streams.flush()
        try:
            copies.check(most_bytes)
            made = copies.make(len(fds))
        except copies.CannotCopyError as error:
            self._outbox.answer({"event": "copied", "pids": [], "reason": error.reason, "message": str(error)})
        except Exception as error:  # noqa: BLE001 audit hooks of the code may raise anything at a fork; the context is sound all the same
            if _getpid() != self._pid:
                _exit(1)
            message = f"something that looks on at forks raised {type(error).__name__}"
            self._outbox.answer({"event": "copied", "pids": [], "reason": "ForkForbidden", "message": message})
        else:
            if isinstance(made, copies.Born):
                self._go_on(made, fds)
                return
            self._made = made
            self._outbox.answer({"event": "copied", "pids": made.pids})
        for fd in fds:
            os.close(fd)

    def _go_on(self, born: copies.Born, fds: list[int]) -> None:
        """In a copy: waits until it is needed, and becomes the context from there on."""
        control = socket.socket(fileno=fds[born.number])
        for fd in fds:
            if fd != control.fileno():
                os.close(fd)
        copies.freeze({control.fileno()})
        self._descriptors.close()
        self._meter.close()
        told = copies.wait(control)
        copies.thaw(born)
        self._pid = _getpid()
        self._control = socket.socket(fileno=process.private(control.fileno()))
        control.close()
        self._outbox.move(self._control)
        self._descriptors = process.Descriptors()
        self._meter = process.Meter()
        self._runner.forget_loop()
        self._state.forget_watchers()
        if name := told.get("seed"):
            copies.reseed(name)
        frames.send(self._control, {"event": "begun"})

    def _let_go(self) -> None:
        """In every child: only the context speaks for itself."""
        self._control.close()

    def _execute(self, header: Mapping[str, Any], source: str) -> None:
        self._prepare()
        self._outbox.open()
        before = self._set_environment(header.get("envs") or {})
        self._meter.start()
        error = self._run(source, f"<cell {header.get('cell', 0)}>")
        usage = self._meter.stop()
        if error is not None and error["name"] == "MemoryError":
            # What failed may hang in cycles of frames and exceptions.
            gc.collect()
        self._set_environment(before)
        self._finish(error, usage)

    def _restore(self, header: Mapping[str, Any], descriptor: int) -> None:
        """Variables that were saved. What it prints is the next cell's; nobody is there to be shown anything."""
        self._prepare()
        self._interrupts.open()
        try:
            self._state.restore(header, descriptor)
        finally:
            self._interrupts.close()
            self._tame()

    def _prepare(self) -> None:
        """Puts back what the cell before may have broken and the next one needs."""
        self._descriptors.restore()
        self._streams.restore()
        self._interrupts.install()
        sys.displayhook, sys.excepthook = self._shell.displayhook, sys.__excepthook__
        namespace = self._shell.user_ns
        namespace["__builtins__"], namespace["__name__"] = builtins, "__main__"
        namespace["get_ipython"] = self._shell.get_ipython
        sys.modules["__main__"] = self._shell.user_module
        for folder in (self._workspace, self._packages):
            finder = sys.path_importer_cache.get(folder)
            if isinstance(finder, FileFinder):
                # A file that was written in the same instant as the folder was read is seen as well.
                finder.invalidate_caches()
            elif finder is None:
                # It was not there when it was looked for.
                sys.path_importer_cache.pop(folder, None)
        self._reserve.hold()
        self._orphans.reap()

    def _set_environment(self, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """Sets (None: removes) variables; gives what was there before."""
        before = {name: self._environ.get(name) for name in values}
        for name, value in values.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value
        return before

    def _run(self, source: str, name: str) -> dict[str, Any] | None:
        """The error, or None."""
        report: dict[str, Any] | None = None
        self._interrupts.open()
        try:
            report = self._run_reported(source, name)
        except (KeyboardInterrupt, MemoryError) as failure:
            # A second interrupt, or no memory, while the first error was being described.
            report = errors.bare(failure)
        finally:
            self._interrupts.close()
            self._tame()
        return report

    def _run_reported(self, source: str, name: str) -> dict[str, Any] | None:
        error: BaseException | None = None
        try:
            self._run_cell(source, name)
        except MemoryError as raised:
            self._reserve.release()
            error = raised
        except BaseException as raised:  # noqa: BLE001 whatever the user's code raises is the cell's outcome
            error = raised
        try:
            shown = self._shell.take_shown()
            return self._report(error if error is not None else shown)
        finally:
            # The error's traceback holds this frame, and with it everything that the cell's frames hold.
            error = shown = None

    def _report(self, error: BaseException | None) -> dict[str, Any] | None:
        self._tame()
        if _getpid() != self._pid:
            self._leave_child(error)
        self._streams.flush_replaced()
        return self._reporter.describe(error) if error is not None else None

    def _run_cell(self, source: str, name: str) -> None:
        cell = self._compiler.compile(source, name)
        events = self._shell.events
        info = ExecutionInfo(source, False, False, True, None, None)
        result = ExecutionResult(info)
        events.trigger("pre_execute")
        events.trigger("pre_run_cell", info)
        if self._interrupts.seen:
            # IPython catches what its callbacks raise.
            raise KeyboardInterrupt
        try:
            try:
                value = self._runner.run(cell)
            finally:
                self._tame()
            if value is not None:
                result.result = value
                self._keep_last(value)
                self._shell.show_value(value, main=True)
        finally:
            if _getpid() == self._pid:
                events.trigger("post_execute")
                events.trigger("post_run_cell", result)

    def _keep_last(self, value: object) -> None:
        """`_` is the last result, unless code uses the name for something else."""
        namespace = self._shell.user_ns
        if "_" not in namespace or namespace["_"] is self._last:
            namespace["_"] = self._last = value

    def _tame(self) -> None:
        """Settings of the interpreter that would let the user's code run inside, or stop, the worker's own."""
        for name in self._builtins_kept.keys() - self._builtins.keys():
            self._builtins[name] = self._builtins_kept[name]
        sys.settrace(None)
        sys.setprofile(None)
        if sys.getrecursionlimit() < LOWEST_RECURSION_LIMIT:
            sys.setrecursionlimit(LOWEST_RECURSION_LIMIT)

    def _publish(self, bundle: Mapping[str, Any], *, main: bool = False) -> None:
        if _getpid() == self._pid:
            self._outbox.show(bundle, main=main, last=main and self._callbacks() == self._own_callbacks)
        else:
            print(bundle.get(display.PLAIN, ""))

    def _callbacks(self) -> list[object]:
        """What runs between the result of a cell and its end: a library's may show figures there."""
        callbacks = self._shell.events.callbacks
        return [*callbacks["post_execute"], *callbacks["post_run_cell"]]

    def _finish(self, error: dict[str, Any] | None, usage: process.Usage) -> None:
        if left_out := self._outbox.left_out():
            self._streams.err.write(f"{left_out} results dropped: the limit is {MAX_RESULTS} a cell\n")
        status = "ok" if error is None else "error"
        if error is not None and error["name"] == "KeyboardInterrupt" and self._interrupts.seen:
            status = "interrupted"
        self._outbox.close(error, {"status": status, "cpu": usage.cpu, "peak": usage.peak, "written": usage.written})

    def _leave_child(self, error: BaseException | None) -> NoReturn:
        """A child that a cell forked came out of the cell: it ends as a script would."""
        code: object = 0
        if isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code
        elif error is not None:
            code = errors.print_error(error)
        if not isinstance(code, int):
            self._streams.err.write(f"{code}\n")
            code = 1
        self._streams.flush()
        os._exit(code & 0xFF)


def _refuse_breakpoint(*args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise streams.StdinNotAvailable(
        "cannot stop at a breakpoint: a sandbox has nobody at a keyboard; print what you want to see"
    )
