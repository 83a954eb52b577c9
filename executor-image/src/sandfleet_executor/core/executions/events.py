"""What happens in an execution, as values. The servicers turn them into the messages of the API."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

STDOUT = 1
STDERR = 2
# What an event takes in memory beside its data, and each part of one that has several: what is bounded by the sizes of
# events is bounded in truth also where each of them is tiny.
EVENT_BYTES = 96
PART_BYTES = 192


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be known before the output is read: one word in CamelCase, and one sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Started:
    execution_id: str
    context_id: str = ""
    cell_number: int = 0
    lost: tuple[str, ...] = ()
    # How many variables an automatic save has brought back, and of which cell.
    resumed: tuple[int, int] | None = None
    notices: tuple[Notice, ...] = ()
    # A command's process id in the session; 0 where none was started.
    pid: int | None = None

    @property
    def size(self) -> int:
        return 128 + sum(len(each.message) for each in self.notices)


@dataclass(frozen=True, slots=True)
class Output:
    stream: int
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data) + EVENT_BYTES


@dataclass(frozen=True, slots=True)
class Gap:
    stream: int
    dropped_bytes: int
    dropped_events: int = 0

    @property
    def size(self) -> int:
        return EVENT_BYTES


@dataclass(frozen=True, slots=True)
class Result:
    # (MIME type, raw bytes)
    parts: tuple[tuple[str, bytes], ...]
    is_main: bool
    dropped_bytes: int = 0
    # By which later results replace it; empty: none do.
    display_id: str = ""
    is_update: bool = False

    @property
    def size(self) -> int:
        return self.data_bytes + len(self.parts) * PART_BYTES + EVENT_BYTES

    @property
    def data_bytes(self) -> int:
        return sum(len(data) for _, data in self.parts)


@dataclass(frozen=True, slots=True)
class Cleared:
    """The code clears what the execution has shown; with `wait` when the next output comes."""

    wait: bool = False

    @property
    def size(self) -> int:
        return EVENT_BYTES


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The code waits for a line of input; `settled`: it waits for that no longer."""

    input_id: str
    prompt: str = ""
    password: bool = False
    settled: bool = False

    @property
    def size(self) -> int:
        return sys.getsizeof(self.prompt) + EVENT_BYTES


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    source: str


@dataclass(frozen=True, slots=True)
class Error:
    name: str
    value: str
    traceback: str
    frames: tuple[Frame, ...] = ()
    # Bytes of the value that are missing at its end.
    left_out: int = 0

    @property
    def size(self) -> int:
        texts = [self.name, self.value, self.traceback]
        for frame in self.frames:
            texts += [frame.file, frame.function, frame.source]
        # Of a text that is not all ASCII each character takes up to four bytes.
        return sum(map(sys.getsizeof, texts)) + len(self.frames) * EVENT_BYTES + EVENT_BYTES


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one execution: seconds and bytes."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    peak_processes: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    # None where the kernel does not tell.
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Files:
    created: tuple[bytes, ...] = ()
    modified: tuple[bytes, ...] = ()
    deleted: tuple[bytes, ...] = ()
    complete: bool = True
    omitted: int = 0


class Span(NamedTuple):
    """Times in nanoseconds since the epoch; ids are W3C Trace Context's bytes."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start: int
    end: int
    attributes: Mapping[str, str] = MappingProxyType({})
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rollback:
    """The result of a rollback, done or refused. `refused`: one word in CamelCase."""

    done: bool = False
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: str = ""
    message: str = ""
    cell_number: int = 0
    cells_undone: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    outcome: str
    blame: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    signal: str = ""
    usage: Usage = Usage()
    files: Files = Files()
    lost: tuple[str, ...] = ()
    leftover_processes_killed: int = 0
    spans: tuple[Span, ...] = ()
    rollback: Rollback | None = None
    # Why it could not be stored; empty where it was.
    not_stored: str = ""
    # Hosts that programs of the session were refused while it ran.
    denied_hosts: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as it was stored: the bytes of its message."""

    data: bytes
    # Bytes of output in it.
    output: int
    # Whether it is the execution's end.
    last: bool = False

    @property
    def size(self) -> int:
        return len(self.data) + EVENT_BYTES


Event = Started | Output | Gap | Result | Cleared | InputRequest | Error | Finished | Stored


def is_end(event: Event) -> bool:
    return isinstance(event, Finished) or (isinstance(event, Stored) and event.last)
