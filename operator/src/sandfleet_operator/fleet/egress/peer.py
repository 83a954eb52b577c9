"""One end of a connection, whose bytes can be looked at before they are carried."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

# What is read at once. A connection holds two such pieces each way: the rest waits in the kernels of both ends.
PIECE_BYTES = 256 << 10
# What is dropped of a program that has been told all, and for how long.
MOST_UNREAD, UNREAD_SECONDS = 1 << 20, 5.0

Moved = Callable[[int], None]


class Peer(ABC):
    """A stream, with bytes that were read ahead."""

    _ahead = b""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises OSError."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        return await self._next()

    @abstractmethod
    async def _next(self) -> bytes:
        """Bytes that have not been read before; empty at the end. Raises OSError."""

    def ahead(self) -> list[bytes]:
        """All that can be read without waiting."""
        data, self._ahead = self._ahead, b""
        return [data] if data else []

    def unread(self, data: bytes) -> None:
        """The bytes come again with the next read."""
        self._ahead = data + self._ahead

    async def exactly(self, count: int) -> bytes:
        """Raises EOFError and OSError."""
        pieces, left = [], count
        while left > 0:
            if not (piece := await self.read()):
                raise EOFError
            pieces.append(piece[:left])
            if len(piece) > left:
                self.unread(piece[left:])
            left -= len(piece)
        return b"".join(pieces)

    async def line(self, most: int) -> bytes:
        """Up to the next newline, and no byte behind it. Raises EOFError, ValueError for a longer one, and OSError."""
        data = b""
        while b"\n" not in data:
            if len(data) > most:
                raise ValueError("the line is too long")
            if not (piece := await self.read()):
                raise EOFError
            data += piece
        found, _, rest = data.partition(b"\n")
        self.unread(rest)
        return found

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Raises OSError."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """A few bytes for which there is always room."""

    def say(self, report: Mapping[str, Any]) -> None:  # noqa: B027 - most say nothing
        """Tells the executor whose program this is; the program does not see it. Only pieces have room for it."""

    def carried(self, sent: int, received: int) -> None:  # noqa: B027 - most say nothing
        """Tells an executor that does not carry it how much went to the host and came from it, once that is over."""

    async def has_ended(self) -> bool:
        """Whether both directions have ended as they should. Here no end is waited for. Raises OSError and EOFError."""
        return False

    async def drained(self) -> None:
        """Reads and drops what still comes, for a while: a program reads a refusal before it has said all.

        Raises OSError and EOFError.
        """
        left = MOST_UNREAD
        async with asyncio.timeout(UNREAD_SECONDS):
            while left >= 0 and (data := await self.read()):
                left -= len(data)

    @property
    @abstractmethod
    def root(self) -> "SocketPeer":
        """The socket over which it speaks."""

    @abstractmethod
    def decoded(self, data: bytes) -> list[bytes]:
        """What these bytes of the socket say; b"" is the end, behind which nothing is said. Raises OSError and
        ValueError.
        """

    @abstractmethod
    def encoded(self, data: bytes) -> bytes:
        """The bytes of the socket that say this. Raises OSError."""

    @abstractmethod
    def end(self) -> None:
        """No more is sent."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def abort(self) -> None:
        """Drops what was not sent; the other end sees a reset."""


class SocketPeer(Peer, asyncio.Protocol):
    """The other end of a socket."""

    transport: asyncio.Transport

    def __init__(self, begin: Callable[["SocketPeer"], None] | None = None) -> None:
        """`begin` hears that it is connected."""
        self._begin = begin
        # What has come and was not read yet.
        self._held: bytes | bytearray = b""
        self._has_ended = False
        self.is_full = False
        self.lost: OSError | None = None
        # Those that wait until one of these changes.
        self._waiting: set[asyncio.Future[None]] = set()
        # All that comes goes on by the one, and all that is written comes by the other.
        self._onward: Flow | None = None
        self._feeding: Flow | None = None

    async def _next(self) -> bytes:
        while not self._held:
            if self._has_ended:
                return b""
            if self.lost is not None:
                raise self.lost
            await self._change()
        data = bytes(self._held[:PIECE_BYTES])
        self._held = self._held[PIECE_BYTES:]
        self.transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        self.transport.write(data)
        while self.is_full and self.lost is None:
            await self._change()
        if self.lost is not None:
            raise self.lost

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.transport.write(data)

    def end(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.transport.write_eof()

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    @property
    def root(self) -> "SocketPeer":
        return self

    def decoded(self, data: bytes) -> list[bytes]:
        return [data]

    def encoded(self, data: bytes) -> bytes:
        return data

    def goes_by(self, flow: "Flow | None") -> None:
        """All that comes is given to the flow, which begins with what has come before."""
        self._onward = flow
        if flow is None:
            return
        held, self._held = bytes(self._held), b""
        if held:
            flow.take(held)
        if self.lost is not None:
            flow.end(self.lost)
        elif self._has_ended:
            flow.hear_end()

    def comes_by(self, flow: "Flow") -> None:
        """All that is written is the flow's."""
        self._feeding = flow
        if self.lost is not None:
            flow.end(self.lost)

    async def _change(self) -> None:
        """Waits until something has come, or there is room, or it is over."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def _has_changed(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._begin is not None:
            self._begin(self)

    def data_received(self, data: bytes) -> None:
        if self._onward is not None:
            self._onward.take(data)
            return
        if not self._held:
            self._held = data
        else:
            # A list of pieces of a byte or two would cost forty times as much as they are.
            self._held = self._held if isinstance(self._held, bytearray) else bytearray(self._held)
            self._held += data
        if len(self._held) > PIECE_BYTES:
            self.transport.pause_reading()
        self._has_changed()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._onward is not None:
            self._onward.hear_end()
        self._has_changed()
        return True

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._feeding is not None:
            self._feeding.go_on()
        self._has_changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc if isinstance(exc, OSError) else ConnectionResetError()
        for flow in (self._onward, self._feeding):
            if flow is not None:
                flow.end(self.lost)
        self._has_changed()


class Flow:
    """What one end says, carried to the other in the turn in which it comes."""

    def __init__(self, source: Peer, target: Peer, moved: Moved) -> None:
        self._source, self._target, self._moved = source, target, moved
        self._from, self._to = source.root, target.root
        # The result is there at the end of the source, which the target hears. It is an OSError where either is lost.
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        self._to.comes_by(self)
        for piece in self._source.ahead():
            self._carry(piece)
        if not self.over.done():
            self._from.goes_by(self)
            self.go_on()

    def take(self, data: bytes) -> None:
        """Bytes of the source's socket. None goes on once the flow was cut."""
        if self.over.done():
            return
        try:
            for piece in self._source.decoded(data):
                self._carry(piece)
        except (OSError, ValueError):
            self._from.abort()

    def _carry(self, piece: bytes) -> None:
        if not piece:
            self.end(None)
            return
        self._moved(len(piece))
        self._to.transport.write(self._target.encoded(piece))
        if self._to.is_full:
            self._from.transport.pause_reading()

    def go_on(self) -> None:
        if not self._to.is_full and not self.over.done():
            self._from.transport.resume_reading()

    def hear_end(self) -> None:
        """The end of the source's socket, which says no other's."""
        self.end(None if self._source is self._from else ConnectionResetError())

    def end(self, lost: OSError | None) -> None:
        if self.over.done():
            return
        self._from.goes_by(None)
        # For what comes behind it.
        self._from.transport.resume_reading()
        if lost is not None:
            self.over.set_exception(lost)
        else:
            self._target.end()
            self.over.set_result(None)


async def carry(source: Peer, target: Peer, moved: Moved, passed: Callable[[bytes], bytes] | None = None) -> None:
    """Carries bytes to the source's end, and tells that end. `moved` hears of each piece; `passed` says what goes on.

    Raises OSError, and what `passed` raises.
    """
    while data := await source.read():
        moved(len(data))
        if piece := passed(data) if passed else data:
            await target.write(piece)
    target.end()


def carrying(source: Peer, target: Peer, moved: Moved) -> asyncio.Future[None]:
    """The same by itself, in fewer turns."""
    flow = Flow(source, target, moved)
    flow.begin()
    return flow.over
