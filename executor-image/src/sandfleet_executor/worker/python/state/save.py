"""Saves the variables of a context in forks of it, so that pickling cannot harm the context.

The context forks a watcher, which runs none of the user's code. The watcher forks a writer, which pickles one variable
after the other into a socket to the executor. If the writer hangs or crashes, the watcher starts another one that
leaves that variable out. Events on the socket:
  begun {threads} · saved {name,type,size}, after the data · unsaved {name,type,reason,message}
  undo: drop the data since the last event "saved" · restart: drop all so far · end {memo}
"""

import contextlib
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from ...base import packets
from . import pickles, unpicklable
from .pickles import MODULE, PLACE, PLACE_NAME, RANDOM, RANDOM_NAME, VALUE

NICENESS = 10
# The most writers, one after the other: each but the first follows one that was killed at a variable.
ATTEMPTS = 5
# How often the watcher checks whether the writer is still at the same variable, in seconds.
LOOK_SECONDS = 0.05
# The memory that pickling may take beside that of the context, in bytes: never more, never less.
MAX_MEMORY, MIN_MEMORY = 512 << 20, 64 << 20
MAX_TYPE = 128
MAX_NAME = 256
MAX_SUBMODULES = 256
# The writer's progress: number of the item, entries of the memo, since when (seconds of the monotonic clock).
PROGRESS = struct.Struct("<qqd")


class Bounds(NamedTuple):
    """Limits in bytes and seconds; `variables` is a number."""

    total: int
    variable: int
    variables: int
    seconds: float
    variable_seconds: float
    memory: int


class Failed(NamedTuple):
    """Stands for a value that could not be read."""

    why: str


class Item(NamedTuple):
    name: str
    kind: str
    value: object
    type: str


class Job(NamedTuple):
    """What to save, within which bounds, and threads that make the fork unsafe."""

    namespace: dict[str, Any]
    items: list[Item]
    bounds: Bounds
    threads: list[str]


class Outgoing:
    """Sends events and the bytes of records; the sink of a pickles.Writer."""

    def __init__(self, sock: socket.socket, room: int) -> None:
        self._sock = sock
        self._room = room
        self._pid = os.getpid()
        self._pending = bytearray()
        self.written = 0

    def write(self, data: Any) -> None:
        """Raises NoRoomError."""
        if self.written + len(data) > self._room:
            raise pickles.NoRoomError
        self.written += len(data)
        view = memoryview(data)
        piece = packets.MAX_PACKET - packets.PREFIX.size
        if self._pending or len(view) < piece // 2:
            free = piece - len(self._pending)
            self._pending += view[:free]
            view = view[free:]
        if len(self._pending) >= piece:
            self.flush()
        while len(view) >= piece:
            self._send(packets.encode(None, bytes(view[:piece])))
            view = view[piece:]
        self._pending += view

    def flush(self) -> None:
        if self._pending:
            pending, self._pending = bytes(self._pending), bytearray()
            self._send(packets.encode(None, pending))

    def report(self, event: str, **fields: Any) -> None:
        self.flush()
        self._send(packets.encode({"event": event, **fields}))

    def undo(self, written: int) -> None:
        """Goes back to the point at which `written` bytes were written."""
        self._pending.clear()
        self.written = written
        self.report("undo")

    def _send(self, data: bytes) -> None:
        if os.getpid() != self._pid:
            # In a child that pickling has forked.
            os._exit(1)
        self._sock.sendall(data)


def start(sock: socket.socket, job: Job) -> int:
    """Forks the watcher, which takes the socket; its pid. Raises OSError."""
    pid = os.fork()
    if pid == 0:
        try:
            _become_background()
            watch(sock, job)
        finally:
            os._exit(0)
    sock.close()
    return pid


def _become_background() -> None:
    os.setpgid(0, 0)
    for ignored in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.nice(NICENESS)


def watch(sock: socket.socket, job: Job) -> None:
    """Runs writers until all is saved or the time is over: pickling may hang or crash."""
    out = Outgoing(sock, job.bounds.total)
    out.report("begun", threads=job.threads)
    deadline = time.monotonic() + job.bounds.seconds
    left_out: dict[int, tuple[str, str]] = {}
    for attempt in range(ATTEMPTS):
        end = _one_writer(sock, job, left_out, deadline)
        if end.why is None:
            return
        left_out[end.at] = end.why
        if time.monotonic() >= deadline or attempt == ATTEMPTS - 1:
            break
        out.report("restart")
    # What the last writer has saved before its end stays.
    out.report("undo")
    _report_unsaved(out, job.items[end.at], *left_out[end.at])
    for item in job.items[end.at + 1 :]:
        _report_unsaved(out, item, "NotReached", "saving ended before this variable")
    out.report("end", memo=end.memo)


class WriterEnd(NamedTuple):
    """At which item a writer ended, and why it failed: (reason, message), or None if it has saved all."""

    at: int
    memo: int
    why: tuple[str, str] | None


def _one_writer(sock: socket.socket, job: Job, left_out: Mapping[int, tuple[str, str]], deadline: float) -> WriterEnd:
    progress = mmap.mmap(-1, mmap.PAGESIZE)
    progress[: PROGRESS.size] = PROGRESS.pack(0, 0, time.monotonic())
    alive, ending = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive)
        _become_writer(sock, job, left_out, deadline, progress)
    os.close(ending)
    try:
        late = _wait(alive, sock, progress, job.bounds, deadline)
    finally:
        os.close(alive)
    at, memo, _ = PROGRESS.unpack_from(progress)
    if late is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    at = min(max(at, 0), max(len(job.items) - 1, 0))
    if late is None and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return WriterEnd(at, memo, None)
    if late == "":
        # The executor has gone.
        os._exit(0)
    if late is not None:
        return WriterEnd(at, memo, ("TooSlow", late))
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
    return WriterEnd(at, memo, ("Crashed", f"pickling it ended the process that saves the variables ({how})"))


def _wait(alive: int, sock: socket.socket, progress: mmap.mmap, bounds: Bounds, deadline: float) -> str | None:
    """None if the writer has ended; else why it must be killed, "" if the executor has gone."""
    poller = select.poll()
    poller.register(alive, select.POLLIN)
    poller.register(sock, 0)
    while True:
        ready = dict(poller.poll(LOOK_SECONDS * 1000))
        if alive in ready:
            return None
        if sock.fileno() in ready:
            return ""
        now = time.monotonic()
        if now >= deadline:
            return f"it was not saved within the {bounds.seconds:g} s for all variables"
        *_, since = PROGRESS.unpack_from(progress)
        if now - since >= bounds.variable_seconds:
            return f"it was not saved within {bounds.variable_seconds:g} s"


def _become_writer(
    sock: socket.socket, job: Job, left_out: Mapping[int, tuple[str, str]], deadline: float, progress: mmap.mmap
) -> NoReturn:
    code = 1
    try:
        _limit_memory(job.bounds.memory)
        out = Outgoing(sock, job.bounds.total)
        memo = write(out, job, left_out, lambda at, memo: _record_progress(progress, at, memo, deadline))
        out.report("end", memo=memo)
        code = 0
    finally:
        os._exit(code)


def _record_progress(progress: mmap.mmap, at: int, memo: int, deadline: float) -> bool:
    """Records the writer's progress; False if the time is over."""
    now = time.monotonic()
    progress[: PROGRESS.size] = PROGRESS.pack(at, memo, now)
    return now < deadline


def _limit_memory(memory: int) -> None:
    """Limits this process: the guard counts its memory as the context's, and would kill both."""
    pages = [int(word) for word in open("/proc/self/statm", "rb").read().split()[:2]]  # noqa: SIM115, PTH123 - the process ends
    size, resident = (count * mmap.PAGESIZE for count in pages)
    allowed = size + max(MIN_MEMORY, min(MAX_MEMORY, (memory - resident) // 2))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or allowed < soft:
        resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))
    # Pickling needs no process.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def write(out: Outgoing, job: Job, left_out: Mapping[int, tuple[str, str]], reached: Callable[[int, int], bool]) -> int:
    """Saves each item or reports why not; the most entries that the memo had."""
    writer = pickles.Writer(job.namespace, out, job.bounds.variable)
    for number, item in enumerate(job.items):
        if not reached(number, writer.max_memo):
            _report_unsaved(
                out, item, "NotReached", f"the {job.bounds.seconds:g} s for all variables were over before it"
            )
        elif number in left_out:
            _report_unsaved(out, item, *left_out[number])
        elif number >= job.bounds.variables:
            _report_unsaved(out, item, "TooMany", f"at most {job.bounds.variables} variables are saved")
        elif type(item.value) is Failed:
            _report_unsaved(out, item, "NotPicklable", item.value.why)
        elif reason := unpicklable.why_unpicklable(item.value, job.namespace):
            _report_unsaved(out, item, "NotPicklable", reason)
        else:
            _write_one(out, writer, item, job.bounds)
    return writer.max_memo


def _write_one(out: Outgoing, writer: pickles.Writer, item: Item, bounds: Bounds) -> None:
    before = out.written
    try:
        size = writer.record(item.name, item.kind, item.value)
    except pickles.TooLargeError:
        why = ("TooLarge", f"it takes more than {bounds.variable} bytes, the limit of one variable")
    except pickles.NoRoomError:
        why = ("NoRoom", f"with it the state would take more than {bounds.total} bytes, the limit of a state")
    except MemoryError:
        why = ("OutOfMemory", "pickling it took more memory than is left for saving")
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)
    except BaseException as error:  # noqa: BLE001 - pickling runs the user's code, which may raise anything
        why = ("NotPicklable", pickles.describe(error))
    else:
        out.report("saved", name=item.name[:MAX_NAME], kind=item.kind, type=item.type, size=size)
        return
    out.undo(before)
    _report_unsaved(out, item, *why)


def _report_unsaved(out: Outgoing, item: Item, reason: str, message: str) -> None:
    out.report("unsaved", name=item.name[:MAX_NAME], kind=item.kind, type=item.type, reason=reason, message=message)


def items(
    namespace: Mapping[str, Any], own: Mapping[str, Any], environment: Mapping[str, str], path: list[str]
) -> Iterator[Item]:
    """What to save: directory and environment, modules, variables, and the state of random numbers, in this order.

    `own`: the namespace before any cell ran; `environment` and `path`: os.environ and sys.path then.
    """
    # This runs in the context itself: it must run no code of the variables.
    place = {
        "cwd": _cwd(),
        "environment": changes(environment, dict(os.environ)),
        "path": [entry for entry in sys.path if type(entry) is str and entry not in path],
    }
    yield Item(PLACE_NAME, PLACE, place, "")
    modules, values = [], []
    for name, value in list(namespace.items()):
        if (
            type(name) is not str
            or name.startswith("__")
            or unpicklable.is_history(name)
            or own.get(name, own) is value
        ):
            continue
        kind, module = _type_name(value), _importable(value)
        if module:
            modules.append(Item(name, MODULE, (module, _submodules(module)), kind))
        else:
            values.append(Item(name, VALUE, value, kind))
    yield from modules
    yield from values
    # Read here, because a fork seeds random numbers anew.
    try:
        state: object = _random_state()
    except Exception as error:  # noqa: BLE001 - code may have replaced the functions
        state = Failed(pickles.describe(error))
    yield Item(RANDOM_NAME, RANDOM, state, "")


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"random": random.getstate()}
    if "numpy.random" in sys.modules:
        state["numpy"] = sys.modules["numpy.random"].get_state()
    return state


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that were set since; None for those removed. Pure."""
    changed: dict[str, str | None] = {name: value for name, value in now.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in now}


def _cwd() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - a text is wanted
    except OSError:
        return None


def _importable(value: object) -> str:
    """The name under which an import finds this module again; empty for other values."""
    if not issubclass(type(value), ModuleType):
        return ""
    name = ModuleType.__getattribute__(value, "__dict__").get("__name__")
    return name if type(name) is str and sys.modules.get(name) is value else ""


def _submodules(module: str) -> list[str]:
    """The imported submodules of a package: `import a.b` binds only a."""
    return [name for name in sys.modules if name.startswith(f"{module}.")][:MAX_SUBMODULES]


def _type_name(value: object) -> str:
    kind = type(value)
    module, name = (type.__dict__[part].__get__(kind) for part in ("__module__", "__qualname__"))
    full = name if type(module) is not str or module in ("builtins", "__main__") else f"{module}.{name}"
    return full[:MAX_TYPE].encode("utf-8", "replace").decode()
