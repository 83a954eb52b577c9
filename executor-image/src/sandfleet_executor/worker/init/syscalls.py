"""The filter of system calls for a session: seccomp, as a program of classic BPF that PID 1 installs for itself.

All processes of the session inherit it. It refuses what no program needs for work in a sandbox, and what makes the
kernel's largest attack surface. A refused call answers as a kernel without that call, or without the right for it,
would: programs have a fallback for that. gVisor has a kernel of its own and no need of the filter.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping

PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
ALLOW = 0x7FFF0000
ERRNO = 0x00050000

# Opcodes of classic BPF: load a word, compare, test bits, return.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# Offsets in struct seccomp_data. Of an argument the lower half: all flags that are looked at lie there.
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16

# machine → the kernel's name for its calls (AUDIT_ARCH_…). Calls of another one (32-bit programs) are refused.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# From here on the numbers of x86_64 are those of x32.
X32 = 0x40000000

# name → (number on x86_64, number on aarch64).
NUMBERS: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fallocate": (285, 47),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
# Programs take these for a kernel that has not the call. The flags of clone3 lie in memory, where no filter reads:
# the C library goes on with clone.
UNKNOWN = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup", "memfd_secret", "userfaultfd")
# PID 1 has the user of the code, who may set how much of the machine each of its processes gets. These name a process,
# and those below name one after a kind: the last kind is all processes of a user.
OF_A_PROCESS = ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
OF_A_KIND = {"ioprio_set": 3, "setpriority": 2}
SPAWNER = 1
# Calls of which only some are refused.
LOOKED_AT = ("clone", "fallocate", "socket", "unshare", *OF_A_PROCESS, *OF_A_KIND)
FORBIDDEN = tuple(name for name in NUMBERS if name not in {*UNKNOWN, *LOOKED_AT})

CLONE_NEWUSER = 0x10000000
# fallocate that frees blocks (FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE). All else takes disk or memory at once,
# before anything is measured; the C library writes zeros instead.
FREES = 0x02 | 0x08
# Families of sockets. Others, as AF_VSOCK and AF_ALG, know no network namespace.
UNIX, IPV4, IPV6, NETLINK = 1, 2, 10, 16
# NETLINK_ROUTE and NETLINK_SOCK_DIAG. Others tell of the whole machine (NETLINK_KOBJECT_UEVENT), or need its rights.
PROTOCOLS = (0, 4)

Instruction = tuple[int, int, int, int]


def refuse(number: int) -> Instruction:
    return (RETURN, 0, 0, ERRNO | number)


def program(machine: str) -> bytes:
    """The filter's program for a machine; none where its calls are not known."""
    if machine not in ARCHITECTURES:
        return b""
    at = list(ARCHITECTURES).index(machine)
    found: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, ARCHITECTURES[machine]),
        refuse(errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, X32),
        refuse(errno.ENOSYS),
    ]
    for names, answer in ((UNKNOWN, errno.ENOSYS), (FORBIDDEN, errno.EPERM)):
        for name in names:
            found += when(NUMBERS[name][at], [refuse(answer)])
    for name, then in looked_at().items():
        found += when(NUMBERS[name][at], then)
    return packed([*found, allow])


allow: Instruction = (RETURN, 0, 0, ALLOW)
first: Instruction = (LOAD, 0, 0, ARGUMENT)
second: Instruction = (LOAD, 0, 0, ARGUMENT + 8)
third: Instruction = (LOAD, 0, 0, ARGUMENT + 16)


def looked_at() -> dict[str, list[Instruction]]:
    """The answers of LOOKED_AT, each by the arguments."""
    denied = refuse(errno.EPERM)
    found = {name: [first, (ANY_BIT, 0, 1, CLONE_NEWUSER), denied, allow] for name in ("clone", "unshare")}
    found["fallocate"] = [second, (ANY_BIT, 1, 0, FREES), refuse(errno.EOPNOTSUPP), allow]
    found |= {name: [first, (EQUAL, 0, 1, SPAWNER), denied, allow] for name in OF_A_PROCESS}
    for name, user in OF_A_KIND.items():
        found[name] = [first, (EQUAL, 2, 0, user), second, (EQUAL, 0, 1, SPAWNER), denied, allow]
    known = [part for family in (UNIX, IPV4, IPV6) for part in ((EQUAL, 0, 1, family), allow)]
    told = [part for protocol in PROTOCOLS for part in ((EQUAL, 0, 1, protocol), allow)]
    netlink = [(EQUAL, 0, len(told) + 2, NETLINK), third, *told, refuse(errno.EPROTONOSUPPORT)]
    found["socket"] = [first, *known, *netlink, refuse(errno.EAFNOSUPPORT)]
    return found


def when(number: int, then: list[Instruction]) -> list[Instruction]:
    """Instructions for one call; they end with an answer, and other calls jump over them."""
    return [(EQUAL, 0, len(then), number), *then]


def packed(instructions: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(machine: str = "") -> None:
    """Filters the calls of this process and of all that it starts. It cannot be undone. Raises OSError."""
    code = program(machine or os.uname().machine)
    if not code:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    given = _Program(len(code) // 8, code)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot install the filter of system calls: {os.strerror(number)}")
