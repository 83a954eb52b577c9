"""Forks that are no children of this process: they become children of the nearest subreaper above it.

Their parent is a helper that lives for a moment. It is made as posix_spawn makes its helper (clone with CLONE_VM and
CLONE_VFORK): it shares this process's memory, runs while this process stands still, and then ends. So the memory is
copied once for each fork, and not for the helper.

The helper runs further down on the stack of this process, and so does each fork for the rest of its life: what is above
it there is never returned to.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from . import linux

CLONE_VM, CLONE_VFORK = 0x100, 0x4000
# Waits for children of any kind. The helper ends without SIGCHLD, which hides it from os.wait().
WAIT_ALL = 0x40000000
# How far below the caller the first place on the stack is, and how far the second is below the first, in bytes. A fork
# of a fork takes the place that its own parent does not stand on. Each is within the distance at which every kernel
# lets a stack grow.
BELOW, APART = 48 << 10, 56 << 10
ALIGNED = ~0x3F

_libc = ctypes.PyDLL(None, use_errno=True)
_Helper = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_Look = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
# Kept, because code may replace them. The hooks of Python are called in this process and in the forks: the helper is
# neither.
_clone, _fork, _look_at_libraries = _libc.clone, _libc.fork, _libc.dl_iterate_phdr
_clone.argtypes = [_Helper, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
_before, _after = ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Parent
_after_in_child = ctypes.pythonapi.PyOS_AfterFork_Child
for _hook in (_before, _after, _after_in_child):
    _hook.restype = None
_audit, _exit, _waitpid, _get_errno, _strerror = sys.audit, os._exit, os.waitpid, ctypes.get_errno, os.strerror
_places: list[int] = []


def fork_away(count: int, become: Callable[[int], NoReturn]) -> list[int]:
    """Forks `count` times; their pids, fewer when one could not be made. A fork calls `become` with its number.

    Call it with all signals blocked, from the main thread. Raises OSError when no process can be made, and what an
    audit hook raises.
    """
    pids: list[int] = []

    def help_out(_argument: int | None) -> int:
        while len(pids) < count:
            pid = _fork()
            if pid == 0:
                _be_fork(len(pids), become)
            if pid < 0:
                break
            pids.append(pid)
        return 0

    helper = _Helper(help_out)
    place = _place()
    _audit("os.fork")
    # The forks are for the process above, and not for this one.
    linux.stop_being_subreaper()
    try:
        _before()
        pid = _clone(helper, place, CLONE_VM | CLONE_VFORK, None)
        number = _get_errno()
        _after()
        if pid < 0:
            raise OSError(number, _strerror(number))
        _waitpid(pid, WAIT_ALL)
    finally:
        linux.become_subreaper()
    return pids


def _be_fork(number: int, become: Callable[[int], NoReturn]) -> NoReturn:
    try:
        _after_in_child()
        become(number)
    finally:
        # Nothing may return to the stack of the helper.
        _exit(1)


def _place() -> int:
    """The place on the stack for the helper: an address below everything that is in use."""
    here = _here()
    if not _places:
        _places.extend((here - BELOW & ALIGNED, here - BELOW - APART & ALIGNED))
    first, second = _places
    return second if second < here <= first else first


def _here() -> int:
    """An address on the stack, near its end: that of a local variable of the C library's."""
    found: list[int] = []

    def look(information: int | None, _size: int, _data: int | None) -> int:
        found.append(information or 0)
        return 1

    _look_at_libraries(_Look(look), None)
    return found[0]
