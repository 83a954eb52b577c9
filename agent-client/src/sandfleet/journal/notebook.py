"""A journal as a notebook: what was run, and below it what came of it. Nothing in it acts on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sandfleet.journal.records import Record
from sandfleet.values import _show

# Of one text and of one list that are shown; the record has the rest.
MAX_LINES, MAX_COLUMNS, MAX_ITEMS = 40, 400, 20
# Of the lines that are shown of a long text: an error stands at its end.
_LAST_LINES = 10

Paint = Callable[[str, str], str]
_GOOD = ("ok",)
# Of an execution whose result was shown, and whose record was not written before its executor was killed.
UNRECORDED = "ended, and its executor was killed before it wrote what had run"


def visible(text: str) -> str:
    """Write what a terminal would act on, or would not show, as its escape; line ends too."""
    return _show.visible(text, kept="\t")


def plain(text: str, _style: str) -> str:
    """Paint nothing."""
    return text


def page(record: Record, paint: Paint = plain) -> Iterator[str]:
    """Yield the lines of a record. `paint(text, style)` colours: styles are dim, code, good, bad and name."""
    head, lines = _PAGES.get(record.kind, _other)(record.body, paint)
    moment = datetime.fromtimestamp(max(0.0, min(record.at, 2e11)), UTC).strftime("%Y-%m-%d %H:%M:%S")
    yield f"{paint(f'[{record.number}]', 'name')} {paint(moment, 'dim')}  {head}"
    for line in lines:
        yield f"    {line}" if line else ""


def text_of(value: object) -> str:
    """Return a value of a record as text for one line."""
    return visible(value if isinstance(value, str) else "" if value is None else str(value))[:MAX_COLUMNS]


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value of a record if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """Return a value of a record if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def title(body: Mapping[str, Any]) -> str:
    """Return what an execution was, in a few words."""
    if body.get("type") == "cell":
        return f"cell in {text_of(body.get('context')) or 'default'}"
    return "terminal" if body.get("terminal") else "command"


def outcome(body: Mapping[str, Any]) -> str:
    """Return how an execution ended, in a few words."""
    word = text_of(body.get("outcome")) or "?"
    code, reason = body.get("exit_code"), text_of(body.get("reason"))
    said = f"exit {text_of(code)}" if code and word in _GOOD else word
    return f"{said} ({reason})" if reason else said


def code_of(body: Mapping[str, Any]) -> str:
    """Return the code of an execution, or the arguments of a command."""
    text = mapping(body.get("code")).get("text")
    if isinstance(text, str):
        return text
    return shlex.join(text_of(each) for each in items(body.get("argv")))


def _execution(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
    seconds = body.get("seconds")
    took = f"{seconds:.3f} s" if isinstance(seconds, int | float) and abs(seconds) < 1e9 else ""
    good = body.get("outcome") in _GOOD and not body.get("exit_code")
    head = f"{title(body)}  {paint(outcome(body), 'good' if good else 'bad')}  {paint(took, 'dim')}".rstrip()
    mark = "│ " if body.get("type") == "cell" else "$ "
    if body.get("unrecorded"):
        return f"{title(body)}  {paint('?', 'bad')}", [f"it {UNRECORDED}"]
    lines = [paint(mark, "dim") + paint(line, "code") for line in _clipped(code_of(body))]
    lines += _clipped(_text(body, "stdout"))
    lines += [paint(line, "bad") for line in _clipped(_text(body, "stderr"))]
    for result in items(body.get("results"))[:MAX_ITEMS]:
        lines += _result(mapping(result), paint)
    error = mapping(body.get("error"))
    if error:
        first, *rest = _clipped(f"{error.get('name')}: {error.get('value')}") or [""]
        lines += [paint(line, "bad") for line in (first, *rest)]
    return head, [*lines, *_files(mapping(body.get("files")), paint)]


def _text(body: Mapping[str, Any], stream: str) -> str:
    blob = mapping(body.get(stream))
    text = blob.get("text")
    shown = text if isinstance(text, str) else ""
    return f"{shown}\n… {text_of(blob.get('bytes'))} bytes in all" if blob.get("cut") else shown


def _result(result: Mapping[str, Any], paint: Paint) -> list[str]:
    text = result.get("text")
    if result.get("mime") == "text/plain" and isinstance(text, str):
        return _clipped(text)
    return [paint(f"<{text_of(result.get('mime'))}, {text_of(result.get('bytes'))} bytes>", "dim")]


def _files(files: Mapping[str, Any], paint: Paint) -> list[str]:
    changed = [mapping(each) for each in items(files.get("changed"))]
    said = [f"~ {text_of(each.get('path'))} ({text_of(each.get('size'))} bytes)" for each in changed[:MAX_ITEMS]]
    said += [f"- {text_of(path)}" for path in items(files.get("removed"))[:MAX_ITEMS]]
    if len(changed) > MAX_ITEMS:
        said.append(f"… {len(changed)} files in all")
    return [paint(line, "dim") for line in said]


def _clipped(text: str) -> list[str]:
    """The lines of a text, escaped; of many the first and the last ones."""
    if not text:
        return []
    found = text.rstrip("\n").split("\n")
    left_out = len(found) - MAX_LINES
    if left_out > 1:
        found[MAX_LINES - _LAST_LINES : -_LAST_LINES] = [f"… {left_out} more lines"]
    return [visible(line)[:MAX_COLUMNS] for line in found]


def _opened(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
    said = f"session {text_of(body.get('session'))}, pod {text_of(body.get('pod'))}"
    what = [text_of(body.get(name)) for name in ("contract", "isolation", "executor")]
    lines = [paint(", ".join(word for word in what if word), "dim")]
    mounts = [f"{text_of(path)} from {text_of(folder)}" for path, folder in mapping(body.get("mounts")).items()]
    for word, found in (
        ("network", [body["network"]] if body.get("network") else []),
        ("packages", items(body.get("packages"))),
        ("mounts", mounts),
        ("variables, as digests", list(mapping(body.get("envs")))),
    ):
        if found:
            lines.append(paint(f"{word}: {_listed(found)}", "dim"))
    earlier = mapping(body.get("earlier"))
    if earlier:
        lines.append(f"goes on from record {text_of(earlier.get('n'))} of pod {text_of(earlier.get('pod'))}")
    return said, lines


def _listed(found: list[Any]) -> str:
    more = f" and {len(found) - MAX_ITEMS} more" if len(found) > MAX_ITEMS else ""
    return ", ".join(text_of(each) for each in found[:MAX_ITEMS]) + more


def _context(body: Mapping[str, Any], _paint: Paint) -> tuple[str, list[str]]:
    operation, parent = text_of(body.get("op")), text_of(body.get("parent"))
    if parent:
        return f"context {parent} {operation} as {_listed(items(body.get('contexts')))}", []
    language = f" ({text_of(body.get('language'))})" if body.get("language") else ""
    return f"context {text_of(body.get('context'))} {operation}{language}", []


def _service(body: Mapping[str, Any], _paint: Paint) -> tuple[str, list[str]]:
    declared = [mapping(each).get("name") for each in items(mapping(body.get("spec")).get("services"))]
    names = [name for name in (body.get("name"), *items(body.get("names")), *declared) if name]
    return f"service {_listed(names)} {text_of(body.get('op'))}".replace("  ", " "), []


def _packages(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
    word = paint("installed", "good") if body.get("ok") else paint(text_of(body.get("reason")) or "failed", "bad")
    names = [
        f"{text_of(one.get('name'))} {text_of(one.get('version'))}"
        for one in map(mapping, items(body.get("installed")))
    ]
    return f"packages  {word}", [_listed(names or items(body.get("requested")))]


def _tool(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
    error = mapping(body.get("error"))
    end = paint(text_of(error.get("reason")), "bad") if error else paint("answered", "good")
    lines = [f"{name}: {line}" for name in ("arguments", "answer") for line in _clipped(_value(body.get(name)))[:1]]
    return f"tool {text_of(body.get('tool'))}  {end}", lines


def _value(value: object) -> str:
    found = mapping(value)
    return str(found["text"]) if isinstance(found.get("text"), str) else "(secret)" if found.get("hmac") else ""


def _review(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
    good = body.get("decision") == "approved"
    who = text_of(body.get("by")) or text_of(body.get("rule"))
    said = f"review of {text_of(body.get('method'))}  {paint(text_of(body.get('decision')), 'good' if good else 'bad')}"
    return f"{said} by {who}" if who else said, _clipped(text_of(body.get("reason")))


def _other(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
    words = ("op", "method", "path", "to", "context", "name", "missed", "reason")
    said = " ".join(text_of(body[word]) for word in words if body.get(word))
    size = body.get("size")
    return said, [paint(f"{text_of(size)} byte{'' if size == 1 else 's'}", "dim")] if size is not None else []


def _named(word: str) -> Callable[[Mapping[str, Any], Paint], tuple[str, list[str]]]:
    def shown(body: Mapping[str, Any], paint: Paint) -> tuple[str, list[str]]:
        said, lines = _other(body, paint)
        return f"{word} {said}".rstrip(), lines

    return shown


_PAGES: dict[str, Callable[[Mapping[str, Any], Paint], tuple[str, list[str]]]] = {
    "execution": _execution,
    "terminal": _execution,
    "opened": _opened,
    "context": _context,
    "service": _service,
    "packages": _packages,
    "tool_call": _tool,
    "review": _review,
    **{
        word: _named(word)
        for word in (
            "file",
            "state",
            "table",
            "look",
            "suspended",
            "resumed",
            "repaired",
            "gap",
            "call",
            "closed",
        )
    },
}
