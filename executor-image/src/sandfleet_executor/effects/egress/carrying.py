"""A program's connection, and the one to the egress process that carries it: bytes go on as they come, in one turn.

Connections to the egress process are kept: they carry those of the session's programs one after the other.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

from sandfleet_executor.core.egress.contacts import Line
from sandfleet_executor.core.egress.pieces import AGAIN, END, Kind, Pieces, piece
from sandfleet_executor.effects.network.tunnels import RESET_AT_CLOSE

# After both directions have ended, until the egress process takes another greeting.
SETTLING_SECONDS = 10.0


class Program(asyncio.Protocol):
    """A connection of a program of the session. It is not read until it is carried."""

    transport: asyncio.Transport

    def __init__(self, line: Line) -> None:
        self._line = line
        self._outer: Outer | None = None
        self._is_carried = False
        # asyncio of Python 3.11.2 reads on after a pause in `connection_made`.
        self._early = b""
        # No more comes from it.
        self.has_ended = False
        # Both have said all, or one is gone.
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()

    def carry(self, outer: "Outer") -> None:
        self._outer = outer
        self._is_carried = True
        outer.begin(self)
        if self._early:
            outer.write(self._early)
            self._early = b""
        if self.has_ended:
            outer.end()
        else:
            self.go_on()

    def wait(self) -> None:
        """The egress process does not take more for now."""
        if not self.has_ended:
            self.transport.pause_reading()

    def go_on(self) -> None:
        if not self.has_ended:
            self.transport.resume_reading()

    def hear(self, report: bytes) -> None:
        """Raises ValueError."""
        self._line.hear(report, time.time_ns())

    def write(self, data: bytes) -> None:
        self._line.received(len(data))
        self.transport.write(data)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.transport.write_eof()

    def leave(self) -> None:
        """Both directions have ended, or the outer one is gone that had said all."""
        self._outer = None
        if self.has_ended:
            self.transport.close()
            self._is_over()

    def reset(self) -> None:
        """The program sees that not all was said."""
        outer, self._outer = self._outer, None
        if outer is not None:
            outer.abort()
        if not self.transport.is_closing():
            with contextlib.suppress(OSError):
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            self.transport.abort()
        self._is_over()

    def data_received(self, data: bytes) -> None:
        self._line.sent(len(data))
        if not self._is_carried:
            self._early += data
            # A second pause alone would do nothing.
            self.transport.resume_reading()
            self.transport.pause_reading()
        elif self._outer is not None:
            self._outer.write(data)

    def eof_received(self) -> bool:
        self.has_ended = True
        if self._outer is not None:
            self._outer.end()
        elif self._is_carried:
            self.leave()
        return True

    def pause_writing(self) -> None:
        if self._outer is not None:
            self._outer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._outer is not None:
            self._outer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it is gone changes nothing
        self.reset()

    def _is_over(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


class Outer(asyncio.Protocol):
    """A connection to the egress process. Nothing of one program gets into that of the next: it is kept only where both
    directions have ended by their own word, and the egress process has said that it has read all.
    """

    transport: asyncio.Transport

    def __init__(self, free: Callable[["Outer"], None]) -> None:
        """`free` is called with it when it may carry another program's."""
        self._free = free
        self._pieces = Pieces()
        self._program: Program | None = None
        self._has_sent_end = self._has_heard_end = False
        # It ends then, unless something happens before.
        self._limit: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.made_at = self._loop.time()

    @property
    def is_over(self) -> bool:
        """Whether the other end has closed it."""
        return self.transport.is_closing()

    def begin(self, program: Program) -> None:
        self._program = program
        self._has_sent_end = self._has_heard_end = False

    def limit(self, seconds: float | None) -> None:
        """It is closed after so long; None: it is not."""
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self._loop.call_later(seconds, self.close)

    def greet(self, line: bytes) -> None:
        """The first piece of each program's."""
        self.transport.write(piece(line))

    def write(self, data: bytes) -> None:
        self.transport.write(piece(data))

    def end(self) -> None:
        self.transport.write(END)
        self._has_sent_end = True
        self._settle()

    def close(self) -> None:
        self.limit(None)
        self.transport.close()

    def abort(self) -> None:
        self.limit(None)
        self._program = None
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for kind, found in self._pieces.feed(data):
                self._hear(kind, found)
        except ValueError:
            self._lose()

    def _hear(self, kind: Kind, data: bytes) -> None:
        """Raises ValueError where it is nothing that an egress process says now."""
        if kind is Kind.REPORT and data == AGAIN:
            self._may_be_kept()
            return
        if self._program is None or self._has_heard_end:
            raise ValueError("it belongs to no program")
        if kind is Kind.REPORT:
            self._program.hear(data)
        elif kind is Kind.BYTES:
            self._program.write(data)
        else:
            self._has_heard_end = True
            self._program.end()
            self._settle()

    def _settle(self) -> None:
        """Lets go of the program, once both directions have ended."""
        if not self._has_sent_end or not self._has_heard_end:
            return
        program, self._program = self._program, None
        # It may wait for a program that reads slowly, to which it has given all.
        self.transport.resume_reading()
        self.limit(SETTLING_SECONDS)
        if program is not None:
            program.leave()

    def _may_be_kept(self) -> None:
        if self._program is not None or not self._has_sent_end or not self._has_heard_end:
            raise ValueError("it has not read all")
        self._has_sent_end = False
        self.limit(None)
        self._free(self)

    def pause_writing(self) -> None:
        if self._program is not None:
            self._program.wait()

    def resume_writing(self) -> None:
        if self._program is not None:
            self._program.go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it is gone changes nothing
        self._lose()

    def _lose(self) -> None:
        program, self._program = self._program, None
        self.limit(None)
        self.transport.abort()
        if program is None:
            return
        if self._has_heard_end:
            # An egress process that has said all may go before its program does.
            program.leave()
        else:
            program.reset()
