"""A program's connection, and the one to the egress process that carries it: bytes go on as they come, in one turn.

Connections to the egress process are kept: they carry those of the session's programs one after the other.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

from sandfleet_rules.pieces import AGAIN, END, PIECE_BYTES, Kind, Pieces, piece

from sandfleet_executor.core.egress.contacts import Line
from sandfleet_executor.effects.network.tunnels import RESET_AT_CLOSE

# After both directions have ended, until the egress process takes another greeting.
SETTLING_SECONDS = 10.0
# A program that says nothing for so long is announced: the egress process waits a minute for that.
SILENT_SECONDS = 10.0


class Program:
    """A connection of a program of the session. It is not read until it is carried.

    A system call takes a while in a pod, so it has no transport of asyncio, which makes twice as many.
    """

    def __init__(self, sock: socket.socket, line: Line, over: Callable[["Program"], None]) -> None:
        """`over` is called with it once both have said all, or one is gone."""
        # Pieces of a handshake would wait 40 ms for the program's acknowledgement of the piece before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        # asyncio asks for the addresses of a socket that it does not know yet, to say them in an error.
        self._fd = sock.fileno()
        self._line = line
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._outer: Outer | None = None
        # For the program, which takes no more for now.
        self._unsent = bytearray()
        # No more comes from it; no more goes to it.
        self.has_ended = self._is_told = False
        self.is_over = False

    def carry(self, outer: "Outer") -> None:
        self._outer = outer
        outer.begin(self)
        self.go_on()

    def wait(self) -> None:
        """The egress process does not take more for now."""
        if not self.is_over:
            self._loop.remove_reader(self._fd)

    def go_on(self) -> None:
        if not self.has_ended and not self.is_over:
            self._loop.add_reader(self._fd, self._read)

    def hear(self, report: bytes) -> None:
        """Raises ValueError."""
        self._line.hear(report, time.time_ns())

    def write(self, data: bytes) -> None:
        self._line.received(len(data))
        if not self._unsent:
            data = data[self._sent(data) :]
        if not data or self.is_over:
            return
        if not self._unsent:
            self._loop.add_writer(self._fd, self._go_on_writing)
            if self._outer is not None:
                self._outer.transport.pause_reading()
        self._unsent += data

    def end(self) -> None:
        """No more is written."""
        self._is_told = True
        # One that has said all is closed in this turn.
        if not self._unsent and not self.has_ended:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Both directions have ended, or the outer one is gone that had said all."""
        self._outer = None
        if self.has_ended and not self._unsent:
            self._close()

    def reset(self) -> None:
        """The program sees that not all was said."""
        outer, self._outer = self._outer, None
        if outer is not None:
            outer.abort()
        if not self.is_over:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            self._close()

    def _read(self) -> None:
        try:
            data = self._sock.recv(PIECE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self.reset()
            return
        if data:
            self._line.sent(len(data))
            if self._outer is not None:
                self._outer.write(data)
            return
        self.has_ended = True
        self._loop.remove_reader(self._fd)
        if self._outer is not None:
            self._outer.end()
        else:
            self.leave()

    def _sent(self, data: bytes | bytearray) -> int:
        """Writes as much as there is room for."""
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            self.reset()
            return 0

    def _go_on_writing(self) -> None:
        del self._unsent[: self._sent(self._unsent)]
        if self._unsent or self.is_over:
            return
        self._loop.remove_writer(self._fd)
        if self._outer is not None:
            self._outer.transport.resume_reading()
        elif self.has_ended:
            self._close()
        if self._is_told:
            self.end()

    def _close(self) -> None:
        self.is_over = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()
        self._over(self)


class Outer(asyncio.Protocol):
    """A connection to the egress process. Nothing of one program gets into that of the next: it is kept only where both
    directions have ended by their own word, and the egress process has said that it has read all.
    """

    transport: asyncio.Transport

    def __init__(self, free: Callable[["Outer"], None]) -> None:
        """`free` is called with it when it may carry another program's."""
        self._free = free
        self._pieces = Pieces()
        # It goes with the first bytes of its program.
        self._greeting = b""
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
        self._greeting = piece(line)
        self._loop.call_later(SILENT_SECONDS, self.flush)

    def flush(self) -> None:
        """Sends the greeting ahead of the first bytes."""
        if (greeting := self._greeted()) and not self.is_over:
            self.transport.write(greeting)

    def write(self, data: bytes) -> None:
        self.transport.write(self._greeted() + piece(data))

    def end(self) -> None:
        self.transport.write(self._greeted() + END)
        self._has_sent_end = True
        self._settle()

    def _greeted(self) -> bytes:
        greeting, self._greeting = self._greeting, b""
        return greeting

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
