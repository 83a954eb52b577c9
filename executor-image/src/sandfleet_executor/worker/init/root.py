"""A program: mounts a foreign root with a layer in memory over it, then becomes another program, which sees it.

Run as a script: root.py LOWER FOLDER BYTES OWNER PLACES PROGRAM [ARG…]. The root is at FOLDER/root, for this process
alone. PLACES are folders, separated by colons, that are made where they are missing, or where a link stands in their
place. Started by root, each file of LOWER is shown as OWNER's; otherwise all are this user's already. The worker is not
imported.
"""

import ctypes
import os
import signal
import stat
import struct
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 16384, 1 << 18
# System calls without a function in the C library of Debian 12; the numbers are the same on all machines.
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, AT_EMPTY_PATH, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 1, 0x1000, 4, 0x100000
AT_FDCWD = -100
# Files and folders that a session may make or change, for each MiB of the layer.
INODES_PER_MIB = 128


def fail(doing: str) -> None:
    sys.exit(f"cannot {doing}: {os.strerror(ctypes.get_errno())}")


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - few imports
        file.write(text)


def separate(libc: ctypes.CDLL, *, is_root: bool) -> None:
    """Leaves the mounts of the machine; without root in a user namespace, in which this user is root."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS | (0 if is_root else CLONE_NEWUSER)):
        fail("leave the mounts of the machine")
    if not is_root:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"0 {uid} 1")
        write("/proc/self/gid_map", f"0 {gid} 1")
    if libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        fail("keep mounts to oneself")


def namespace_of(libc: ctypes.CDLL, owner: int) -> int:
    """A descriptor of a user namespace in which 0 is this owner."""
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mine)
        code = libc.unshare(CLONE_NEWUSER)
        os.write(theirs, b"x" if code == 0 else b"")
        os.close(theirs)
        signal.pause()
    os.close(theirs)
    try:
        if not os.read(mine, 1):
            fail("make a user namespace")
        for name in ("uid_map", "gid_map"):
            write(f"/proc/{pid}/{name}", f"0 {owner} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(mine)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def show_as(libc: ctypes.CDLL, owner: int, source: str, target: str) -> None:
    """Mounts a folder with root's files as the owner's (an idmapped mount, Linux 5.12)."""
    tree = libc.syscall(OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC)
    if tree < 0:
        fail(f"open {source}")
    attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace_of(libc, owner))
    if libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes)):
        fail(f"show the files of {source} as a user's (Linux 5.12 can)")
    if libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH):
        fail(f"mount {target}")
    os.close(tree)


def mount_layers(libc: ctypes.CDLL, lower: str, folder: str, size: int, owner: int) -> str:
    """The root's path."""
    inodes = max(size >> 20, 8) * INODES_PER_MIB
    options = f"size={size},nr_inodes={inodes},mode=0755"
    if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options.encode()):
        fail("make a file system in memory")
    root, upper, work, image = (f"{folder}/{name}" for name in ("root", "upper", "work", "image"))
    for path in (root, upper, work, image):
        os.mkdir(path, 0o755)  # noqa: PTH102 - few imports
    os.chown(upper, owner, owner)
    if owner:
        show_as(libc, owner, lower, image)
        lower = image
    layers = f"lowerdir={lower.replace(':', chr(92) + ':')},upperdir={upper},workdir={work}"
    if mapped():
        layers += ",userxattr"
    if libc.mount(b"overlay", root.encode(), b"overlay", MS_NOSUID | MS_NODEV, layers.encode()):
        fail(f"lay a layer over {lower} (Linux 5.11 can without root)")
    return root


def mapped() -> bool:
    """Whether this is a user namespace below the first one."""
    with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123 - few imports
        return file.read().split() != ["0", "0", "4294967295"]


def make_place(root: str, path: str, owner: int) -> None:
    """Makes a folder below the root, and those above it; links and files in their place go."""
    here = root
    for name in path.strip("/").split("/"):
        here = f"{here}/{name}"
        try:
            mode = os.lstat(here).st_mode
        except FileNotFoundError:
            mode = 0
        if mode and not stat.S_ISDIR(mode):
            os.unlink(here)  # noqa: PTH108 - few imports
            mode = 0
        if not mode:
            os.mkdir(here, 0o755)  # noqa: PTH102 - few imports
            os.chown(here, owner, owner)


def main() -> None:
    lower, folder, size, owner, places = sys.argv[1:6]
    libc = ctypes.CDLL(None, use_errno=True)
    is_root = os.geteuid() == 0
    separate(libc, is_root=is_root)
    root = mount_layers(libc, lower, folder, int(size), int(owner) if is_root else 0)
    for path in places.split(":"):
        make_place(root, path, int(owner) if is_root else 0)
    for name in ("hosts", "resolv.conf"):
        path = f"{root}/etc/{name}"
        if os.path.islink(path):  # noqa: PTH114 - few imports
            os.unlink(path)  # noqa: PTH108 - few imports
    os.execv(sys.argv[6], sys.argv[6:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
