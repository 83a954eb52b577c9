"""What a report says, made of spans and a journal. Pure: the page draws it, and so can any program (`--json`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandfleet.observe.contents import ARGUMENTS, RESULT
from sandfleet.observe.report.journal import Recorded
from sandfleet.observe.spans.record import SANDBOX, SpanRecord
from sandfleet.observe.spans.tree import Node, trees
from sandfleet.observe.spans.waterfall import failed, title

# Of one page.
MAX_SESSIONS, MAX_BARS = 2_000, 200_000
# Characters of all texts of a page.
MAX_TEXTS = 64_000_000
_CLAIM = "FleetService/Claim"
_CALL_ID = "gen_ai.tool.call.id"
_NUMBERS = {
    "cpu": "sandfleet.usage.cpu_seconds",
    "memory": "sandfleet.usage.peak_memory_bytes",
    "changed": "sandfleet.files.changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of an agent, or one execution where no agent was traced. Times in seconds from the session's start."""

    number: int
    kind: str
    # How it ended in a word, why in another, and whose failure it was; empty where all is well.
    end: str
    reason: str = ""
    blame: str = ""
    # The class of the exception that the code raised, where it is one of Python's own.
    exception: str = ""
    is_failed: bool = False
    start: float
    seconds: float
    intent: str = ""
    code: str = ""
    output: str = ""
    # "done", or "refused: WHY".
    rollback: str = ""
    lost: str = ""
    files: tuple[str, ...] = ()
    changed: int = 0
    tools: tuple[str, ...] = ()
    # Seconds that it waited for a reviewer.
    review: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One trace. `bars`: depth, title, service, start and length in milliseconds, and whether it went wrong."""

    key: str
    trace_id: str
    sandbox: str = ""
    end: str
    is_failed: bool
    message: str = ""
    task: str = ""
    began: float
    seconds: float
    # In the queue; None where no claim was traced.
    wait: float | None = None
    tokens: int = 0
    cpu: float = 0.0
    steps: tuple[Step, ...] = ()
    bars: tuple[tuple[int, str, str, float, float, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A session or a run. `missing`: what would tell more, one sentence each."""

    name: str
    sessions: tuple[Session, ...]
    missing: tuple[str, ...] = ()
    # The run that it is compared with.
    other: Report | None = field(default=None)


def report(name: str, spans: Sequence[SpanRecord], journal: Mapping[str, Recorded]) -> Report:
    """Make the report of all traces in `spans`."""
    roots = trees(spans)
    # A claim may have a trace of its own.
    waits = {
        _text(s.attributes, SANDBOX): s.seconds for s in spans if s.name.endswith(_CLAIM) and SANDBOX in s.attributes
    }
    found = [_session(root, journal, waits) for root in roots if _is_session(root)][:MAX_SESSIONS]
    steps = [step for session in found for step in session.steps]
    missing = []
    if not any(step.code for step in steps):
        missing.append(
            "Code and output are missing: they are in the journal (--journal FILE), or in spans that were made with "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true."
        )
    if not journal and any(step.code for step in steps):
        missing.append("No journal was given: the names of changed files and results that are no text are missing.")
    services = {span.service for span in spans}
    if "sandfleet-fleet" not in services:
        missing.append("The fleet's spans are missing: what claims waited for is not shown.")
    if "sandfleet-executor" not in services:
        missing.append("The executors' spans are missing: the phases of executions are not shown.")
    orphans = sum(node.is_orphan for root in roots for _, node in root.walk())
    if orphans:
        missing.append(f"{orphans} spans have parents that are missing: some were dropped, or not exported yet.")
    return Report(name=name, sessions=_bounded(found), missing=tuple(missing))


def _is_session(root: Node) -> bool:
    """Whether a tree is more than one call of the client, as a release or a look at a file."""
    return any(_CALL_ID in node.span.attributes or node.span.name.startswith("step ") for _, node in root.walk()) or (
        "sandfleet.task.key" in root.span.attributes
    )


def _session(root: Node, journal: Mapping[str, Recorded], claims: Mapping[str, float]) -> Session:
    nodes = list(root.walk())
    said = _merged(node.span.attributes for _, node in nodes[:4])
    start = root.span.start
    steps = _steps(nodes, start, journal)
    bad = next((step for step in reversed(steps) if step.is_failed), None)
    end = _text(said, "sandfleet.run.end") or (bad.end if bad else "ok")
    is_failed = end not in {"answered", "ok"}
    sandbox = next((_text(n.span.attributes, SANDBOX) for _, n in nodes if SANDBOX in n.span.attributes), "")
    waits = [node.span.seconds for _, node in nodes if node.span.name.endswith(_CLAIM)]
    why = _text(said, "sandfleet.run.message") or (f"step {bad.number} ended with {_why(bad)}" if bad else "")
    return Session(
        key=_text(said, "sandfleet.task.key") or root.span.name,
        trace_id=root.span.trace_id,
        sandbox=sandbox,
        end=end,
        is_failed=is_failed,
        message=why if is_failed else "",
        task=_text(said, "sandfleet.run.task"),
        began=start / 1e9,
        seconds=root.span.seconds,
        wait=_number(said, "sandfleet.claim.wait_seconds")
        if "sandfleet.claim.wait_seconds" in said
        else _first([*waits, claims.get(sandbox)]),
        tokens=sum(step.tokens for step in steps) or _tokens(said),
        cpu=sum(step.cpu for step in steps),
        steps=steps,
        bars=tuple(_bar(depth, node, start) for depth, node in nodes[:MAX_BARS]),
    )


def _steps(nodes: Sequence[tuple[int, Node]], start: int, journal: Mapping[str, Recorded]) -> tuple[Step, ...]:
    """The agent's steps; without an agent the executions, of which tools of the host are parts."""
    found = [node for _, node in nodes if node.span.name.startswith("step ")]
    found = found or [node for _, node in nodes if _CALL_ID in node.span.attributes]
    chats = sorted((n.span.end, _tokens(n.span.attributes)) for _, n in nodes if n.span.name.startswith("chat "))
    made, before = [], 0
    for number, node in enumerate(found, 1):
        # What the model was asked since the step before belongs to this one.
        tokens = sum(count for end, count in chats if before < end <= node.span.start)
        before = node.span.start
        made.append(_step(number, node, start, journal, tokens))
    return tuple(made)


def _step(number: int, node: Node, start: int, journal: Mapping[str, Recorded], tokens: int) -> Step:
    below = [one for _, one in node.walk()]
    own = next(
        (one.span for one in below if _CALL_ID in one.span.attributes and one.span.name[:4] == "exec"), node.span
    )
    said, outer = own.attributes, node.span.attributes
    recorded = journal.get(_text(said, _CALL_ID), Recorded())
    verdict, outcome = _text(outer, "sandfleet.step.verdict"), _text(said, "sandfleet.outcome")
    named = ((one.span.name, one.span) for one in below if one.span is not own)
    return Step(
        number=number,
        kind=node.span.name.removeprefix("step ").removeprefix("execute_tool "),
        end=outcome or verdict or node.span.error or "ok",
        reason=_text(said, "sandfleet.reason"),
        blame=_text(said, "sandfleet.blame"),
        exception=recorded.error or _text(said, "sandfleet.exception"),
        is_failed=failed(own) or verdict in {"failed", "lost", "gave_up"},
        start=(node.span.start - start) / 1e9,
        seconds=node.span.seconds,
        intent=_text(outer, "sandfleet.step.intent"),
        code=recorded.code or _asked(said),
        output="\n".join(filter(None, (recorded.output, *recorded.results))) or _text(said, RESULT),
        rollback=_text(said, "sandfleet.rollback"),
        lost=_text(said, "sandfleet.lost"),
        files=recorded.files,
        tools=tuple(name.removeprefix("execute_tool ") for name, _ in named if name.startswith("execute_tool ")),
        review=sum(one.span.seconds for one in below if one.span.name == "review"),
        tokens=tokens,
        changed=int(_number(said, _NUMBERS["changed"])),
        cpu=_number(said, _NUMBERS["cpu"]),
        memory=int(_number(said, _NUMBERS["memory"])),
    )


def _why(step: Step) -> str:
    parts = (step.exception or step.reason, f"blame: {step.blame}" if step.blame else "")
    told = ", ".join(filter(None, parts))
    return f"{step.end} ({told})" if told else step.end


def _bounded(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """The sessions with as much text as a page holds: those that went wrong first."""
    left, kept = MAX_TEXTS, {}
    for session in sorted(sessions, key=lambda one: not one.is_failed):
        left -= sum(len(step.code) + len(step.output) for step in session.steps)
        bare = tuple(replace(step, code="", output="") for step in session.steps) if left < 0 else session.steps
        kept[id(session)] = replace(session, steps=bare)
    return tuple(kept[id(session)] for session in sessions)


def _bar(depth: int, node: Node, start: int) -> tuple[int, str, str, float, float, bool]:
    span = node.span
    offset = round((span.start - start) / 1e6, 3)
    return depth, title(node), span.service, offset, round(span.seconds * 1e3, 3), failed(span)


def _asked(said: Mapping[str, Any]) -> str:
    try:
        asked = json.loads(_text(said, ARGUMENTS) or "{}")
        return str(asked.get("code") or asked.get("command") or "")
    except (ValueError, AttributeError, RecursionError):
        return ""


def _merged(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a session's first spans, the outer ones first."""
    together: dict[str, Any] = {}
    for one in found:
        together = {**one, **together}
    return together


def _tokens(said: Mapping[str, Any]) -> int:
    return int(_number(said, "gen_ai.usage.input_tokens") + _number(said, "gen_ai.usage.output_tokens"))


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name, "")
    return value if isinstance(value, str) else str(value)


def _number(said: Mapping[str, Any], name: str) -> float:
    value = said.get(name, 0)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else 0.0


def _first(values: Sequence[float | None]) -> float | None:
    return values[0] if values else None
