"""Connections to the session's own loopback, made where its network is. Never blocks: the spawner has one thread.

The connected descriptor goes through a socket that came with the request: where nobody waits for it any more, it is gone with that.
"""

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# In this order: what listens on one of them alone is found.
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
# How many may be under way.
MOST = 128
REFUSED, TIMED_OUT, TOO_MANY = "refused", "timeout", "many"


@dataclass
class Attempt:
    number: int
    port: int
    reply: socket.socket
    deadline: float
    # What is left to try.
    addresses: list[tuple[int, str]]
    sock: socket.socket


class Connections:
    """Those under way. `say` sends {"event":"connected","id"}, or {"event":"failed","id","reason","message"}."""

    def __init__(self, poller: select.poll, say: Callable[[dict[str, Any]], None]) -> None:
        self._poller = poller
        self._say = say
        self._attempts: dict[int, Attempt] = {}

    def begin(self, number: int, port: int, reply: int, patience: float) -> None:
        """`reply` is the socket for the descriptor; it is copied. `patience`: how long whoever listens may take, in seconds."""
        if len(self._attempts) >= MOST:
            self._fail(number, TOO_MANY, "too many connections are being made")
            return
        own = socket.socket(fileno=os.dup(reply))
        self._next(Attempt(number, port, own, time.monotonic() + patience, list(ADDRESSES), own))

    def ready(self, fd: int) -> None:
        """Something has become of the attempt with this descriptor, if it is one."""
        if attempt := self._take(fd):
            error = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._settle(attempt, error)

    def expire(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, attempt in self._attempts.items() if now >= attempt.deadline]:
            attempt = self._take(fd)
            assert attempt is not None
            attempt.sock.close()
            attempt.reply.close()
            self._fail(attempt.number, TIMED_OUT, "whoever listens did not answer in time")

    @property
    def due(self) -> float:
        """When the next gives up, by the monotonic clock."""
        return min((attempt.deadline for attempt in self._attempts.values()), default=float("inf"))

    def close(self) -> None:
        """For a fork: these descriptors are the spawner's."""
        for attempt in self._attempts.values():
            attempt.sock.close()
            attempt.reply.close()

    def _take(self, fd: int) -> Attempt | None:
        attempt = self._attempts.pop(fd, None)
        if attempt is not None:
            self._poller.unregister(fd)
        return attempt

    def _next(self, attempt: Attempt) -> None:
        """Tries the next address, until one is under way or none is left."""
        family, address = attempt.addresses.pop(0)
        try:
            attempt.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError:
            self._go_on(attempt)
            return
        error = attempt.sock.connect_ex((address, attempt.port))
        if error == errno.EINPROGRESS:
            self._attempts[attempt.sock.fileno()] = attempt
            self._poller.register(attempt.sock, select.POLLOUT)
        else:
            self._settle(attempt, error)

    def _settle(self, attempt: Attempt, error: int) -> None:
        if error or met_itself(attempt.sock):
            attempt.sock.close()
            self._go_on(attempt)
            return
        # Where nobody waits any more it is closed.
        with contextlib.suppress(OSError):
            socket.send_fds(attempt.reply, [b"\0"], [attempt.sock.fileno()], socket.MSG_DONTWAIT)
        attempt.sock.close()
        attempt.reply.close()
        self._say({"event": "connected", "id": attempt.number})

    def _go_on(self, attempt: Attempt) -> None:
        if attempt.addresses:
            self._next(attempt)
            return
        attempt.reply.close()
        self._fail(attempt.number, REFUSED, "nobody listens there")

    def _fail(self, number: int, reason: str, message: str) -> None:
        self._say({"event": "failed", "id": number, "reason": reason, "message": message})


def met_itself(sock: socket.socket) -> bool:
    """A connection to a port of the range that connections come from may get that port, and be its own other end."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:
        # Reset meanwhile, which whoever reads from it is told.
        return False
