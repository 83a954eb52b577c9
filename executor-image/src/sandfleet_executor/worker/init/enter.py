"""The first program of a session namespace that root made: gives up root, then becomes the spawner.

Run as a script: enter.py UID INNER INODES PROGRAM [ARG…]. INODES is the most files in /tmp, and in /dev/shm. On
the host the processes have the uid UID; inside they see themselves as uid INNER. It imports nothing of the worker.
"""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
MS_NOSUID, MS_NODEV, MS_REMOUNT = 2, 4, 32
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
# More than any kernel has.
CAPABILITIES = 64


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - few imports
        file.write(text)


def drop_bounding_set(libc: ctypes.CDLL) -> None:
    """No program that this process becomes or starts can have a capability."""
    for number in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def limit_files(libc: ctypes.CDLL, most: str) -> None:
    """Empty files take memory of the kernel alone, which the size of a file system in memory does not limit."""
    for path in (b"/tmp", b"/dev/shm"):
        if libc.mount(b"tmpfs", path, b"tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV, b"nr_inodes=" + most.encode()):
            sys.exit(f"cannot limit the files of {path.decode()}: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    uid, inner = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    limit_files(libc, sys.argv[3])
    os.setgroups([])
    drop_bounding_set(libc)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # After a change of uid, /proc/self belongs to root until this is set.
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    # Without user namespaces the sandbox's own uid is the only separation; Describe reports that.
    if libc.unshare(CLONE_NEWUSER) == 0:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{inner} {uid} 1")
        write("/proc/self/gid_map", f"{inner} {uid} 1")
        # A new user namespace begins with all of them.
        drop_bounding_set(libc)
    # The capabilities in the new namespace end with exec: the inner uid is not 0, or may not gain any (bwrap sets
    # no_new_privs), and none is in the bounding set.
    os.execv(sys.argv[4], sys.argv[4:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
