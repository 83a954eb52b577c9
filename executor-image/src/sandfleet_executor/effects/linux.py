"""Calls of the C library that Python has no name for."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

RENAME_NOREPLACE = 1
# __NR_setgroups; glibc's setgroups() would change all threads of the process.
_SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159}


def _fail(code: int, name: bytes | None = None) -> OSError:
    return OSError(code, os.strerror(code), name)


def rename_noreplace(source: bytes, source_fd: int, target: bytes, target_fd: int) -> None:
    """renameat2(2) with RENAME_NOREPLACE. Raises OSError: EEXIST, and ENOSYS or EINVAL where it is not to be had."""
    if _libc.renameat2(source_fd, source, target_fd, target, RENAME_NOREPLACE) != 0:
        raise _fail(ctypes.get_errno(), target)


# SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
_WRITE_AND_WAIT = 7


def write_back(fd: int) -> None:
    """Returns when the changed pages of a file are clean; what is stored through a mapping then changes its time again.

    sync_file_range(2) over the whole file: unlike fsync it asks the disk for nothing. Raises OSError.
    """
    if _libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_WRITE_AND_WAIT)) != 0:
        raise _fail(ctypes.get_errno())


def become_file_user(user_id: int) -> None:
    """Gives the calling thread, and no other, the rights of a user and group id on files. Needs root.

    Raises OSError when it did not work: the thread must do nothing then.
    """
    number = _SYS_SETGROUPS[os.uname().machine]
    if _libc.syscall(ctypes.c_long(number), ctypes.c_size_t(0), None) != 0:
        raise _fail(ctypes.get_errno())
    # These two report no errors; asking for an impossible id tells the one in force.
    _libc.setfsgid(ctypes.c_uint(user_id))
    _libc.setfsuid(ctypes.c_uint(user_id))
    if _libc.setfsgid(ctypes.c_int(-1)) != user_id or _libc.setfsuid(ctypes.c_int(-1)) != user_id:
        raise PermissionError(f"cannot take the file rights of user {user_id}: the kernel refused")


def inotify_init() -> int:
    """A new inotify descriptor, non-blocking. Raises OSError."""
    fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise _fail(ctypes.get_errno())
    return int(fd)


def inotify_add_watch(fd: int, path: bytes, mask: int) -> int:
    """The watch's number; the same one for the same directory. Raises OSError."""
    watch = _libc.inotify_add_watch(fd, path, ctypes.c_uint32(mask))
    if watch < 0:
        raise _fail(ctypes.get_errno(), path)
    return int(watch)


def inotify_rm_watch(fd: int, watch: int) -> None:
    """Removing a watch that is gone is no error."""
    _libc.inotify_rm_watch(fd, watch)
