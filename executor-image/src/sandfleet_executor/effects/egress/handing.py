"""On one machine the egress process takes the session's connections itself, at the listener that it is handed.

No byte of them comes here. The egress process says what becomes of each, a line of JSON at a time: a host that was
reached or refused, as in core/egress/contacts.py, or how much was carried until it was over. A line has the number of
its connection.
"""

import asyncio
import contextlib
import json
import socket
import time
from typing import NoReturn

from sandfleet_executor.core.egress.contacts import Contacts, Line

CONNECT_SECONDS = 10.0
# Where the egress process has ended, the next one is there soon; connections wait at the listener meanwhile.
AGAIN_SECONDS = 0.05
READ_BYTES = MOST_LINE = 64 << 10
# More connections than the egress process takes of one session.
MOST_LINES = 256


class Handing:
    """Of one sandbox."""

    def __init__(self, path: str, contacts: Contacts) -> None:
        """`path` is the socket of the egress process."""
        self._path = path
        self._contacts = contacts
        self._lines: dict[int, Line] = {}
        self._sock: socket.socket | None = None
        # A line that is not all here.
        self._rest = b""
        # An execution may end in the turn in which this process hears what was said before.
        contacts.catch_up = self._catch_up
        # What ends the present conversation.
        self._over: asyncio.Future[None] | None = None

    async def run(self, session_id: str, listener: socket.socket) -> NoReturn:
        """Until it is cancelled: then the session's connections end."""
        while True:
            # It has ended, or is no egress process.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                await self._hand(session_id, listener)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _hand(self, session_id: str, listener: socket.socket) -> None:
        """Until the egress process ends. Raises OSError, ValueError, KeyError and TypeError."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.sock_connect(sock, self._path)
            greeting = json.dumps({"session": session_id}).encode("ascii") + b"\n"
            socket.send_fds(sock, [greeting], [listener.fileno()])
            self._sock, self._over, self._rest = sock, loop.create_future(), b""
            loop.add_reader(sock, self._catch_up)
            try:
                await self._over
            finally:
                loop.remove_reader(sock)
                self._sock = None
                for line in self._lines.values():
                    line.end(time.time_ns())
                self._lines.clear()

    def _catch_up(self) -> None:
        """Hears all that was said."""
        try:
            while self._sock is not None and self._over is not None and not self._over.done():
                self._take(self._sock.recv(READ_BYTES))
        except BlockingIOError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            if self._over is not None:
                self._over.set_exception(error)

    def _take(self, data: bytes) -> None:
        """Raises OSError, ValueError, KeyError and TypeError."""
        if not data:
            raise ConnectionResetError
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(line)
        if len(self._rest) > MOST_LINE:
            raise ValueError("the line is too long")

    def _hear(self, report: bytes) -> None:
        """Raises ValueError, KeyError and TypeError."""
        said = json.loads(report)
        number, now = int(said["id"]), time.time_ns()
        line = self._lines.pop(number, None) or Line(self._contacts)
        if "carried" in said:
            sent, received = said["carried"]
            line.sent(int(sent))
            line.received(int(received))
            line.end(now)
            return
        line.hear(report, now)
        if not said.get("reason"):
            if len(self._lines) >= MOST_LINES:
                raise ValueError("there are too many connections")
            self._lines[number] = line
