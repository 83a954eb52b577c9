"""The standard streams of a context: fast in floods, in order with each other, and never a terminal."""

import builtins
import codecs
import contextlib
import getpass
import io
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial, wraps
from time import monotonic
from typing import Any, NoReturn

BUFFER_BYTES = 64 << 10
# Lines go out at once while they are few; a flood is written in blocks.
WINDOW_SECONDS = 0.05
LINES_PER_WINDOW = 64
STARTERS = (
    (subprocess, "_fork_exec"),
    (os, "system"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "execv"),
    (os, "execve"),
)
ERROR_HANDLER = "sandfleet.surrogates"


class StdinNotAvailable(EOFError):  # noqa: N818 a user reads the name
    """Code asked for input and there is nobody to give it."""

    # Shown without the path of a module that users do not know.
    __module__ = "builtins"


def refuse_input(prompt: object = "", stream: object = None) -> NoReturn:
    """Stands in for input() and getpass.getpass(). Raises StdinNotAvailable."""
    del prompt, stream
    raise StdinNotAvailable(
        "cannot read input: a sandbox has nobody at a keyboard; put the value into the code, or write it to a file and read that"
    )


def encode_surrogates(error: UnicodeError) -> tuple[bytes | str, int]:
    """Bytes that came in through surrogateescape go out as they were; any other lone surrogate as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    try:
        return text.encode("utf-8", "surrogateescape"), error.end
    except UnicodeEncodeError:
        return text.encode("ascii", "backslashreplace"), error.end


class Stream(io.TextIOWrapper):
    """sys.stdout or sys.stderr over a file descriptor that others (C code, children) write to as well."""

    def __init__(self, descriptor: int, holder: "list[Stream | None]") -> None:
        raw = io.FileIO(descriptor, "w", closefd=False)
        super().__init__(io.BufferedWriter(raw, BUFFER_BYTES), encoding="utf-8", errors=ERROR_HANDLER, newline="\n")
        # The one stream of the two that has something in its buffer.
        self._holder = holder
        self._writer = self._make_writer()
        self.install()

    def install(self) -> None:
        """Puts its own write and flush back in the place of what code may have set."""
        vars(self)["write"] = self._writer
        vars(self).pop("flush", None)

    def flush(self) -> None:
        """Everything written so far is in the pipe."""
        io.TextIOWrapper.flush(self)
        if self._holder[0] is self:
            self._holder[0] = None

    def _make_writer(self) -> Callable[[str], int]:
        # A closure, because print() comes here twice a line: attributes of self would double its time.
        holder, plain, flush = self._holder, partial(io.TextIOWrapper.write, self), partial(Stream.flush, self)
        window, lines = 0.0, 0

        def write(text: str) -> int:
            nonlocal window, lines
            if holder[0] is not self:
                if holder[0] is not None:
                    # The other stream's text came first; that it cannot be written is no error of this one.
                    with contextlib.suppress(OSError, ValueError):
                        Stream.flush(holder[0])
                holder[0] = self
            written = plain(text)
            if "\n" in text:
                if (now := monotonic()) - window > WINDOW_SECONDS:
                    window, lines = now, 0
                if lines < LINES_PER_WINDOW:
                    lines += 1
                    flush()
            return written

        return write


class Streams:
    """The pair, put back before each cell whatever the cell before did to it."""

    def __init__(self) -> None:
        codecs.register_error(ERROR_HANDLER, encode_surrogates)
        self._holder: list[Stream | None] = [None]
        self.out = Stream(1, self._holder)
        self.err = Stream(2, self._holder)
        builtins.input = refuse_input
        getpass.getpass = refuse_input

    def restore(self) -> None:
        """sys.stdin, sys.stdout and sys.stderr are the context's own again, new ones when code closed them."""
        # Assigned first: dropping a user's wrapper may close the buffer below it.
        sys.stdout, sys.stderr = self.out, self.err
        self.out.install()
        self.err.install()
        if not _usable(self.out):
            sys.stdout = self.out = Stream(1, self._holder)
        if not _usable(self.err):
            sys.stderr = self.err = Stream(2, self._holder)
        self._holder[0] = None
        vars(sys).update(__stdout__=self.out, __stderr__=self.err)
        if not _usable(getattr(sys, "stdin", None)):
            sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
            vars(sys).update(__stdin__=sys.stdin)

    def flush(self) -> None:
        """Everything that can be written is written; a stream that code closed is no error here."""
        for stream in (self.out, self.err):
            with contextlib.suppress(OSError, ValueError):
                Stream.flush(stream)

    def flush_before_children(self) -> None:
        """What was printed before a child starts is in the pipe before anything that the child writes.

        An audit hook would do it in one place, and makes id() and everything built on it twenty times slower.
        """
        os.register_at_fork(before=self.flush)
        for module, name in STARTERS:
            setattr(module, name, self._flushing(getattr(module, name)))

    def _flushing(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(start)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.flush()
            return start(*args, **kwargs)

        return call

    def flush_replaced(self) -> None:
        """Flushes what code put in the place of sys.stdout and sys.stderr; runs the user's code."""
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name, None)
            if stream is not self.out and stream is not self.err:
                # A user's object: whatever it raises says nothing about the cell.
                with contextlib.suppress(Exception):
                    stream.flush()


def _usable(stream: Any) -> bool:
    try:
        return not stream.closed
    except Exception:  # noqa: BLE001 a detached stream raises, and so may a user's own class
        return False
