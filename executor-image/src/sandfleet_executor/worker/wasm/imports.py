"""What a module finds: WASI as far as the manifest grants it, and the functions of `sandfleet`.

size () -> i32             bytes of the input: the arguments of the function, or a tool's answer
read (i32)                 copies the input to this address
write (i32, i32)           the output of the function: address and bytes
call_tool (i32, i32, i32, i32) -> i32
                           name and arguments, each as address and bytes; 0: the input is now the result, 1: it is the
                           message of a failure
"""

import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import wasmtime
from wasmtime import FuncType, ValType

from . import failures
from .manifest import Manifest

OWN, WASI = "sandfleet", "wasi_snapshot_preview1"
# Of arguments, of a result, and of the arguments of a tool, in bytes.
MOST_BYTES = 16 << 20
MOST_TOOL_CALLS = 1000
PERMITTED = 0
# WASI's errno: the right is missing.
NOT_CAPABLE = 76
# Each with what it takes: i is a number of 32 bits, l one of 64.
CLOCK = {"clock_time_get": "ili", "clock_res_get": "ii", "poll_oneoff": "iiii"}
# Sockets come from nowhere. Links could lead code that follows them out of the folder.
NEVER = {
    "sock_accept": "iii",
    "sock_recv": "iiiiii",
    "sock_send": "iiiii",
    "sock_shutdown": "ii",
    "path_symlink": "iiiii",
    "path_link": "iiiiiii",
}
RANDOM = "random_get"
# What a module may import at all. WASI's first preview is closed: nothing comes to it any more.
KNOWN = {
    *("args_get", "args_sizes_get", "environ_get", "environ_sizes_get", "proc_exit", "proc_raise", "sched_yield"),
    *("fd_advise", "fd_allocate", "fd_close", "fd_datasync", "fd_fdstat_get", "fd_fdstat_set_flags"),
    *("fd_fdstat_set_rights", "fd_filestat_get", "fd_filestat_set_size", "fd_filestat_set_times", "fd_pread"),
    *("fd_prestat_get", "fd_prestat_dir_name", "fd_pwrite", "fd_read", "fd_readdir", "fd_renumber", "fd_seek"),
    *("fd_sync", "fd_tell", "fd_write", "path_create_directory", "path_filestat_get", "path_filestat_set_times"),
    *("path_open", "path_readlink", "path_remove_directory", "path_rename", "path_unlink_file"),
    *(*CLOCK, *NEVER, RANDOM),
}
OWN_FUNCTIONS = {"size", "read", "write", "call_tool"}
_TYPES = {"i": ValType.i32, "l": ValType.i64}

CallTool = Callable[[str, bytes], tuple[bool, bytes]]


class HasImports(Protocol):
    """A module, as far as this matters here."""

    @property
    def imports(self) -> Iterable[Any]: ...


def check(module: HasImports) -> None:
    """Raises SkillRefused for a module that imports what is not there."""
    for each in module.imports:
        known = {OWN: OWN_FUNCTIONS, WASI: KNOWN}.get(each.module, set())
        if each.name not in known or not isinstance(each.type, FuncType):
            name = f"{each.module}.{each.name}"[:120]
            raise failures.SkillRefused(
                f"cannot use the module: it imports {name}, which is not there", reason="Import"
            )


class Imports:
    """Of one call of a function."""

    def __init__(self, manifest: Manifest, arguments: bytes, call_tool: CallTool) -> None:
        self.output = b"null"
        self._manifest = manifest
        self._input = arguments
        self._call_tool = call_tool
        self._calls = itertools.count(1)
        # The same numbers in each call: a function of its arguments alone.
        self._random = random.Random(0)  # noqa: S311 - real ones are granted by the manifest

    def define(self, linker: wasmtime.Linker) -> None:
        """Defines them all for a module."""
        linker.define_wasi()
        linker.allow_shadowing = True
        if not self._manifest.clock:
            for name, parameters in CLOCK.items():
                _define(linker, WASI, name, (parameters, "i"), self._no_clock)
        for name, parameters in NEVER.items():
            _define(linker, WASI, name, (parameters, "i"), lambda *_: NOT_CAPABLE)
        if not self._manifest.random:
            _define(linker, WASI, RANDOM, ("ii", "i"), self._numbers)
        _define(linker, OWN, "size", ("", "i"), lambda _: len(self._input))
        _define(linker, OWN, "read", ("i", ""), self._read)
        _define(linker, OWN, "write", ("ii", ""), self._write)
        _define(linker, OWN, "call_tool", ("iiii", "i"), self._tool)

    def _no_clock(self, *_: object) -> int:
        raise failures.SkillDenied("cannot read the clock or wait: the manifest grants no clock", reason="Clock")

    def _numbers(self, caller: wasmtime.Caller, address: int, size: int) -> int:
        memory, start = _place(caller, address, size)
        end = start + (size & _WORD)
        for place in range(start, end, _PIECE):
            memory.write(caller, bytearray(self._random.randbytes(min(_PIECE, end - place))), place)
        return PERMITTED

    def _read(self, caller: wasmtime.Caller, address: int) -> None:
        memory, start = _place(caller, address, len(self._input))
        memory.write(caller, bytearray(self._input), start)

    def _write(self, caller: wasmtime.Caller, address: int, size: int) -> None:
        self.output = _bytes(caller, address, size, "Output")

    def _tool(self, caller: wasmtime.Caller, name: int, name_size: int, arguments: int, arguments_size: int) -> int:
        if next(self._calls) > MOST_TOOL_CALLS:
            why = f"it has called {MOST_TOOL_CALLS} tools in one call"
            raise failures.SkillLimit(f"cannot call a tool: {why}", reason="ToolCalls")
        tool = _bytes(caller, name, name_size, "Input").decode("utf-8", "replace")
        failed, self._input = self._call_tool(tool, _bytes(caller, arguments, arguments_size, "Input"))
        return int(failed)


def _define(
    linker: wasmtime.Linker, module: str, name: str, kind: tuple[str, str], function: Callable[..., Any]
) -> None:
    takes, gives = ([_TYPES[each]() for each in letters] for letters in kind)
    linker.define_func(module, name, FuncType(takes, gives), function, access_caller=True)


_WORD, _PIECE = 0xFFFF_FFFF, 1 << 20


def _place(caller: wasmtime.Caller, address: int, size: int) -> tuple[wasmtime.Memory, int]:
    """The module's memory, and an address in it behind which there are so many bytes."""
    # Numbers of 32 bits come with a sign.
    memory, start, count = caller.get("memory"), address & _WORD, size & _WORD
    if not isinstance(memory, wasmtime.Memory):
        raise failures.SkillFailed("cannot go on: the module exports no memory", reason="Address")
    if start + count > memory.data_len(caller):
        raise failures.SkillFailed("cannot go on: the module has named memory that it has not", reason="Address")
    return memory, start


def _bytes(caller: wasmtime.Caller, address: int, size: int, reason: str) -> bytes:
    memory, start = _place(caller, address, size)
    if size & _WORD > MOST_BYTES:
        raise failures.SkillLimit(f"cannot take more than {MOST_BYTES >> 20} MiB", reason=reason)
    return bytes(memory.read(caller, start, start + (size & _WORD)))
