"""The session's port of the proxy. On one machine the egress process gets the listener; in a pod, where it is another
machine's, each connection is carried to it, without reading a byte.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from functools import partial

from sandfleet_executor.core.egress.contacts import Contacts, Line
from sandfleet_executor.core.egress.variables import PORT
from sandfleet_executor.effects.egress import authorities
from sandfleet_executor.effects.egress.carrying import Program
from sandfleet_executor.effects.egress.dial import Way
from sandfleet_executor.effects.egress.handing import Handing

# More than the egress process takes of one session: it refuses in words.
MOST = 160
BACKLOG = 128

_log = logging.getLogger(__name__)


class WayOut:
    """One sandbox's. Until `open` or `shut` nothing is accepted: no user code runs before."""

    def __init__(self, path: str | None, tmp_fd: Callable[[], int | None]) -> None:
        """`path` is the socket of the egress process; None: there is none. `tmp_fd`: of the namespace's /tmp."""
        self._tmp_fd = tmp_fd
        # Of its programs; executions tell of those that came while they ran.
        self.contacts = Contacts()
        self._handing = Handing(path, self.contacts) if path else None
        self._way: Way | None = None
        # Where the session's network is that of this process, which then listens itself.
        self._is_own_network = False
        self._listener: socket.socket | None = None
        self._session_id = ""
        self._is_shut = path is None
        # Undoes `_begin`.
        self._stop: Callable[[], object] | None = None
        self._programs: dict[Program, Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Of hosts with credentials; each namespace has it in a file.
        self._authority = b""

    @property
    def is_open(self) -> bool:
        return bool(self._session_id)

    def lead(self, way: Way) -> None:
        """The way of a pod, whose network it shares with its session. Comes before `open`."""
        self._way = way
        self._is_own_network = True
        self._is_shut = False

    def listen(self, listener: socket.socket) -> None:
        """The listening socket of a new session namespace, in the place of an earlier one. Owns it."""
        self._end()
        if self._is_shut:
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        if self.is_open:
            self._begin()

    def open(self, session_id: str, authority: bytes) -> None:
        """From now on the session's connections are carried. `authority`: what it trusts beside the machine's."""
        self._session_id, self._authority = session_id, authority
        if self._is_own_network and self._listener is None:
            try:
                self._listener = _listening()
            except OSError as error:
                _log.error("cannot listen for the session's connections: %s", error)
        self._begin()

    def renew(self) -> None:
        """There is a new session namespace. Its network may be the one that is listened in already."""
        if self._is_own_network and self._stop is not None:
            self._trust()

    def _trust(self) -> None:
        if self._authority and (tmp_fd := self._tmp_fd()) is not None:
            authorities.write(tmp_fd, self._authority)

    def _begin(self) -> None:
        """In a namespace in which no code has run yet."""
        if self._listener is None or self._stop is not None:
            return
        self._trust()
        if self._handing is not None:
            self._stop = asyncio.ensure_future(self._handing.run(self._session_id, self._listener)).cancel
        else:
            self._accepting(self._listener)

    def shut(self) -> None:
        """The session has no way out: its port is closed."""
        self._is_shut = True
        self._end()

    def _end(self) -> None:
        if self._stop is not None:
            self._stop()
        self._stop = None
        listener, self._listener = self._listener, None
        for task in self._tasks:
            task.cancel()
        for program in tuple(self._programs):
            program.reset()
        if self._way is not None:
            self._way.close()
        if listener is not None:
            listener.close()

    def _accepting(self, listener: socket.socket) -> None:
        """Accepts from now on, unless there are too many."""
        loop = asyncio.get_running_loop()
        self._stop = partial(loop.remove_reader, listener)
        if len(self._programs) < MOST:
            loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # No descriptors are left: they come back as connections end.
            asyncio.get_running_loop().remove_reader(listener)
            later = asyncio.get_running_loop().call_later(0.1, self._accepting, listener)
            self._stop = later.cancel
            return
        assert self._way is not None
        program = Program(sock, line := Line(self.contacts), self._over)
        self._programs[program] = line
        if len(self._programs) >= MOST:
            asyncio.get_running_loop().remove_reader(listener)
        if (outer := self._way.kept()) is not None:
            program.carry(outer)
        else:
            self._tasks.add(task := asyncio.ensure_future(self._carry(program)))
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, program: Program) -> None:
        assert self._way is not None
        try:
            program.carry(await self._way.connect())
        except OSError:
            # The egress process is away.
            program.reset()

    def _over(self, program: Program) -> None:
        self._programs.pop(program).end(time.time_ns())
        if self._listener is not None and len(self._programs) == MOST - 1:
            self._accepting(self._listener)


def _listening() -> socket.socket:
    """Raises OSError. No code of the session has run yet, so the port is free."""
    listener = socket.create_server(("127.0.0.1", PORT), backlog=BACKLOG)
    listener.setblocking(False)
    return listener
