"""What a cell or a command left behind, in one shape for both. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sandfleet.values.environment import Notice
from sandfleet.values.execution import (
    Blame,
    CommandResult,
    Execution,
    ExecutionError,
    FileChanges,
    Gap,
    Outcome,
    Result,
    Rollback,
    Stream,
    Usage,
)

# What a model can read, best first.
_READABLE = ("text/plain", "text/markdown", "application/json", "text/latex", "text/html")
# What a model can see, and how much of it is kept of one execution.
_VISIBLE = ("image/png", "image/jpeg", "image/webp", "image/gif")
_MOST_IMAGES = 8
_LARGEST_IMAGE = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that an execution has shown, a plot for example."""

    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A cell or a command after its end.

    stdout, stderr   text; each place where output was dropped says how many bytes are missing.
    results          the text of everything shown, in order; `shown` are those without text ("image/png, 2,134 bytes").
    images           the first pictures among what was shown, up to eight of 5 MiB each.
    restored         what an automatic save has brought back before it, in words.
    dropped_bytes    output and results that were too large, in all.
    notices          what is to be known of the sandbox, said once.
    denied_hosts     what the sandbox's programs were refused to reach while it ran.
    rollback         whether the variables are as before a cell that did not end well; None where that is no question.
    """

    execution_id: str
    outcome: Outcome
    blame: Blame | None = None
    message: str = ""
    error: ExecutionError | None = None
    stdout: str = ""
    stderr: str = ""
    results: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    exit_code: int | None = None
    files: FileChanges = field(default_factory=FileChanges)
    lost: tuple[str, ...] = ()
    restored: str = ""
    usage: Usage = field(default_factory=Usage)
    dropped_bytes: int = 0
    rollback: Rollback | None = None
    notices: tuple[Notice, ...] = ()
    denied_hosts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def output(self) -> str:
        """What an answer may stand in: the results and the standard output."""
        return "\n".join((*self.results, self.stdout))

    @property
    def text(self) -> str:
        """All that can be read: error, results, standard output and error."""
        error = (self.error.name, self.error.value) if self.error else ()
        return "\n".join((*error, *self.results, self.stdout, self.stderr))


def of_execution(execution: Execution) -> Evidence:
    """The evidence of a cell."""
    logs = execution.logs
    return replace(
        _of(execution, logs.stdout, logs.stderr, logs.gaps),
        error=execution.error,
        results=tuple(text for result in execution.results if (text := _readable(result)) is not None),
        shown=tuple(line for result in execution.results for line in _unreadable(result)),
        images=_images(execution.results),
        restored=execution.restored,
        dropped_bytes=_dropped(logs.gaps) + sum(result.dropped_bytes for result in execution.results),
        rollback=execution.rollback,
    )


def of_command(result: CommandResult) -> Evidence:
    """The evidence of a command."""
    return replace(_of(result, result.stdout, result.stderr, result.gaps), exit_code=result.exit_code)


def _of(ended: Execution | CommandResult, stdout: str, stderr: str, gaps: tuple[Gap, ...]) -> Evidence:
    of_stdout, of_stderr = _split(gaps)
    return Evidence(
        execution_id=ended.execution_id,
        outcome=ended.outcome,
        blame=ended.blame,
        message=ended.message,
        stdout=_with_gaps(stdout, of_stdout),
        stderr=_with_gaps(stderr, of_stderr),
        files=ended.files,
        lost=ended.lost,
        usage=ended.usage,
        dropped_bytes=_dropped(gaps),
        notices=ended.notices,
        denied_hosts=ended.denied_hosts,
    )


def told_once(evidence: Evidence, told: tuple[str, ...]) -> Evidence:
    """Leave out of what was lost what the execution before has said already.

    The execution that loses something says so at its end, and the next one says it again at its start: the caller may
    have missed the first.
    """
    if evidence.outcome not in {Outcome.OK, Outcome.ERROR}:
        return evidence
    restored = "" if evidence.restored in told else evidence.restored
    return replace(evidence, lost=tuple(what for what in evidence.lost if what not in told), restored=restored)


def _split(gaps: Iterable[Gap]) -> tuple[list[Gap], list[Gap]]:
    every = tuple(gaps)
    return [gap for gap in every if gap.stream is Stream.STDOUT], [gap for gap in every if gap.stream is Stream.STDERR]


def _with_gaps(text: str, gaps: list[Gap]) -> str:
    pieces, done = [], 0
    for gap in sorted(gaps, key=lambda gap: gap.position):
        pieces += [text[done : gap.position], f"\n[… {gap.dropped_bytes:,} bytes were not kept here …]\n"]
        done = gap.position
    return "".join((*pieces, text[done:]))


def _dropped(gaps: Iterable[Gap]) -> int:
    return sum(gap.dropped_bytes for gap in gaps)


def _readable(result: Result) -> str | None:
    for mime in _READABLE:
        if (part := result.parts.get(mime)) is not None:
            return part.decode("utf-8", "replace") if isinstance(part, bytes) else part
    return None


def _images(results: Iterable[Result]) -> tuple[Image, ...]:
    # One picture of each result: the same plot may be there in several formats.
    best = (next(((mime, result.parts[mime]) for mime in _VISIBLE if mime in result.parts), None) for result in results)
    found = [Image(mime, data) for mime, data in filter(None, best) if isinstance(data, bytes)]
    return tuple(image for image in found if len(image.data) <= _LARGEST_IMAGE)[:_MOST_IMAGES]


def _unreadable(result: Result) -> list[str]:
    images = [f"{mime}, {len(part):,} bytes" for mime, part in result.parts.items() if mime.startswith("image/")]
    return images + (
        [f"a result of {result.dropped_bytes:,} bytes, too large to be sent"] if result.dropped_bytes else []
    )
