"""The process of a context as user code finds it: adopted once, repaired before each cell, tamed after it."""

import builtins
import faulthandler
import os
import sys
from collections.abc import Mapping
from importlib.machinery import FileFinder
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ..base import process
from ..packages import pip
from . import errors, imports, orphans, signals, streams
from .shell import Shell
from .shown import plotly

LOWEST_RECURSION_LIMIT = 1000
MATPLOTLIB = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MPLCONFIGDIR": "/tmp/.matplotlib"}  # noqa: S108 the session's own /tmp


class UserProcess:
    """Streams, signals, paths, hooks and environment of a context."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.descriptors = process.Descriptors()
        self.streams = streams.Streams()
        self.interrupts = signals.Interrupts()
        self.reserve = process.Reserve()
        self.workspace = str(Path.cwd())
        # Read now: code may replace os.environ.
        self.packages = pip.folder()
        self._environ = os.environ
        self._orphans = orphans.Orphans()
        self._builtins: dict[str, Any] = builtins.__dict__
        self._builtins_kept: dict[str, Any] = {}
        self._lowest_limit = LOWEST_RECURSION_LIMIT
        self._depth = depth()

    def adopt(self) -> None:
        """Makes the process the user's: IPython's singleton, __main__, paths, hooks."""
        shell = self.shell
        shell.become_singleton()
        sys.modules["__main__"] = shell.user_module
        sys.argv = [""]
        # Byte code is matched by second and size: an edited module of the user's could be taken for its old version.
        sys.dont_write_bytecode = True
        sys.breakpointhook = _refuse_breakpoint
        # Prints where a native crash was; the signal still ends the process.
        faulthandler.enable(2, all_threads=False)
        for name, value in MATPLOTLIB.items():
            self._environ.setdefault(name, value)
        imports.after(plotly.MODULE, plotly.prepare)
        for folder in (self.workspace, self.packages):
            while folder in sys.path:
                sys.path.remove(folder)
            sys.path.append(folder)
        self.streams.flush_before_children()
        self.interrupts.install()
        self._builtins_kept = dict(self._builtins)

    def repair(self) -> None:
        """Repairs what earlier cells may have broken and the next one needs."""
        self.descriptors.restore()
        self.streams.restore()
        self.interrupts.install()
        sys.displayhook, sys.excepthook = self.shell.displayhook, sys.__excepthook__
        namespace = self.shell.user_ns
        namespace["__builtins__"], namespace["__name__"] = builtins, "__main__"
        namespace["get_ipython"] = self.shell.get_ipython
        sys.modules["__main__"] = self.shell.user_module
        for folder in (self.workspace, self.packages):
            finder = sys.path_importer_cache.get(folder)
            if isinstance(finder, FileFinder):
                # A file may have been written in the same instant as the folder was read.
                finder.invalidate_caches()
            elif finder is None:
                # The folder did not exist at the last look.
                sys.path_importer_cache.pop(folder, None)
        self.reserve.hold()
        self._orphans.reap()

    def set_environment(self, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """Sets variables (None removes one); returns their former values."""
        before = {name: self._environ.get(name) for name in values}
        for name, value in values.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value
        return before

    def tame(self) -> None:
        """Resets built-ins, trace hooks and the recursion limit, by which user code could disturb the worker's."""
        for name in self._builtins_kept.keys() - self._builtins.keys():
            self._builtins[name] = self._builtins_kept[name]
        sys.settrace(None)
        sys.setprofile(None)
        if sys.getrecursionlimit() < self._lowest_limit:
            sys.setrecursionlimit(self._lowest_limit)

    def stand_deeper(self) -> None:
        """In a copy, which goes on above the frames of the context: code may call as deep as before."""
        frames = depth() - self._depth
        self._depth += frames
        self._lowest_limit += frames
        sys.setrecursionlimit(sys.getrecursionlimit() + frames)

    def leave_child(self, error: BaseException | None) -> NoReturn:
        """In a child that a cell forked and that reached the end of the cell: ends the child as a script ends."""
        code: object = 0
        if isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code
        elif error is not None:
            code = errors.print_error(error)
        if not isinstance(code, int):
            self.streams.err.write(f"{code}\n")
            code = 1
        self.streams.flush()
        os._exit(code & 0xFF)


def depth() -> int:
    """The number of the caller's frames."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 as inspect does
    count = 0
    while frame := frame.f_back if frame else None:
        count += 1
    return count


def _refuse_breakpoint(*args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise streams.StdinNotAvailable(
        "cannot stop at a breakpoint: a sandbox has no keyboard; print what you want to see"
    )
