"""Executions: cells and commands, how they ended, what they showed and used."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from sandfleet.values import _show
from sandfleet.values.environment import Notice
from sandfleet.values.root import SandfleetError
from sandfleet.values.variables import Autosaved

if TYPE_CHECKING:
    from sandfleet.charts import Chart

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
    """Who caused an outcome."""

    CODE = "code"
    LIMIT = "limit"
    POLICY = "policy"
    PLATFORM = "platform"


class Stream(StrEnum):
    """Which stream output came from."""

    STDOUT = "stdout"
    STDERR = "stderr"


class OnFailure(StrEnum):
    """What happens to the variables when a cell raises."""

    KEEP = "keep"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Rollback:
    """What happened to the variables after a cell failed.

    done          the context is as after cell `cell_number` (0: as new); `restored` names what was rolled back.
    kept          what stays as the cell left it: "files", "tmp", "offsets" of open files, "sockets".
    refused       why it was not rolled back, one CamelCase word: "ThreadsRunning", …; "" if it was.
    cells_undone  number of earlier cells that are undone as well: they ran too quickly for a copy between them.
    """

    done: bool
    message: str = ""
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: str = ""
    cell_number: int = 0
    cells_undone: int = 0

    def __bool__(self) -> bool:
        """Whether it was rolled back."""
        return self.done


@dataclass(frozen=True, slots=True)
class Usage:
    """What one execution used: seconds and bytes, of this execution alone. Dropped output counts too."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    peak_processes: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    # To storage; None if the kernel does not report it, as under gVisor.
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
    """The output of an execution as text; bytes that are not UTF-8 became U+FFFD.

    `gaps` say where output is missing.
    """

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
    """An exception that the code raised: exact class name, str() of it, and the traceback as Python prints it.

    `value` is exact up to 8 MiB of UTF-8; `truncated` counts the bytes that are missing at its end. A traceback above
    64 KiB lacks its middle. A shell's `name` is ExitCode or SyntaxError. `print(error)` shows
    the traceback.
    """

    name: str
    value: str
    traceback: str = ""
    frames: tuple[Frame, ...] = ()
    truncated: int = 0

    @property
    def summary(self) -> str:
        """Name and value in one line, as the last line of a traceback."""
        return f"{self.name}: {self.value}" if self.value else self.name

    def __repr__(self) -> str:
        return _show.short("ExecutionError", self.summary)

    def __str__(self) -> str:
        return self.traceback.rstrip() or self.summary


@dataclass(frozen=True, slots=True)
class Result:
    """A displayed result: the value of the last expression (`is_main_result`), or an object that a cell displayed.

    `parts` maps MIME types to text (str) or, for binary types, raw bytes. `dropped_bytes` were too large to be sent.
    `display_id` is the id of `display(…, display_id=…)`. `is_update`: it replaces the earlier results of its id; those
    of the same execution are replaced in `Execution.results`.
    """

    parts: MimeParts
    is_main_result: bool = False
    dropped_bytes: int = 0
    display_id: str = ""
    is_update: bool = False

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

    @property
    def rows(self) -> list[dict[str, Any]] | None:
        """Rows of a frame, by the names of its columns.

        Those of Python's frames come where `run_code(rows=)` asks for them, those of SQL always, as many as it shows.
        Columns of one name are told apart by a number. None for all else.
        """
        from sandfleet_rules.tables import unique

        try:
            said = json.loads(self.json or "")
            names = unique(said["columns"])
            return [dict(zip(names, row, strict=True)) for row in said["rows"]]
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def chart(self) -> Chart | None:
        """What it shows as data, if it is a figure of Matplotlib, Plotly or Vega-Lite (Altair) of a known kind."""
        from sandfleet import charts

        return charts.of_parts(self.parts)

    def __repr__(self) -> str:
        return f"Result({', '.join(self.parts)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Show it in Jupyter as the sandbox's own Jupyter would."""
        del include, exclude
        return _show.jupyter_bundle(self.parts)


@dataclass(frozen=True, slots=True)
class Cleared:
    """The code cleared its output (`clear_output`); with `wait` it is cleared when the next output comes."""

    wait: bool = False


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The code waits for a line of input; `password`: what is typed is not to be shown. As a text it is its prompt."""

    prompt: str
    password: bool = False

    def __str__(self) -> str:
        return self.prompt


# Called with each piece as it comes; awaited if they return an awaitable.
OnText = Callable[[str], object]
OnResult = Callable[[Result], object]
OnClear = Callable[[Cleared], object]
# Gives the line that the code waits for, or None to refuse it.
OnInput = Callable[[InputRequest], str | Awaitable[str | None] | None]


@dataclass(frozen=True, slots=True)
class Execution:
    """One cell that was run. It always has exactly one outcome.

    outcome       how it ended.
    blame         who caused that; None for `ok`.
    reason        why, in one CamelCase word for programs.
    message       why, in one sentence for people and models.
    results       the displayed results, in order, each as it was last updated; `text` is the plain text of the last
                  expression's value.
    logs          its standard output and error. `clear_output` empties results and logs.
    error         the exception that the code raised, or None.
    usage         what it used.
    files         the files of the workspace that changed while it ran.
    lost          what earlier cells left and is lost: "variables" ("variables: a, b"), "processes", "tmp".
    restored      what came back of earlier variables, in words.
    context       the context that it ran in; `cell_number` counts that context's cells.
    exit_code     of a cell of a shell; `signal` is the name of the signal that ended it.
    rollback      what happened to the variables if the cell failed, or None.
    not_stored    why the result is not stored, in one word; "" if it is.
    notices       facts about the sandbox, told in a context's first cell: "PackagesNotInstalled".
    denied_hosts  hosts that programs of the sandbox were refused while it ran, as entries of `egress`; up to 16. Of
                  executions that run at a time each tells all of them.

    `print(execution)` shows what a terminal would: output, results and the error.
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
    denied_hosts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end without an error."""
        return self.outcome is Outcome.OK

    @property
    def text(self) -> str | None:
        """Plain text of the last expression's value; None if it has none."""
        return next((result.text for result in self.results if result.is_main_result), None)

    @property
    def stdout(self) -> str:
        """The standard output, as `logs.stdout`."""
        return self.logs.stdout

    @property
    def stderr(self) -> str:
        """The standard error, as `logs.stderr`."""
        return self.logs.stderr

    @property
    def context_restarted(self) -> bool:
        """Whether the variables of earlier cells are lost."""
        return "variables" in self.lost

    def raise_for_error(self) -> Self:
        """Return the execution if it is ok. Raises ExecutionFailed, with the code's traceback as a note."""
        if self.ok:
            return self
        raise ExecutionFailed(f"cannot go on: {self._why()}", self)

    def __repr__(self) -> str:
        return _show.short("Execution", self.execution_id, self.outcome, self._summary())

    def __str__(self) -> str:
        return "\n".join(text.rstrip("\n") for text in self._texts()) or repr(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Show output, results and error in Jupyter.

        Output is escaped, and results appear as text or as an image: HTML from a sandbox is shown by its own `Result`
        only, because its scripts would run in the reader's notebook.
        """
        del include, exclude
        return _show.bundle(self._texts(), [result.png for result in self.results if result.png])

    def _summary(self) -> str:
        if self.error is not None:
            return self.error.summary
        return self.text or self.message or self.logs.stdout

    def _why(self) -> str:
        if self.error is not None:
            return f"the code raised {self.error.summary}"
        return f"the execution ended with the outcome {self.outcome}: {self.message}"

    def _texts(self) -> list[str]:
        texts = [self.logs.stdout, self.logs.stderr, *(result.text or repr(result) for result in self.results)]
        if self.error is not None:
            texts.append(str(self.error))
        elif not self.ok:
            texts.append(f"{self.outcome}: {self.message}")
        return [text for text in texts if text]


@dataclass(frozen=True, slots=True)
class Completion:
    """What may stand between the characters `cursor_start` and `cursor_end` of the code.

    `omitted` counts matches that were left out: there were too many, or they were too long.
    """

    matches: tuple[str, ...]
    cursor_start: int
    cursor_end: int
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """The object at a position: `text` has its signature, its documentation, and its source if it was asked for.

    `parts` maps MIME types to text. An inspection is false where there is no object.
    """

    found: bool
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The plain text; "" if nothing was found."""
        return self.parts.get("text/plain", "")

    def __bool__(self) -> bool:
        """Say whether there is an object."""
        return self.found


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that ended. `exit_code` is 128+n when signal n ended it, 127 not found, 126 not executable.

    `stdout` and `stderr` are text (bytes that are not UTF-8 became U+FFFD); `stdout_bytes` and `stderr_bytes` are
    exact. `denied_hosts` is as in `Execution`.
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
    denied_hosts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.outcome is Outcome.OK

    def raise_for_error(self) -> Self:
        """Return the result if it is ok. Raises CommandFailed."""
        if self.ok:
            return self
        last = (self.stderr or self.stdout).strip().rpartition("\n")[2][:200] or self.message
        why = f"the command ended with exit code {self.exit_code} ({self.outcome}): {last}"
        raise CommandFailed(f"cannot go on: {why}", self)

    def __repr__(self) -> str:
        shown = self.stdout or self.stderr
        return _show.short("CommandResult", self.execution_id, self.outcome, f"exit code {self.exit_code}", shown)

    def __str__(self) -> str:
        ended = "" if self.ok else f"{self.outcome}, exit code {self.exit_code}: {self.message}".rstrip(": ")
        return "\n".join(text.rstrip("\n") for text in (self.stdout, self.stderr, ended) if text) or repr(self)


class CommandFailed(SandfleetError):
    """A command with `check=True` ended with another exit code than 0."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message, reason=result.reason)
        self.result = result
        # The arguments with which pickle calls the class.
        self.args = (message, result)


class ExecutionFailed(SandfleetError):
    """An execution did not end well, and `raise_for_error` was called."""

    def __init__(self, message: str, execution: Execution) -> None:
        super().__init__(message, reason=execution.reason)
        self.execution = execution
        # The arguments with which pickle calls the class.
        self.args = (message, execution)
        if execution.error is not None and execution.error.traceback:
            self.add_note(f"In the sandbox:\n{_show.visible(execution.error.traceback.rstrip())}")


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """A piece of a command's output, in order. `text` holds whole characters; `dropped_bytes` are missing before it."""

    stream: Stream
    text: str
    data: bytes
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A command that is running now. `pid` is its process id inside the sandbox; 0 before its program has started."""

    execution_id: str
    argv: tuple[str, ...]
    started: datetime | None
    pid: int = 0

    def __repr__(self) -> str:
        return _show.short("RunningCommand", self.execution_id, f"process {self.pid}", " ".join(self.argv))


@dataclass(frozen=True, slots=True)
class Context:
    """A live interpreter. `state` is idle, busy or ended; `generation` counts from 1.

    The default context is there from the start: its interpreter, and generation 1, begin with its first cell.
    `copied_cell`: the cell whose state is kept as a copy; 0 without one. `cwd`: where its interpreter begins.
    """

    context_id: str
    language: str
    state: str
    generation: int
    executions: int
    copied_cell: int = 0
    autosaved: Autosaved | None = None
    cwd: str = ""

    def __repr__(self) -> str:
        return _show.short("Context", self.context_id, self.language, self.state)
