"""A program: enters a user namespace that has the users 0 to 65535 of this one, then becomes another program, its root.

Run as a script: users.py PROGRAM [ARG…]. It needs the capabilities setgid and setuid. The worker is not imported.
"""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
MAP = "0 0 65536"


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - few imports
        file.write(text)


def map_users(pid: int) -> None:
    """Says who is who in the namespace that this process has entered; its child, which stayed outside, may do so."""
    for name in ("uid_map", "gid_map"):
        write(f"/proc/{pid}/{name}", MAP)


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    entered, enter = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(enter)
        # Without a byte the other process has ended.
        if os.read(entered, 1):
            map_users(os.getppid())
        os._exit(0)
    if libc.unshare(CLONE_NEWUSER):
        sys.exit(f"cannot enter a user namespace: {os.strerror(ctypes.get_errno())}")
    os.write(enter, b"x")
    os.close(enter)
    os.close(entered)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit("cannot give the user namespace its users")
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
