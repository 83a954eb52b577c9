"""Connections to the session's loopback, made inside its network. Nothing blocks: the spawner has one thread.

A connected descriptor is sent through a socket that came with the request. If the requester has gone, the descriptor is
dropped with that socket.
"""

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

# In this order: a server may listen on one of them only.
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
# The most attempts at a time.
MAX_ATTEMPTS = 128
REFUSED, TIMED_OUT, TOO_MANY = "refused", "timeout", "many"


class Attempt:
    """One connection on its way. No dataclass: the spawner starts without the dozen modules that those import."""

    def __init__(self, number: int, port: int, reply: socket.socket, deadline: float) -> None:
        self.number = number
        self.port = port
        self.reply = reply
        self.deadline = deadline
        # Still to be tried.
        self.addresses = list(ADDRESSES)
        self.sock = reply


class Connections:
    """All attempts under way. `send` gets {"event":"connected","id"}, or {"event":"failed","id","reason","message"}."""

    def __init__(self, poller: select.poll, send: Callable[[dict[str, Any]], None]) -> None:
        self._poller = poller
        self._send = send
        self._attempts: dict[int, Attempt] = {}

    def begin(self, number: int, port: int, reply: int, timeout: float) -> None:
        """`reply` is the socket for the descriptor; it is copied. `timeout`: for the server to accept, in seconds."""
        if len(self._attempts) >= MAX_ATTEMPTS:
            self._fail(number, TOO_MANY, "too many connections are being made")
            return
        own = socket.socket(fileno=os.dup(reply))
        self._try_next(Attempt(number, port, own, time.monotonic() + timeout))

    def ready(self, fd: int) -> None:
        """The descriptor is writable: finishes its attempt, if the descriptor is that of an attempt."""
        if attempt := self._take(fd):
            error = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._finish(attempt, error)

    def expire(self) -> None:
        """Fails the attempts whose time is over."""
        now = time.monotonic()
        for fd in [fd for fd, attempt in self._attempts.items() if now >= attempt.deadline]:
            attempt = self._take(fd)
            assert attempt is not None
            attempt.sock.close()
            attempt.reply.close()
            self._fail(attempt.number, TIMED_OUT, "the server did not accept the connection in time")

    @property
    def due(self) -> float:
        """The next deadline, by the monotonic clock."""
        return min((attempt.deadline for attempt in self._attempts.values()), default=float("inf"))

    def close(self) -> None:
        """In a fork of the spawner: the descriptors are the spawner's."""
        for attempt in self._attempts.values():
            attempt.sock.close()
            attempt.reply.close()

    def _take(self, fd: int) -> Attempt | None:
        attempt = self._attempts.pop(fd, None)
        if attempt is not None:
            self._poller.unregister(fd)
        return attempt

    def _try_next(self, attempt: Attempt) -> None:
        """Tries the next address, until an attempt is under way or no address is left."""
        family, address = attempt.addresses.pop(0)
        try:
            attempt.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError:
            self._fail_address(attempt)
            return
        error = attempt.sock.connect_ex((address, attempt.port))
        if error == errno.EINPROGRESS:
            self._attempts[attempt.sock.fileno()] = attempt
            self._poller.register(attempt.sock, select.POLLOUT)
        else:
            self._finish(attempt, error)

    def _finish(self, attempt: Attempt, error: int) -> None:
        if error or connected_to_itself(attempt.sock):
            attempt.sock.close()
            self._fail_address(attempt)
            return
        # The requester may have closed its end.
        with contextlib.suppress(OSError):
            socket.send_fds(attempt.reply, [b"\0"], [attempt.sock.fileno()], socket.MSG_DONTWAIT)
        attempt.sock.close()
        attempt.reply.close()
        self._send({"event": "connected", "id": attempt.number})

    def _fail_address(self, attempt: Attempt) -> None:
        if attempt.addresses:
            self._try_next(attempt)
            return
        attempt.reply.close()
        self._fail(attempt.number, REFUSED, "no server listens there")

    def _fail(self, number: int, reason: str, message: str) -> None:
        self._send({"event": "failed", "id": number, "reason": reason, "message": message})


def connected_to_itself(sock: socket.socket) -> bool:
    """A connection may get the very port that it connects to as its own, and then is its own other end."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:
        # Reset meanwhile; the reader of the connection will see that.
        return False
