"""A terminal of a command's own, made in the namespace: its name there is true. Its master goes to the executor, and is nobody else's."""

import fcntl
import os
import socket
import struct
import termios
from typing import Any

# Not in Python 3.11: erasing takes a whole character.
IUTF8 = 0o40000


class Terminal:
    """Held while its command runs: a program that closes all of it for a while does not end it."""

    def __init__(self, request: dict[str, Any], reply: int) -> None:
        """`request` {rows, cols}; the master goes through the socket `reply`. Raises OSError."""
        master, self.fd = os.openpty()
        try:
            self.path = os.ttyname(self.fd)
            set_up(self.fd, int(request["rows"]), int(request["cols"]))
            os.set_blocking(master, False)
            with socket.socket(fileno=os.dup(reply)) as line:
                socket.send_fds(line, [b"\0"], [master])
        except BaseException:  # Whatever it was: nobody else knows of the descriptor.
            os.close(self.fd)
            raise
        finally:
            os.close(master)

    def file_actions(self) -> list[tuple[int, ...] | tuple[int, int, str, int, int]]:
        """For posix_spawn: a new session's first terminal becomes its controlling one."""
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
