"""The terminal of one command, made inside the namespace, where its name is valid.

Only the executor gets its master.
"""

import fcntl
import os
import socket
import struct
import termios
from typing import Any

# Not in Python 3.11: erasing takes a whole character.
IUTF8 = 0o40000


class Terminal:
    """Held open while its command runs, so that it outlives a program that closes all its descriptors for a while."""

    def __init__(self, request: dict[str, Any], reply: int) -> None:
        """`request` {rows, cols}; the master goes through the socket `reply`. Raises OSError."""
        master, self.fd = os.openpty()
        try:
            self.path = os.ttyname(self.fd)
            set_up(self.fd, int(request["rows"]), int(request["cols"]))
            os.set_blocking(master, False)
            with socket.socket(fileno=os.dup(reply)) as line:
                socket.send_fds(line, [b"\0"], [master])
        except BaseException:  # No other code knows of the descriptor.
            os.close(self.fd)
            raise
        finally:
            os.close(master)

    def file_actions(self) -> list[tuple[int, ...] | tuple[int, int, str, int, int]]:
        """For posix_spawn: the first terminal that a new session opens becomes its controlling terminal."""
        return [
            (os.POSIX_SPAWN_OPEN, 0, self.path, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]

    def close(self) -> None:
        os.close(self.fd)


def set_up(fd: int, rows: int, cols: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    modes = termios.tcgetattr(fd)
    modes[0] |= IUTF8
    termios.tcsetattr(fd, termios.TCSANOW, modes)
