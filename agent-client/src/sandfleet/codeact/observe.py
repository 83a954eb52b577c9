"""Observations: what a model is told after a step. Pure.

The error comes first, because that is what has to be acted on; then what was lost; then output, cut in the middle with
exact counts; then files and, in one line, usage.
"""

from dataclasses import dataclass

from sandfleet.codeact.evidence import Evidence
from sandfleet.values.environment import Notice
from sandfleet.values.execution import FileChanges, Frame, Outcome, Rollback, Usage
from sandfleet.values.suspension import Preemption

_LOSSES = {
    "variables": "all variables and imports of earlier steps: define again what you need",
    "processes": "everything that was running in the background",
    "tmp": "the files in /tmp",
}
_HEADS = {
    Outcome.OK: "ok",
    Outcome.ERROR: "ERROR",
    Outcome.TIMEOUT: "TIMEOUT",
    Outcome.MEMORY: "OUT OF MEMORY",
    Outcome.KILLED: "KILLED",
    Outcome.INTERRUPTED: "INTERRUPTED",
    Outcome.DENIED: "DENIED, nothing was run",
    Outcome.LOST: "LOST by the platform, this is no fault of the code",
}
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each part a model is shown, in characters; `names` in file names of each kind."""

    output: int = 4000
    error: int = 3000
    names: int = 12


_SIZES = Sizes()


def observation(number: int, evidence: Evidence, sizes: Sizes = _SIZES, *, workspace_kept: bool = True) -> str:
    """All that a model needs to know of execution `number`."""
    head, *rest = report(evidence, sizes, workspace_kept=workspace_kept)
    return "\n".join((f"[execution {number}] {head}", *rest, _usage(evidence.usage)))


def report(evidence: Evidence, sizes: Sizes = _SIZES, *, workspace_kept: bool = True) -> list[str]:
    """How an execution ended and what it left, without its number and usage."""
    return [
        _head(evidence),
        *_error(evidence, sizes),
        *([f"note: {cut(evidence.message, 600)}"] if evidence.ok and evidence.message else []),
        *_rollback(evidence.rollback),
        *(f"note: {cut(each.message, 600)}" for each in evidence.notices),
        *_denied(evidence.denied_hosts),
        *losses(evidence.lost, evidence.restored, workspace_kept=workspace_kept),
        *(_block("result", text, sizes.output) for text in evidence.results),
        *_list("shown", evidence.shown, sizes.names),
        *_stream("stdout", evidence.stdout, sizes.output),
        *_stream("stderr", evidence.stderr, sizes.output),
        *_files(evidence.files, sizes.names),
    ]


def losses(lost: tuple[str, ...], restored: str = "", *, workspace_kept: bool = True) -> list[str]:
    """What is there again and what is gone, in lines; nothing where nothing was lost."""
    back = [f"brought back: {restored}, from the automatic save"] if restored else []
    if not lost:
        return back
    files = "  (the files in /workspace are there)" if workspace_kept else "  - the files: /workspace is new and empty"
    return [*back, "lost:", *(f"  - {_LOSSES.get(what, what)}" for what in lost), files]


def not_run(number: int, reason: str, lost: tuple[str, ...], restored: str = "", *, workspace_kept: bool = True) -> str:
    """One observation of an action that the platform could not run, and of what was lost with it."""
    told = losses(lost, restored, workspace_kept=workspace_kept) or ["lost: nothing"]
    return "\n".join([f"[step {number}] NOT RUN, this is no fault of the code: {reason}", *told])


def preempted(preemption: Preemption) -> Notice:
    """What is to be known of a preemption, in the observation of the first execution after it."""
    noticed = f"{preemption.noticed:%Y-%m-%d %H:%M:%S} UTC"
    message = (
        f"the sandbox was preempted ({noticed}): the owner of its quota needed it. It was suspended with its files and"
        " variables, and has been resumed; programs that ran in the background have ended"
    )
    return Notice("SandboxPreempted", message)


def refused(number: int, reason: str) -> str:
    """One observation of an action that cannot be run as it was asked for."""
    return f"[step {number}] REFUSED, nothing was run: {reason}"


def nothing_to_run(number: int, reason: str) -> str:
    """One observation of a reply in which there was no action."""
    return f"[step {number}] NOTHING WAS RUN: {reason}"


def remarked(observation: str, remark: str) -> str:
    """An observation with what the model has to be told of its own reply, in the second line."""
    head, _, rest = observation.partition("\n")
    return "\n".join(part for part in (head, f"note: {remark}", rest) if part) if remark else observation


def encodable(text: str) -> str:
    r"""A text that every stream and file can take: a lone surrogate is written as its escape ("\ud800")."""
    return text.encode("utf-8", "backslashreplace").decode()


def lone_surrogate(text: str) -> str:
    """Why a text cannot be sent, where it has a lone surrogate; "" where it has none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"it has a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}, which UTF-8 cannot hold"
    return ""


def answer_rejected(number: int, objection: str) -> str:
    """One observation of an answer that does not stand."""
    return f"[step {number}] ANSWER REJECTED: {objection}"


def cut(text: str, limit: int) -> str:
    """The head and the tail of a text with `limit` characters in all, and exactly how much is left out between them."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    left_out = text[len(head) : len(text) - len(tail)]
    return f"{head}\n[… {len(left_out):,} characters, {left_out.count(chr(10)):,} line ends left out …]\n{tail}"


def _head(evidence: Evidence) -> str:
    words = [_HEADS[evidence.outcome]]
    if evidence.error is not None:
        words = [f"{words[0]}: {evidence.error.name}: {cut(evidence.error.value, 600)}"]
    elif evidence.message and not evidence.ok:
        words.append(evidence.message)
    if evidence.exit_code and evidence.error is None:
        words.append(f"exit code {evidence.exit_code}")
    return ", ".join(words)


def _error(evidence: Evidence, sizes: Sizes) -> list[str]:
    if evidence.error is None:
        return []
    frames = [_frame(frame) for frame in evidence.error.frames[-sizes.names :]]
    # The frames are the user's own lines; the whole traceback only where there are none (a syntax error).
    return frames or _stream("traceback", evidence.error.traceback, sizes.error)


def _denied(hosts: tuple[str, ...]) -> list[str]:
    return [f"note: refused by the egress list: {cut(', '.join(hosts), 600)}; retries do not help"] if hosts else []


def _rollback(rollback: Rollback | None) -> list[str]:
    """In one line whether the variables are there, and as of when."""
    if rollback is None:
        return []
    if not rollback.done:
        return [f"not rolled back: {cut(rollback.message, 300)}"]
    undone = f"; {rollback.cells_undone} earlier cells were undone too: run them again" if rollback.cells_undone else ""
    return [f"rolled back: variables and imports are as before this cell; files it wrote are still there{undone}"]


def _frame(frame: Frame) -> str:
    return f"  at {frame.file}, line {frame.line}, in {frame.function}: {cut(frame.source.strip(), 200)}"


def _stream(name: str, text: str, limit: int) -> list[str]:
    return [_block(name, text, limit)] if text.strip() else []


def _block(name: str, text: str, limit: int) -> str:
    body = cut(text.rstrip("\n"), limit)
    return f"{name}:\n{body}" if "\n" in body else f"{name}: {body}"


def _files(files: FileChanges, limit: int) -> list[str]:
    kinds = (("created", files.created), ("modified", files.modified), ("deleted", files.deleted))
    lines = [line for kind, names in kinds for line in _list(f"files {kind}", names, limit)]
    if files.omitted or not files.complete:
        count = f"{files.omitted:,} more files changed" if files.omitted else "more files may have changed"
        lines.append(f"({count})")
    return lines


def _list(name: str, items: tuple[str, ...], limit: int) -> list[str]:
    if not items:
        return []
    more = f" and {len(items) - limit:,} more" if len(items) > limit else ""
    return [f"{name}: {', '.join(cut(item, 200) for item in items[:limit])}{more}"]


def _usage(usage: Usage) -> str:
    return (
        f"({usage.wall_seconds:.2f} s, {usage.cpu_seconds:.2f} s CPU, peak {usage.peak_memory_bytes / _MIB:,.0f} MiB)"
    )
