"""What calls answer: frozen values, free of gRPC and protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum

from sandfleet import _show
from sandfleet.egress import EgressInfo
from sandfleet.environment import Installation, Notice
from sandfleet.rollback import Rollback
from sandfleet.state_values import Autosaved

MimeParts = Mapping[str, "str | bytes"]


class Outcome(StrEnum):
    """How an execution ended; each one ends in exactly one of these."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    INTERRUPTED = "interrupted"
    DENIED = "denied"
    LOST = "lost"


class Blame(StrEnum):
    """Whose doing an outcome is."""

    CODE = "code"
    LIMIT = "limit"
    POLICY = "policy"
    PLATFORM = "platform"


class Isolation(StrEnum):
    """What keeps user code in, from the weakest to the strongest."""

    UNKNOWN = "unknown"
    NONE = "none"
    NAMESPACE = "namespace"
    GVISOR = "gvisor"


class Stream(StrEnum):
    """Which stream output came from."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one execution used: seconds and bytes, of this execution alone. Output is counted with what was dropped."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    peak_processes: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    # To storage; None where the kernel does not tell, as under gVisor.
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files below /workspace that an execution changed, relative to it. `complete` is false when there may be more."""

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    complete: bool = True
    omitted: int = 0

    def __bool__(self) -> bool:
        """Say whether anything changed."""
        return bool(self.created or self.modified or self.deleted or self.omitted)


@dataclass(frozen=True, slots=True)
class Gap:
    """Output that is missing: before character `position` of its stream's text, exactly `dropped_bytes`."""

    stream: Stream
    position: int
    dropped_bytes: int
    dropped_events: int = 0


@dataclass(frozen=True, slots=True)
class Logs:
    """What an execution wrote, as text; bytes that are no UTF-8 became U+FFFD. `gaps` say where something is missing."""

    stdout: str = ""
    stderr: str = ""
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback that lies in the user's own code; `file` is "<cell 3>" for a cell."""

    file: str
    line: int
    function: str
    source: str


@dataclass(frozen=True, slots=True)
class ExecutionError:
    """An exception of the code that was run: exact class name, str() of it, the traceback as Python prints it. A shell's is ExitCode or SyntaxError."""

    name: str
    value: str
    traceback: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Something shown: the value of the last expression (`is_main_result`), or what a cell displayed.

    `parts` maps MIME types to text (str) or, for binary types, raw bytes. `dropped_bytes` were too large to be sent.
    """

    parts: MimeParts
    is_main_result: bool = False
    dropped_bytes: int = 0

    def _text(self, mime: str) -> str | None:
        part = self.parts.get(mime)
        return part.decode("utf-8", "replace") if isinstance(part, bytes) else part

    def _bytes(self, mime: str) -> bytes | None:
        part = self.parts.get(mime)
        return part.encode() if isinstance(part, str) else part

    @property
    def text(self) -> str | None:
        """The plain text."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """The HTML."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """The Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        """The LaTeX."""
        return self._text("text/latex")

    @property
    def json(self) -> str | None:
        """The JSON, as text."""
        return self._text("application/json")

    @property
    def svg(self) -> str | None:
        """The SVG."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        """The PNG, as raw bytes."""
        return self._bytes("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """The JPEG, as raw bytes."""
        return self._bytes("image/jpeg")

    def __repr__(self) -> str:
        return f"Result({', '.join(self.parts)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Show it in Jupyter as the sandbox's own Jupyter would."""
        del include, exclude
        return _show.jupyter_bundle(self.parts)


# Called with each piece as it comes; what they return is awaited where it can be.
OnText = Callable[[str], object]
OnResult = Callable[[Result], object]


@dataclass(frozen=True, slots=True)
class Execution:
    """One cell that was run: exactly one outcome, whatever the code did.

    outcome, blame   how it ended and whose doing that is; blame is None for `ok`.
    reason, message  one CamelCase word for programs, one sentence for people and models.
    results          what was shown, in order; `text` is the plain text of the last expression's value.
    error            the code's exception, where there was one.
    lost, restored   what is gone of before: "variables" ("variables: a, b"), "processes", "tmp"; what came back, in words.
    notices          what is to be known of the sandbox, in a context's first cell: "PackagesNotInstalled".
    """

    execution_id: str
    outcome: Outcome
    blame: Blame | None = None
    reason: str = ""
    message: str = ""
    results: tuple[Result, ...] = ()
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    usage: Usage = field(default_factory=Usage)
    files: FileChanges = field(default_factory=FileChanges)
    lost: tuple[str, ...] = ()
    restored: str = ""
    context: str = ""
    cell_number: int = 0
    exit_code: int = 0
    signal: str = ""
    leftover_processes_killed: int = 0
    rollback: Rollback | None = None
    not_stored: str = ""
    notices: tuple[Notice, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end."""
        return self.outcome is Outcome.OK

    @property
    def text(self) -> str | None:
        """Plain text of the last expression's value; None where there is none."""
        return next((result.text for result in self.results if result.is_main_result), None)

    @property
    def context_restarted(self) -> bool:
        """Whether the variables of earlier cells are gone."""
        return "variables" in self.lost

    def __repr__(self) -> str:
        return _show.short("Execution", self.outcome, _show.summary(self))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Show output, results and error in Jupyter."""
        del include, exclude
        return _show.execution_bundle(self)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that ended. `exit_code` is 128+n when signal n ended it, 127 not found, 126 not executable.

    `stdout` and `stderr` are text (what is no UTF-8 became U+FFFD); `stdout_bytes` and `stderr_bytes` are exact.
    """

    execution_id: str
    outcome: Outcome
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    blame: Blame | None = None
    reason: str = ""
    message: str = ""
    signal: str = ""
    gaps: tuple[Gap, ...] = ()
    usage: Usage = field(default_factory=Usage)
    files: FileChanges = field(default_factory=FileChanges)
    lost: tuple[str, ...] = ()
    leftover_processes_killed: int = 0
    not_stored: str = ""
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    notices: tuple[Notice, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.outcome is Outcome.OK

    def __repr__(self) -> str:
        return _show.short("CommandResult", self.outcome, f"exit code {self.exit_code}", self.stdout or self.stderr)


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """A piece of a command's output, in order. `text` holds whole characters; `dropped_bytes` are missing before it."""

    stream: Stream
    text: str
    data: bytes
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A command that is running now."""

    execution_id: str
    argv: tuple[str, ...]
    started: datetime | None


@dataclass(frozen=True, slots=True)
class Context:
    """A live interpreter: `state` is idle, busy or ended, `generation` counts from 1, `copied_cell`'s state is kept (0: none)."""

    context_id: str
    language: str
    state: str
    generation: int
    executions: int
    copied_cell: int = 0
    autosaved: Autosaved | None = None


class FileType(Enum):
    """What is at a path."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What is at a path: absolute, size in bytes, permission bits. A name that is no UTF-8 has surrogate escapes."""

    path: str
    type: FileType
    size: int
    mode: int
    modified: datetime | None
    symlink_target: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type is FileType.DIRECTORY


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sandbox, in bytes, counts and seconds. 0 means: as the template says. They can only be lowered."""

    memory_bytes: int = 0
    tmp_bytes: int = 0
    processes: int = 0
    output_bytes: int = 0
    executions: int = 0
    max_timeout: float = 0.0
    default_timeout: float = 0.0
    open_files: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """What a sandbox is. The fields from `separations` on are known after `get_info()`, not in a list."""

    sandbox_id: str
    sandbox_uid: str = ""
    template: str = ""
    state: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    workspace_id: str = ""
    created: datetime | None = None
    lease_expires: datetime | None = None
    isolation: Isolation = Isolation.UNKNOWN
    restarts: int = 0
    last_restart_reason: str = ""
    pool: str = ""
    egress: EgressInfo = field(default_factory=EgressInfo)
    separations: tuple[str, ...] = ()
    kernel: str = ""
    languages: tuple[str, ...] = ()
    python_version: str = ""
    executor_version: str = ""
    limits: Limits = field(default_factory=Limits)
    packages: Installation | None = None
