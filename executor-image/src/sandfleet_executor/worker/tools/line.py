"""Lines to the executor, which passes calls to the host: each has one call at a time, and each call has its line.

No thread is needed for them: a context with threads cannot be copied.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..base import frames, process
from ..base.frames import Frame
from . import failures, values

# Socket and key: "NAME:KEY".
VARIABLE = "SANDFLEET_TOOLS"
# Lines that wait for the next call.
MOST_IDLE = 16
RECEIVE_BYTES = 1 << 20
# Where many calls begin at once, the executor takes a moment to accept their lines; gVisor refuses them until then.
ATTEMPTS, PAUSE_SECONDS = 200, 0.01
# Kept, because code may replace it.
_environ, _getpid = os.environ, os.getpid


def place() -> tuple[str, str]:
    """The name of the socket, and the key of the execution. Raises ToolUnavailable."""
    name, _, key = _environ.get(VARIABLE, "").partition(":")
    if not name:
        why = f"the variable {VARIABLE} is not set: only executions of a brokered sandbox can call tools"
        raise failures.ToolUnavailable(f"cannot call tools: {why}", reason="NotBrokered")
    return name, key


class Lines:
    """The lines of this process that are free."""

    def __init__(self) -> None:
        self._free: list[tuple[str, socket.socket]] = []
        self._owner = _getpid()

    def take(self, name: str) -> socket.socket:
        """A free line, or a new one. Raises OSError."""
        if self._owner != _getpid():
            # A fork: the lines are the parent's.
            self.forget()
        while self._free:
            theirs, line = self._free.pop()
            if theirs == name and _is_quiet(line):
                return line
            line.close()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as low:
            low.connect(f"\0{name}")
            return socket.socket(fileno=process.private_copy(low.fileno()))

    def give_back(self, name: str, line: socket.socket) -> None:
        if len(self._free) < MOST_IDLE and self._owner == _getpid():
            self._free.append((name, line))
        else:
            line.close()

    def forget(self) -> None:
        """Closes this process's copies of its parent's lines."""
        free, self._free, self._owner = self._free, [], _getpid()
        for _, line in free:
            with contextlib.suppress(OSError):
                line.close()


def _is_quiet(line: socket.socket) -> bool:
    """Whether the other end is there and silent."""
    try:
        line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def block(line: socket.socket, *, wanted: bool) -> None:
    """Without a system call where it is so already: under gVisor each of them counts."""
    if line.getblocking() != wanted:
        line.setblocking(wanted)


LINES = Lines()


def attempts() -> Iterator[float]:
    """Pauses between attempts to get a line, in seconds; none is left after the last one."""
    return itertools.repeat(PAUSE_SECONDS, ATTEMPTS)


def take(name: str) -> socket.socket:
    """A line. Raises OSError."""
    for pause in attempts():
        with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
            return LINES.take(name)
        time.sleep(pause)
    return LINES.take(name)


async def take_async(name: str) -> socket.socket:
    """As `take`."""
    for pause in attempts():
        with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
            return LINES.take(name)
        await asyncio.sleep(pause)
    return LINES.take(name)


def request(op: str, key: str, tool: str, arguments: Mapping[str, Any], as_tables: Collection[str] | None) -> bytes:
    """The frame of a request. Raises TypeError for arguments that cannot be sent, and ToolDenied for too many bytes.

    as_tables  names of arguments that the tool takes as tables; None for a caller that reads no tables.
    """
    if op == "list":
        return frames.encode({"op": op, "key": key})
    text, blobs = values.encode(arguments) if as_tables is None else values.encode_arguments(arguments, as_tables)
    sizes, payload = frames.joined([text, *blobs])
    header = {"op": op, "key": key, "tool": tool, "sizes": sizes}
    try:
        return frames.encode(header, payload)
    except frames.FrameError as error:
        raise failures.ToolDenied(f"cannot call {tool}: {error}", tool=tool, reason="ArgumentsTooLarge") from error


def answer(tool: str, frame: Frame | None) -> Any:
    """What a call gives. Raises ToolError."""
    if frame is None:
        raise failures.lost(tool, sent=True)
    match frame.header["event"]:
        case "failed":
            raise failures.of(tool, frame.header)
        case "tools":
            return values.decode(frame.payload, ())
    text, *blobs = frames.split(frame.header["sizes"], frame.payload)
    try:
        return values.decode(text, blobs)
    except (ValueError, RecursionError) as error:
        why = f"cannot read the result of {tool}: the host sent what is no value ({error})"
        raise failures.ToolError(why, tool=tool, reason="BadResult") from None


def ask(
    op: str, tool: str = "", arguments: Mapping[str, Any] | None = None, as_tables: Collection[str] | None = None
) -> Any:
    """Blocks for the answer. Raises ToolError and TypeError; an interrupt cancels the call on the host."""
    name, key = place()
    data = request(op, key, tool, arguments or {}, as_tables)
    line, whole, sent = None, False, False
    try:
        line = take(name)
        block(line, wanted=True)
        sent = True
        line.sendall(data)
        frame = frames.receive(line)
        whole = frame is not None
    except OSError as error:
        raise failures.lost(tool, sent=sent) from error
    finally:
        _leave(name, line, whole=whole)
    return answer(tool, frame)


async def ask_async(
    op: str, tool: str = "", arguments: Mapping[str, Any] | None = None, as_tables: Collection[str] | None = None
) -> Any:
    """As `ask`, without blocking the event loop."""
    name, key = place()
    data = request(op, key, tool, arguments or {}, as_tables)
    line, whole, sent = None, False, False
    try:
        line = await take_async(name)
        block(line, wanted=False)
        sent = True
        await asyncio.get_running_loop().sock_sendall(line, data)
        frame = await _receive(line)
        whole = frame is not None
    except OSError as error:
        raise failures.lost(tool, sent=sent) from error
    finally:
        _leave(name, line, whole=whole)
    return answer(tool, frame)


def _leave(name: str, line: socket.socket | None, *, whole: bool) -> None:
    if line is None:
        return
    if whole:
        LINES.give_back(name, line)
    else:
        # Its end cancels the call.
        line.close()


async def _receive(line: socket.socket) -> Frame | None:
    prefix = await _exactly(line, frames.PREFIX.size)
    if prefix is None:
        return None
    header, payload = frames.PREFIX.unpack(prefix)
    frames.check_sizes(header, payload)
    body = await _exactly(line, header + payload)
    return None if body is None else Frame(frames.decode_header(body[:header]), body[header:])


async def _exactly(line: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(line, min(size - len(data), RECEIVE_BYTES))
        if not piece:
            return None
        data += piece
    return bytes(data)
