"""A cell of the context's own after a fork, so that the next one finds the memory that cells write to.

A fork shares all memory, and the first write to a page costs a copy of it: under gVisor of up to 2 MB around it. Which
pages a cell writes to follows from what it runs, so the context runs such a cell while it is idle. It has a namespace
and a shell of its own, runs nothing that code has registered, and shows nothing.
"""

import builtins
import contextlib
import linecache
import socket
from collections.abc import Callable, Iterator
from select import select
from typing import Any

from IPython.core.events import EventManager, available_events

from ..base import frames, process
from . import cells, outbox, signals
from .shell import Formatter
from .shown import display

NAME = "<rehearsal>"
SOURCE = "n = 1\nn\n"
# Kept, because code may replace it.
_select = select


class _Compile:
    flags = 0


class _Transforms:
    cleanup_transforms = line_transforms = token_transformers = ()


class _BareShell:
    """What the compiler asks a shell for, without what code adds to the context's own."""

    compile, input_transformer_manager, input_transformers_post = _Compile(), _Transforms(), ()
    automagic = True

    def transform_ast(self, tree: Any) -> Any:
        return tree


class Rehearsal:
    """To be made before any code runs. `interrupts` and `flush` are the context's."""

    def __init__(self, interrupts: signals.Interrupts, flush: Callable[[], None]) -> None:
        self._interrupts, self._flush = interrupts, flush
        self._compiler = cells.Compiler(_BareShell())
        self._runner = cells.Runner({"__builtins__": builtins})
        self._events = EventManager(None, available_events)
        self._formatter = Formatter()
        self._builtins = dict(builtins.__dict__)

    def run(self, control: socket.socket, meter: process.Meter) -> None:
        """Until it is through, or a request comes on the socket: then the rest is found by that itself.

        Never raises: what code has put in the way (an audit hook, no memory left) is met by its own cell again.
        """
        if self._are_replaced():
            # It would run what code has put in their place.
            return
        with contextlib.suppress(BaseException):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                for _ in self._steps(meter, theirs, ours):
                    if _select((control,), (), (), 0)[0]:
                        return

    def _are_replaced(self) -> bool:
        known = builtins.__dict__
        return any(known.get(name) is not value for name, value in self._builtins.items())

    def _steps(self, meter: process.Meter, control: socket.socket, executor: socket.socket) -> Iterator[None]:
        out = outbox.Outbox(control, self._interrupts, self._flush)
        frames.send(executor, {"op": "execute", "cell": 1, "execution_id": "", "envs": {}}, SOURCE.encode())
        yield
        frames.receive_with_fds(control, 1)
        yield
        out.open()
        meter.start()
        self._events.trigger("pre_run_cell", None)
        yield
        try:
            cell = self._compiler.compile(SOURCE, NAME)
        finally:
            linecache.cache.pop(NAME, None)
        yield
        value = self._runner.run(cell)
        bundle, _ = self._formatter.format(value)
        yield
        out.show(display.Shown(bundle, main=True), last=True)
        usage = meter.stop()
        yield
        out.close(None, {"status": "ok", "cpu": usage.cpu, "peak": usage.peak, "written": usage.written})
