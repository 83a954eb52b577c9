"""Ctrl-C while code runs in a sandbox: the first interrupts it, and its last output is shown; a second leaves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from sandfleet.errors import SandfleetError

if TYPE_CHECKING:
    from sandfleet import CommandHandle, CommandResult
    from sandfleet.cli.terminal.output import Outputs


@contextmanager
def passed_to(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call `interrupt` at the first Ctrl-C instead of raising; the next one raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.getsignal(signal.SIGINT)

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, before)
        # In a thread: this one waits for the code to end.
        threading.Thread(target=_quietly, args=(interrupt,), daemon=True).start()

    # An ignored Ctrl-C stays ignored.
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _quietly(interrupt: Callable[[], object]) -> None:
    with suppress(SandfleetError):
        interrupt()


def followed(handle: CommandHandle, outputs: Outputs | None = None) -> CommandResult:
    """Follow a command to its end: the first Ctrl-C is passed to it, the second kills it. `outputs` get its bytes."""
    with passed_to(lambda: handle.signal(signal.SIGINT)):
        try:
            for piece in handle:
                if outputs is not None:
                    outputs.of(piece.stream).data(piece.data)
            return handle.wait()
        except BaseException:  # A second Ctrl-C, or the reader of the output has gone.
            handle.kill()
            raise
