"""Modules of WebAssembly for tests, from text: what a skill could be made of without a compiler."""

import json

from wasmtime import wat2wasm

# Of WASI's first preview: name → what it takes. Each gives an error number, 0 for none.
WASI = {
    "args_sizes_get": "i32 i32",
    "environ_sizes_get": "i32 i32",
    "clock_time_get": "i32 i64 i32",
    "clock_res_get": "i32 i32",
    "random_get": "i32 i32",
    "poll_oneoff": "i32 i32 i32 i32",
    "fd_write": "i32 i32 i32 i32",
    "fd_read": "i32 i32 i32 i32",
    "path_open": "i32 i32 i32 i32 i32 i64 i64 i32 i32",
    "path_create_directory": "i32 i32 i32",
    "path_unlink_file": "i32 i32 i32",
    "path_rename": "i32 i32 i32 i32 i32 i32",
    "path_filestat_set_times": "i32 i32 i32 i32 i64 i64 i32",
    "path_symlink": "i32 i32 i32 i32 i32",
    "path_link": "i32 i32 i32 i32 i32 i32 i32",
    "sock_accept": "i32 i32 i32",
    "sock_recv": "i32 i32 i32 i32 i32 i32",
    "sock_send": "i32 i32 i32 i32 i32",
    "sock_shutdown": "i32 i32",
}
OWN = """
(import "sandfleet" "size" (func $size (result i32)))
(import "sandfleet" "read" (func $read (param i32)))
(import "sandfleet" "write" (func $write (param i32 i32)))
(import "sandfleet" "call_tool" (func $call_tool (param i32 i32 i32 i32) (result i32)))
"""
# Where things stand in the memory: a path, another one, what is read, and numbers that WASI gives.
PATH, OTHER, DATA, GIVEN = 64, 640, 1280, 32
READ, WRITE = 2, 64


def module(text, *, uses=(), pages=4, data=()):
    """A module that imports these functions of WASI, all of `sandfleet`, and has this text; `data`: address → text."""
    imports = "".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param {WASI[name]}) (result i32)))\n'
        for name in uses
    )
    segments = "".join(f'(data (i32.const {place}) "{escaped(what)}")\n' for place, what in dict(data).items())
    return bytes(wat2wasm(f'(module {imports}{OWN}(memory (export "memory") {pages})\n{segments}{text})'))


def escaped(text):
    return "".join(f"\\{byte:02x}" for byte in text.encode())


def number(body, *, name="f", names=""):
    """A function that gives a number; `names` are its local variables."""
    return f'(func (export "{name}") (result i32) {names} {body})'


def opening(path, *, folder="(i32.const 3)", flags=0, rights=READ, follow=True):
    """What opens a path: the error number. The descriptor is at GIVEN then. `follow`: a link at its end."""
    return (
        f"(call $path_open {folder} (i32.const {int(follow)}) (i32.const {PATH}) (i32.const {len(path.encode())})"
        f" (i32.const {flags}) (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const {GIVEN}))"
    )


def reader(path):
    """`opened` gives the error number of opening the path, and `content` what is read, which has to be JSON."""
    fetch = f"""
    (func (export "content") (result i32)
      (if {opening(path)} (then (return (i32.const 1))))
      (i32.store (i32.const 0) (i32.const {DATA})) (i32.store (i32.const 4) (i32.const 512))
      (if (call $fd_read (i32.load (i32.const {GIVEN})) (i32.const 0) (i32.const 1) (i32.const 8))
        (then (return (i32.const 1))))
      (call $write (i32.const {DATA}) (i32.load (i32.const 8)))
      (i32.const 0))"""
    return module(number(opening(path), name="opened") + fetch, uses=("path_open", "fd_read"), data={PATH: path})


READER = [{"name": "opened", "numbers": True}, {"name": "content"}]
# Of what `wasm_calls` plants.
DATA_FOLDER = [{"path": "data", "mode": "read"}]
OUT_FOLDER = [{"path": "out", "mode": "write"}]
# f, a number.
NUMBER = [{"name": "f", "numbers": True}]
# f, JSON.
VALUE = [{"name": "f"}]


def manifest(functions, **granted):
    return json.dumps({"functions": functions, **granted})


def sweep(action):
    """How many of the descriptors 0 to 255, but for 1 and 2, an action does not refuse."""
    return number(
        f"""(loop $next
          (if (i32.and (i32.ne (local.get $fd) (i32.const 1)) (i32.ne (local.get $fd) (i32.const 2)))
            (then (if (i32.eqz {action}) (then (local.set $found (i32.add (local.get $found) (i32.const 1)))))))
          (br_if $next (i32.lt_u (local.tee $fd (i32.add (local.get $fd) (i32.const 1))) (i32.const 256))))
        (local.get $found)""",
        names="(local $fd i32) (local $found i32)",
    )
