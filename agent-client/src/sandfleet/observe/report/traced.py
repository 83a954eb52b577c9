"""Sessions as their spans show them, with what journals add. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandfleet.observe.contents import ARGUMENTS, RESULT
from sandfleet.observe.report.journal import Journal, Recorded
from sandfleet.observe.report.model import MAX_BARS, Session, Step
from sandfleet.observe.spans.record import SANDBOX
from sandfleet.observe.spans.tree import Node
from sandfleet.observe.spans.waterfall import failed, title

TASK_KEY = "sandfleet.task.key"
_CLAIM = "FleetService/Claim"
_MOST_HOSTS = 16
_CALL_ID = "gen_ai.tool.call.id"
_WAIT = "sandfleet.claim.wait_seconds"
_VERDICT, _ANSWER = "sandfleet.step.verdict", "sandfleet.answer.execution"
GOOD = frozenset({"answered", "ok"})
_NUMBERS = {
    "cpu": "sandfleet.usage.cpu_seconds",
    "memory": "sandfleet.usage.peak_memory_bytes",
    "changed": "sandfleet.files.changed",
}


@dataclass(slots=True)
class Traced:
    """The trees of one session: an agent's, or the calls of one sandbox. Its claim may have a trace of its own."""

    roots: list[Node]
    sandbox: str = ""
    claims: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[tuple[int, Node]]:
        """All spans, each with its depth."""
        for root in sorted((*self.claims, *self.roots), key=lambda one: one.span.start):
            yield from root.walk()

    @property
    def start(self) -> int:
        """In nanoseconds since the epoch, the wait for the sandbox included."""
        return min(root.span.start for root in (*self.claims, *self.roots))

    @property
    def trace_id(self) -> str:
        """Of the session itself."""
        return self.roots[0].span.trace_id

    def calls(self) -> list[str]:
        """The ids of its executions."""
        return [text(node.span.attributes, _CALL_ID) for _, node in self.walk() if _CALL_ID in node.span.attributes]


def sessions_in(roots: Iterable[Node]) -> list[Traced]:
    """The sessions of all trees. Calls that belong to no agent are one session for each sandbox.

    What an agent's sandbox ran beside the agent belongs to the agent's session, if the sandbox served one agent only.
    """
    agents: list[Traced] = []
    loose: list[Traced] = []
    claims: list[Traced] = []
    for root in roots:
        sandbox = next(
            (text(one.span.attributes, SANDBOX) for _, one in root.walk() if SANDBOX in one.span.attributes), ""
        )
        found = Traced([root], sandbox)
        if root.span.name.endswith(_CLAIM):
            claims.append(found)
        elif _is_agent(root):
            same = [one for one in agents if root.is_orphan and _are_parts(one.roots[0], root)]
            if same:
                same[0].roots.append(root)
            else:
                agents.append(found)
        elif any(_CALL_ID in one.span.attributes for _, one in root.walk()):
            loose.append(found)
    made = list(agents)
    for one in loose:
        same = [other for other in made if other.sandbox == one.sandbox]
        if one.sandbox and len(same) == 1:
            same[0].roots += one.roots
        else:
            made.append(one)
    first = {one.sandbox: one for one in reversed(made) if one.sandbox}
    for claim in claims:
        if claim.sandbox in first:
            first[claim.sandbox].claims += claim.roots
    return sorted(made, key=lambda one: one.start)


def _is_agent(root: Node) -> bool:
    """Whether a tree is the work of an agent, or a task of a run."""
    return TASK_KEY in root.span.attributes or any(one.span.name.startswith("step ") for _, one in root.walk())


def _are_parts(one: Node, other: Node) -> bool:
    """Whether two trees are parts of one agent's work whose own span is missing: it is exported at its end."""
    return one.is_orphan and one.span.trace_id == other.span.trace_id


def session(found: Traced, journal: Journal, unseen: Sequence[Recorded] = ()) -> Session:
    """Make the session of its spans, and of what its journal adds. `unseen`: executions of which there is no span."""
    nodes, start, root = list(found.walk()), found.start, found.roots[0].span
    said = _merged(node.span.attributes for _, node in [one for tree in found.roots for one in tree.walk()][:4])
    steps = tuple(_steps(nodes, start, journal))
    if unseen:
        steps = _with_unseen(steps, unseen, start / 1e9 - _clock_offset(found, journal))
    end, bad = verdict(steps, text(said, "sandfleet.run.end"))
    answer = text(said, "sandfleet.run.answer") or _answered(nodes, journal)
    steps = tuple(replace(one, output=one.output or answer) if one.end == "accepted" else one for one in steps)
    waits = [node.span.seconds for _, node in nodes if node.span.name.endswith(_CLAIM)]
    is_agents = _is_agent(found.roots[0])
    ended = max(one.span.end for one in found.roots)
    name = text(said, "gen_ai.agent.name") if is_agents else ""
    box = f"sandbox {found.sandbox}" if found.sandbox else root.name
    return Session(
        key=text(said, TASK_KEY) or (f"agent {name} in {box}" if name else box),
        trace_id=found.trace_id,
        sandbox=found.sandbox,
        end=end,
        is_failed=end not in GOOD,
        message=(text(said, "sandfleet.run.message") or (said_of(bad) if bad else "")) if end not in GOOD else "",
        task=text(said, "sandfleet.run.task"),
        answer=answer,
        began=start / 1e9,
        seconds=(ended - min(root.start, start)) / 1e9,
        wait=number(said, _WAIT) if _WAIT in said else (waits[0] if waits else None),
        tokens=sum(step.tokens for step in steps) or _tokens(said),
        cpu=sum(step.cpu for step in steps),
        count=len(steps),
        failures=sum(step.is_failed for step in steps),
        steps=steps,
        bars=tuple(_bar(depth, node, start) for depth, node in nodes[:MAX_BARS]),
    )


def _answered(nodes: Sequence[tuple[int, Node]], journal: Journal) -> str:
    """The output in which the accepted answer stands, where a journal has it."""
    accepted = (one.span.attributes for _, one in nodes if text(one.span.attributes, _VERDICT) == "accepted")
    ran = journal.of(next((text(said, _ANSWER) for said in accepted), ""))
    return "\n".join(filter(None, (ran.output.strip(), *ran.results))) if ran is not None else ""


def verdict(steps: Sequence[Step], end: str = "") -> tuple[str, Step | None]:
    """How a session ended, and the step to blame. Without an agent's word the last step decides."""
    bad = next((step for step in reversed(steps) if step.is_failed), None)
    if end:
        return end, None if end in GOOD else bad
    return (bad.end, bad) if bad is not None and bad is steps[-1] else ("ok", None)


def said_of(step: Step) -> str:
    """In a sentence, what went wrong in a step."""
    parts = (step.exception.partition("\n")[0][:200] or step.reason, f"blame: {step.blame}" if step.blame else "")
    told = ", ".join(filter(None, parts))
    return f"step {step.number} ended with {step.end}" + (f" ({told})" if told else "")


def _steps(nodes: Sequence[tuple[int, Node]], start: int, journal: Journal) -> list[Step]:
    """The agent's steps, and executions beside them; tools of the host are parts of executions."""
    chats = sorted((n.span.end, _tokens(n.span.attributes)) for _, n in nodes if n.span.name.startswith("chat "))
    made, before = [], 0
    for number_, node in enumerate(_turns(nodes), 1):
        # What the model was asked since the step before belongs to this one.
        tokens = sum(count for end, count in chats if before < end <= node.span.start)
        before = node.span.start
        made.append(_step(number_, node, start, journal, tokens))
    return made


def _turns(nodes: Sequence[tuple[int, Node]]) -> list[Node]:
    """Steps of agents, and executions below none. An execution that is looked at once more counts once."""
    found, seen, inside = [], set(), -1
    for depth, node in nodes:
        if inside >= 0 and depth > inside:
            continue
        inside = -1
        call = text(node.span.attributes, _CALL_ID)
        is_step = node.span.name.startswith("step ")
        if is_step or (call and call not in seen):
            found.append(node)
            inside = depth
            seen.add(call)
    return sorted(found, key=lambda one: one.span.start)


def _with_unseen(steps: Sequence[Step], unseen: Iterable[Recorded], start: float) -> tuple[Step, ...]:
    """All steps in their order. `start`: of the session by the executor's clock, in seconds since the epoch."""
    together = [*steps, *(journal_step(one, 0, start) for one in unseen)]
    ordered = sorted(together, key=lambda step: step.start)
    return tuple(replace(step, number=place) for place, step in enumerate(ordered, 1))


def _clock_offset(found: Traced, journal: Journal) -> float:
    """Seconds by which the spans' clock is before the executor's, as the executions say that both have seen."""
    differences = []
    for _, node in found.walk():
        recorded = journal.of(text(node.span.attributes, _CALL_ID))
        if recorded is not None and recorded.begun:
            differences.append(node.span.start / 1e9 - recorded.begun)
    return sorted(differences)[len(differences) // 2] if differences else 0.0


def journal_step(one: Recorded, place: int, start: float) -> Step:
    """The step that a journal alone tells of; `start`: of the session, in seconds since the epoch."""
    return Step(
        number=place,
        kind=one.kind,
        end=one.end,
        reason=one.reason,
        blame=one.blame,
        exception=one.error,
        is_failed=one.end != "ok",
        start=one.begun - start,
        seconds=one.seconds,
        changed=len(one.files),
        **_contents(one),
    )


def _contents(one: Recorded) -> dict[str, Any]:
    return {
        "code": one.code,
        "output": "\n".join(filter(None, (one.output, *one.results))),
        "frames": one.frames,
        "pictures": one.pictures,
        "rollback": one.rollback,
        "lost": one.lost,
        "hosts": tuple(f"{host} refused" for host in one.denied),
        "files": one.files,
        "tools": one.tools,
        "reviews": one.reviews,
    }


def _step(place: int, node: Node, start: int, journal: Journal, tokens: int) -> Step:
    below = [one for _, one in node.walk()]
    own = next(
        (one.span for one in below if _CALL_ID in one.span.attributes and one.span.name[:4] == "exec"), node.span
    )
    said, outer = own.attributes, node.span.attributes
    recorded = journal.of(text(said, _CALL_ID))
    word, outcome = text(outer, _VERDICT), text(said, "sandfleet.outcome")
    tools = tuple(
        one.span.name.removeprefix("execute_tool ")
        for one in below
        if one.span is not own and one.span.name.startswith("execute_tool ")
    )
    made = Step(
        number=place,
        kind=node.span.name.removeprefix("step ").removeprefix("execute_tool "),
        end=outcome or word or node.span.error or "ok",
        reason=text(said, "sandfleet.reason"),
        blame=text(said, "sandfleet.blame"),
        exception=text(said, "sandfleet.exception"),
        is_failed=failed(own) or word in {"failed", "lost", "gave_up"},
        start=(node.span.start - start) / 1e9,
        seconds=node.span.seconds,
        intent=text(outer, "sandfleet.step.intent"),
        code=_asked(said),
        output=text(said, RESULT),
        rollback=text(said, "sandfleet.rollback"),
        lost=text(said, "sandfleet.lost"),
        hosts=tuple(dict.fromkeys(_host(one) for one in below if one.span.name == "egress"))[:_MOST_HOSTS],
        tools=tools,
        review=sum(one.span.seconds for one in below if one.span.name == "review"),
        tokens=tokens,
        changed=int(number(said, _NUMBERS["changed"])),
        cpu=number(said, _NUMBERS["cpu"]),
        memory=int(number(said, _NUMBERS["memory"])),
    )
    return made if recorded is None else _filled(made, recorded)


def _filled(step: Step, recorded: Recorded) -> Step:
    """The step with what its journal says; spans say less."""
    found = {name: value for name, value in _contents(recorded).items() if value}
    if step.hosts:
        # The trace says more of them.
        found.pop("hosts", None)
    return replace(step, **found, exception=recorded.error or step.exception)


def _host(node: Node) -> str:
    said = node.span.attributes
    return " ".join(text(said, f"sandfleet.egress.{each}") for each in ("host", "port", "verdict"))


def _bar(depth: int, node: Node, start: int) -> tuple[int, str, str, float, float, bool]:
    span = node.span
    offset = round((span.start - start) / 1e6, 3)
    return depth, title(node), span.service, offset, round(span.seconds * 1e3, 3), failed(span)


def _asked(said: Mapping[str, Any]) -> str:
    try:
        asked = json.loads(text(said, ARGUMENTS) or "{}")
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
    return int(number(said, "gen_ai.usage.input_tokens") + number(said, "gen_ai.usage.output_tokens"))


def text(said: Mapping[str, Any], name: str) -> str:
    """An attribute as text; empty where there is none."""
    value = said.get(name, "")
    return value if isinstance(value, str) else str(value)


def number(said: Mapping[str, Any], name: str) -> float:
    """An attribute as a number; 0 where there is none."""
    value = said.get(name, 0)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else 0.0
