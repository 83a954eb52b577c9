"""The standard streams of a context: fast in floods, in order with each other, never a terminal."""

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

from .state.stored_names import stored_as

BUFFER_BYTES = 64 << 10
# A few lines are written at once, a flood of lines in blocks.
WINDOW_SECONDS = 0.05
LINES_PER_WINDOW = 64
PROCESS_STARTERS = (
    (subprocess, "_fork_exec"),
    (os, "system"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "execv"),
    (os, "execve"),
)
ERROR_HANDLER = "sandfleet.surrogates"


# Gives a line that the caller of the cell answers, and raises StdinNotAvailable: (prompt, whether it is a password).
Reader = Callable[[str, bool], str]


class StdinNotAvailable(EOFError):
    """Code asked for input, and there is none."""

    # So that users see the name without the path of a module that they do not know.
    __module__ = "builtins"


def refuse(prompt: str = "", password: bool = False) -> NoReturn:
    """Of a cell whose caller answers no requests for input."""
    del prompt, password
    raise StdinNotAvailable(
        "cannot read input: a sandbox has no keyboard; put the value into the code, or write it to a file and read that"
    )


_reader: list[Reader] = [refuse]


# Stored: a variable may hold `input`.
@stored_as("streams", "refuse_input")
def read_input(prompt: object = "", /) -> str:
    """Replaces input()."""
    return _reader[0](str(prompt), False)


@stored_as("streams")
def read_password(prompt: str = "Password: ", stream: object = None, **others: object) -> str:
    """Replaces getpass.getpass()."""
    del stream, others
    return _reader[0](str(prompt), True)


def set_reader(reader: Reader) -> None:
    _reader[0] = reader


class Stdin(io.RawIOBase):
    """Standard input: the lines that the caller of the cell answers, one at a time, and the end where it has none."""

    def __init__(self) -> None:
        self._rest = b""

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        # Programs that code starts inherit the file, which is empty.
        return 0

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            try:
                line = read_input()
            except StdinNotAvailable:
                return 0
            self._rest = f"{line}\n".encode("utf-8", "surrogateescape")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def standard_input() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(Stdin()), encoding="utf-8", errors="surrogateescape")


def encode_surrogates(error: UnicodeError) -> tuple[bytes | str, int]:
    """Writes bytes that surrogateescape decoded as they were, and any other lone surrogate as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    try:
        return text.encode("utf-8", "surrogateescape"), error.end
    except UnicodeEncodeError:
        return text.encode("ascii", "backslashreplace"), error.end


class Stream(io.TextIOWrapper):
    """sys.stdout or sys.stderr, over a descriptor that C code and children write to as well."""

    def __init__(self, descriptor: int, holder: "list[Stream | None]") -> None:
        raw = io.FileIO(descriptor, "w", closefd=False)
        super().__init__(io.BufferedWriter(raw, BUFFER_BYTES), encoding="utf-8", errors=ERROR_HANDLER, newline="\n")
        # Which of the two streams has text in its buffer.
        self._holder = holder
        self._writer = self._make_writer()
        self.install()

    def install(self) -> None:
        """Restores its own write and flush, which code may have replaced."""
        vars(self)["write"] = self._writer
        vars(self).pop("flush", None)

    def flush(self) -> None:
        """Writes all buffered text to the pipe."""
        io.TextIOWrapper.flush(self)
        if self._holder[0] is self:
            self._holder[0] = None

    def _make_writer(self) -> Callable[[str], int]:
        # A closure: print() calls it twice a line, and attributes of self would double its time.
        holder, plain, flush = self._holder, partial(io.TextIOWrapper.write, self), partial(Stream.flush, self)
        window, lines = 0.0, 0

        def write(text: str) -> int:
            nonlocal window, lines
            if holder[0] is not self:
                if holder[0] is not None:
                    # The other stream's text came first. Its failure is no error of this stream.
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
    """sys.stdout and sys.stderr, restored before each cell."""

    def __init__(self) -> None:
        codecs.register_error(ERROR_HANDLER, encode_surrogates)
        self._holder: list[Stream | None] = [None]
        self.out = Stream(1, self._holder)
        self.err = Stream(2, self._holder)
        builtins.input = read_input
        getpass.getpass = read_password
        sys.stdin = standard_input()
        vars(sys).update(__stdin__=sys.stdin)

    def restore(self) -> None:
        """Makes sys.stdin, sys.stdout and sys.stderr the context's own again; new ones if code has closed them."""
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
            sys.stdin = standard_input()
            vars(sys).update(__stdin__=sys.stdin)

    def flush(self) -> None:
        """Writes all buffered text; ignores streams that code has closed."""
        for stream in (self.out, self.err):
            with contextlib.suppress(OSError, ValueError):
                Stream.flush(stream)

    def flush_before_children(self) -> None:
        """From now on flushes before each start of a child, so that earlier output comes before the child's.

        An audit hook would be one place instead of several, but makes id() and all that uses it twenty times slower.
        """
        os.register_at_fork(before=self.flush)
        for module, name in PROCESS_STARTERS:
            setattr(module, name, self._flushing(getattr(module, name)))

    def _flushing(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(start)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.flush()
            return start(*args, **kwargs)

        return call

    def flush_replaced(self) -> None:
        """Flushes the objects with which code replaced sys.stdout and sys.stderr; runs the user's code."""
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name, None)
            if stream is not self.out and stream is not self.err:
                # What an object of the user's raises is no error of the cell.
                with contextlib.suppress(Exception):
                    stream.flush()


def _usable(stream: Any) -> bool:
    try:
        return not stream.closed
    except Exception:  # noqa: BLE001 a detached stream raises, and a user's class may
        return False
