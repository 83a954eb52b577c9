"""First program of a session namespace that root made: gives up root, then becomes the spawner.

Run as a script: enter.py UID PROGRAM [ARG…]. Outside, the processes have the host uid UID; inside they see themselves as uid 1000.
"""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_DUMPABLE = 4
INNER_ID = 1000


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - this script stays without imports it can do without
        file.write(text)


def main() -> None:
    uid = int(sys.argv[1])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    # After a change of uid, /proc/self belongs to root until this is set.
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    # Where the kernel has no user namespaces to give, the uid of its own is what remains; Describe says so.
    if libc.unshare(CLONE_NEWUSER) == 0:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{INNER_ID} {uid} 1")
        write("/proc/self/gid_map", f"{INNER_ID} {uid} 1")
    # The new namespace's capabilities end with exec, because the inner uid is not 0.
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
