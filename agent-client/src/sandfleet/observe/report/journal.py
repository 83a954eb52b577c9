"""What a journal says of a session: code, output, results, files, tools and reviews.

Hostile: an executor has written it. Where the records come from says whether their chain was checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sandfleet.observe.report import pictures
from sandfleet.observe.report.frames import Frame, frames
from sandfleet.observe.report.pictures import Picture

# Of one text, one list and one word; executions of one journal.
MAX_TEXT, MAX_ITEMS, MAX_WORD, MAX_EXECUTIONS = 64_000, 200, 512, 100_000
# Decisions of reviewers that let the request run.
_LET = frozenset({"approved", "edited"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One execution. `files`: the paths that changed, and with a minus those that were removed.

    `begun` in seconds since the epoch, by the executor's clock. A `kind` that is no execution is a request that
    reviewers refused.
    """

    kind: str = "run_code"
    begun: float = 0.0
    seconds: float = 0.0
    end: str = "ok"
    blame: str = ""
    reason: str = ""
    code: str = ""
    output: str = ""
    results: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    pictures: tuple[Picture, ...] = ()
    error: str = ""
    rollback: str = ""
    lost: str = ""
    denied: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    reviews: tuple[str, ...] = ()


@dataclass(slots=True)
class Journal:
    """The executions of one session by their ids, in their order. `sandbox` is empty where the journal names none."""

    sandbox: str = ""
    executions: dict[str, Recorded] = field(default_factory=dict)
    _tools: dict[str, list[str]] = field(default_factory=dict)
    _reviews: dict[str, list[str]] = field(default_factory=dict)

    def take(self, kind: str, body: Mapping[str, Any], at: float) -> None:
        """Add the next record; `at`: when it was written, in seconds since the epoch."""
        if len(self.executions) >= MAX_EXECUTIONS:
            return
        match kind:
            case "opened":
                self.sandbox = self.sandbox or _word(body.get("sandbox") or body.get("session"))
            case "execution" | "terminal":
                self.executions[_word(body.get("id"))] = _recorded(body, at)
            case "tool_call":
                self._note(self._tools, body, _tool(body))
            case "review":
                self._note(self._reviews, body, _review(body))
                if body.get("decision") not in _LET:
                    self.executions[f"review {_word(body.get('id'))}"] = _refused(body, at)

    def _note(self, notes: dict[str, list[str]], body: Mapping[str, Any], text: str) -> None:
        kept = notes.setdefault(_word(body.get("execution")), [])
        if len(kept) < MAX_ITEMS:
            kept.append(text)

    def of(self, execution_id: str) -> Recorded | None:
        """The execution with what was recorded of its tools and reviews."""
        found = self.executions.get(execution_id)
        if found is None:
            return None
        tools, reviews = self._tools.get(execution_id, ()), self._reviews.get(execution_id, ())
        if not tools and not reviews:
            return found
        return replace(found, tools=tuple(tools), reviews=(*found.reviews, *reviews))

    def all(self) -> Iterator[tuple[str, Recorded]]:
        """The executions with their ids, in the order of their records."""
        for call in self.executions:
            found = self.of(call)
            if found is not None:
                yield call, found

    def show(self, execution_id: str, shown: Iterable[Picture]) -> None:
        """Replace the pictures of an execution."""
        self.executions[execution_id] = replace(self.executions[execution_id], pictures=tuple(shown))


def _recorded(body: Mapping[str, Any], at: float) -> Recorded:
    error, files = mapping(body.get("error")), mapping(body.get("files"))
    changed = [_word(mapping(one).get("path")) for one in items(files.get("changed"))[:MAX_ITEMS]]
    removed = [f"-{_word(one)}" for one in items(files.get("removed"))[:MAX_ITEMS]]
    results = [mapping(one) for one in items(body.get("results"))[:MAX_ITEMS]]
    shown = [_displayed(parts) for parts in _grouped(results)]
    seconds = _number(body.get("seconds"))
    return Recorded(
        kind="run_code" if body.get("type") == "cell" else "run_command",
        begun=_number(body.get("begun")) or at - seconds,
        seconds=seconds,
        end=_word(body.get("outcome")) or "ok",
        blame=_word(body.get("blame")),
        reason=_word(body.get("reason")),
        code=_code(body),
        output="\n".join(filter(None, (_text(body.get("stdout")), _text(body.get("stderr"))))),
        results=tuple(one for one in shown if isinstance(one, str)),
        frames=tuple(frame for one in shown if isinstance(one, tuple) for frame in one),
        pictures=tuple(one for one in shown if isinstance(one, Picture)),
        error=f"{error.get('name', '')}: {error.get('value', '')}"[:MAX_TEXT] if error else "",
        rollback=_rolled_back(mapping(body.get("rollback"))),
        lost=", ".join(_word(one) for one in items(body.get("lost"))[:MAX_ITEMS]),
        denied=tuple(_word(one) for one in items(body.get("denied_hosts"))[:MAX_ITEMS]),
        files=tuple((changed + removed)[:MAX_ITEMS]),
    )


def _refused(body: Mapping[str, Any], at: float) -> Recorded:
    what = _word(body.get("method")).rpartition("/")[2]
    said = Recorded(kind=f"request {what}", begun=at, end="denied", reviews=(_review(body),))
    return replace(said, blame="policy", reason=_word(body.get("decision")))


def _rolled_back(body: Mapping[str, Any]) -> str:
    if not body:
        return ""
    return "done" if body.get("done") is True else f"refused: {_word(body.get('reason'))}"


def _tool(body: Mapping[str, Any]) -> str:
    error, name = mapping(body.get("error")), _word(body.get("tool"))
    return f"{name}: {_word(error.get('reason'))}" if error else name


def _review(body: Mapping[str, Any]) -> str:
    who = _word(body.get("by")) or _word(body.get("rule"))
    said = " by ".join(filter(None, (_word(body.get("decision")), who)))
    why = _word(body.get("reason"))
    return f"{said}: {why}" if why else said


def _grouped(results: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Mapping[str, Any]]]:
    """The parts of each result by their types: a record has them one after the other."""
    parts: dict[str, Mapping[str, Any]] = {}
    main = None
    for one in results:
        mime = _word(one.get("mime"))
        if parts and (mime in parts or one.get("main") != main):
            yield parts
            parts = {}
        parts[mime], main = one, one.get("main")
    if parts:
        yield parts


def _displayed(parts: Mapping[str, Mapping[str, Any]]) -> str | Picture | tuple[Frame, ...]:
    """Choose the part of a result that a notebook would show: its picture, its tables, or its text."""
    drawn = [picture for picture in map(pictures.recorded, parts.values()) if picture is not None]
    if drawn:
        return next((picture for picture in drawn if picture.data), drawn[0])
    texts = {mime: text[:MAX_TEXT] for mime, one in parts.items() if isinstance(text := one.get("text"), str)}
    found = frames(texts.get("text/html", ""))
    if found:
        return found
    best = next((texts[mime] for mime in ("text/plain", "text/markdown", *texts) if mime in texts), None)
    if best is not None:
        return best
    mime, first = next(iter(parts.items()))
    return f"[{mime}, {_word(first.get('bytes'))} bytes]"


def _code(body: Mapping[str, Any]) -> str:
    text = mapping(body.get("code")).get("text")
    if isinstance(text, str):
        return text[:MAX_TEXT]
    return " ".join(_word(one) for one in items(body.get("argv"))[:MAX_ITEMS])[:MAX_TEXT]


def _text(blob: Any) -> str:
    found = mapping(blob)
    text = found.get("text")
    more = f"\n… cut: {_word(found.get('bytes'))} bytes in all" if found.get("cut") else ""
    return (text[:MAX_TEXT] if isinstance(text, str) else "") + more


def mapping(value: object) -> Mapping[str, Any]:
    """The value of a record if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """The value of a record if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _word(value: object) -> str:
    return "" if value is None else str(value)[:MAX_WORD]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else 0.0
