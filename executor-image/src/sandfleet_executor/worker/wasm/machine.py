"""One module in wasmtime: compiled once, and instantiated anew for each call, so that no call leaves a trace."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

import wasmtime
from wasmtime import TrapCode

from . import failures
from .folders import Opened
from .imports import Imports, check
from .manifest import Function, Manifest

MAGIC = b"\0asm\1\0\0\0"
MOST_TABLES, MOST_TABLE_ELEMENTS = 8, 100_000
STACK_BYTES = 512 << 10
# Address space behind a memory: an access that misses it by less is caught without a comparison.
GUARD_BYTES = 1 << 20
MESSAGE_LIMIT = 500
LIMITS = {
    TrapCode.OUT_OF_FUEL: ("Fuel", "it has used the fuel of a call"),
    TrapCode.STACK_OVERFLOW: ("Stack", "its calls are nested too deeply"),
    TrapCode.ALLOCATION_TOO_LARGE: ("Memory", "it asked for too much memory"),
}
# What wasmtime has switched on beside WebAssembly 2.0, and what would make a result differ between machines.
FEATURES = (
    "wasm_threads",
    "wasm_memory64",
    "wasm_multi_memory",
    "wasm_gc",
    "wasm_function_references",
    "wasm_exceptions",
    "wasm_stack_switching",
    "wasm_component_model",
    "wasm_relaxed_simd",
    "wasm_custom_page_sizes",
    "wasm_wide_arithmetic",
    "shared_memory",
    # Threads of the compiler, and memory that many instances would share.
    "parallel_compilation",
    "memory_may_move",
)
RANGES = {"i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63)}
NUMBERS = {*RANGES, "f32", "f64"}


class World(Protocol):
    """What is around a call."""

    def tool(self, name: str, arguments: bytes) -> tuple[bool, bytes]:
        """Whether a call of a tool has failed, and its answer."""

    def output(self, stream: int, data: bytes) -> int:
        """Takes what the module writes to its output (1) or its errors (2); the number of bytes."""


class Machine:
    """Raises SkillRefused for what is no module, or does not fit its manifest."""

    def __init__(self, module: bytes, manifest: Manifest) -> None:
        if not module.startswith(MAGIC):
            raise failures.SkillRefused("cannot use the module: it is no WebAssembly module", reason="Module")
        self._manifest = manifest
        self._engine = wasmtime.Engine(_config(manifest))
        try:
            self._module = wasmtime.Module(self._engine, module)
        except wasmtime.WasmtimeError as error:
            raise failures.SkillRefused(f"cannot use the module: {_said(error)}", reason="Module") from None
        check(self._module)
        exports = {each.name: each.type for each in self._module.exports}
        for function in manifest.functions:
            _check_export(function, exports.get(function.name))

    def call(self, function: Function, arguments: bytes, folders: Sequence[Opened], world: World) -> bytes:
        """The result as JSON. Raises SkillError; ValueError for arguments that are no numbers of WebAssembly."""
        store = self._store(_wasi(folders, world))
        imports = Imports(self._manifest, arguments, world.tool)
        linker = wasmtime.Linker(self._engine)
        imports.define(linker)
        try:
            exports = _started(linker, store, self._module)
            return _run(store, exports[function.name], function, arguments, imports)
        except wasmtime.ExitTrap as error:
            if error.code:
                message = f"cannot finish: it ended with exit code {error.code}"
                raise failures.SkillFailed(message, reason="Exit") from None
            return imports.output
        except wasmtime.Trap as error:
            raise _trapped(error) from None
        except wasmtime.WasmtimeError as error:
            raise failures.SkillFailed(f"cannot finish: {_cause(str(error))}", reason="Trap") from None

    def _store(self, wasi: wasmtime.WasiConfig) -> wasmtime.Store:
        store = wasmtime.Store(self._engine)
        store.set_limits(
            memory_size=self._manifest.memory_mb << 20,
            table_elements=MOST_TABLE_ELEMENTS,
            instances=1,
            tables=MOST_TABLES,
            memories=1,
        )
        if self._manifest.fuel:
            store.set_fuel(self._manifest.fuel)
        store.set_wasi(wasi)
        return store


def _started(linker: wasmtime.Linker, store: wasmtime.Store, module: wasmtime.Module) -> Any:
    """The exports of a new instance. Raises SkillRefused where there is no room for it."""
    try:
        exports = linker.instantiate(store, module).exports(store)
    except wasmtime.ExitTrap:
        raise
    except wasmtime.WasmtimeError as error:
        raise failures.SkillRefused(f"cannot start the module: {_said(error)}", reason="Module") from None
    if isinstance(initialize := exports.get("_initialize"), wasmtime.Func):
        initialize(store)
    return exports


def _run(store: wasmtime.Store, run: Any, function: Function, arguments: bytes, imports: Imports) -> bytes:
    if function.numbers:
        return json.dumps(run(store, *_numbers(function, run.type(store).params, arguments))).encode()
    if run(store):
        message = imports.output.decode("utf-8", "replace")[:MESSAGE_LIMIT]
        raise failures.SkillFailed(message, reason="Failed")
    return imports.output


def _config(manifest: Manifest) -> wasmtime.Config:
    config = wasmtime.Config()
    for feature in FEATURES:
        setattr(config, feature, False)
    config.max_wasm_stack = STACK_BYTES
    # Not the 4 GiB that are usual: contexts of Python have a limited address space.
    config.memory_reservation = manifest.memory_mb << 20
    config.memory_guard_size = GUARD_BYTES
    config.consume_fuel = bool(manifest.fuel)
    return config


def _wasi(folders: Sequence[Opened], world: World) -> wasmtime.WasiConfig:
    """Without arguments, variables and input."""
    wasi = wasmtime.WasiConfig()
    wasi.stdout_custom = lambda data: world.output(1, data)
    wasi.stderr_custom = lambda data: world.output(2, data)
    for folder in folders:
        wasi.preopen_dir(folder.place, folder.path, folder.may_write)
    return wasi


def _check_export(function: Function, kind: Any) -> None:
    if not isinstance(kind, wasmtime.FuncType):
        why = f"it exports no function {function.name}"
    else:
        takes, gives = [str(each) for each in kind.params], [str(each) for each in kind.results]
        if function.numbers:
            fits = {*takes, *gives} <= NUMBERS and len(takes) == len(function.parameters)
            why = "" if fits else f"{function.name} takes {', '.join(takes) or 'nothing'}, the manifest says otherwise"
        else:
            why = "" if (takes, gives) == ([], ["i32"]) else f"{function.name} has another type than (result i32)"
    if why:
        raise failures.SkillRefused(f"cannot use the module: {why}", reason="Export")


def _numbers(function: Function, kinds: Sequence[wasmtime.ValType], arguments: bytes) -> list[int | float]:
    given = json.loads(arguments)
    return [_number(name, str(kind), given[name]) for name, kind in zip(function.parameters, kinds, strict=True)]


def _number(name: str, kind: str, value: Any) -> int | float:
    if kind not in RANGES:
        if type(value) not in {int, float}:
            raise ValueError(f"{name} is no number")
        return float(value)
    least, end = RANGES[kind]
    if type(value) not in {int, bool} or not least <= value < end:
        raise ValueError(f"{name} is no whole number of {kind}")
    return int(value)


def _trapped(error: wasmtime.Trap) -> failures.SkillError:
    try:
        code = error.trap_code
    except ValueError:
        # A code that this version of the package does not know.
        code = None
    if code in LIMITS:
        reason, why = LIMITS[code]
        return failures.SkillLimit(f"cannot finish: {why}", reason=reason)
    return failures.SkillFailed(f"cannot finish: {_cause(str(error))}", reason="Trap")


def _cause(text: str) -> str:
    """The last line says why; the ones before say where."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return (lines[-1] if lines else "it trapped")[:MESSAGE_LIMIT]


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:MESSAGE_LIMIT]
