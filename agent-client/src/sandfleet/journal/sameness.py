"""Whether two records say the same: wholly, but for what named rules allow, or with a difference that is shown."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet.journal.notebook import items, mapping

# Of one difference that is shown, in lines.
MAX_DIFF_LINES = 60

# Name of a rule, and what may differ by it. Each takes time that grows with the text alone.
RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "times",
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
            r"|\b\d\d:\d\d:\d\d(?:\.\d{1,9})?|\b1[6-9]\d{8}(?:\.\d{1,9})?\b"
        ),
    ),
    ("durations", re.compile(r"\b\d{1,12}(?:\.\d{1,12})? ?(?:ns|[µμ]s|us|ms|s|sec|seconds?|min|minutes?)\b")),
    ("addresses", re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")),
    ("temporary paths", re.compile(r"/tmp/[^\s'\"<>:,)]{1,200}")),  # noqa: S108  a pattern
    ("process ids", re.compile(r"\b(?:pid|PID|Pid)[ =:]{0,3}\d{1,10}\b")),
    ("ids", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")),
    ("local ports", re.compile(r"\b(?:localhost|127\.0\.0\.1):\d{2,5}\b")),
)


class Verdict(enum.Enum):
    """How a step went the second time."""

    SAME = "same"
    BUT_FOR = "same but for"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs: `field` as the record names it, what it was and is, and for texts the diff, line by line."""

    field: str
    was: str
    now: str
    diff: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sameness:
    """How two records compare. `rules` are the names of those that allow what differs."""

    verdict: Verdict
    rules: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pair:
    """A text of both records; None where the record has it not, or only its begin."""

    field: str
    was: str | None
    now: str | None
    marks: tuple[str, str] = ("", "")


def compare(was: Mapping[str, Any], now: Mapping[str, Any]) -> Sameness:
    """Compare two executions by what came of them: outcome, output, results, error and files."""
    rules: dict[str, None] = {}
    differences = []
    for pair in _pairs(was, now):
        if pair.was is not None and pair.was == pair.now and pair.marks[0] == pair.marks[1]:
            continue
        allowed = needed_rules(pair.was, pair.now) if pair.was is not None and pair.now is not None else None
        if allowed:
            rules |= dict.fromkeys(allowed)
        else:
            differences.append(_difference(pair))
    if differences:
        return Sameness(Verdict.DIFFERENT, tuple(rules), tuple(differences))
    return Sameness(Verdict.BUT_FOR if rules else Verdict.SAME, tuple(rules))


def needed_rules(was: str, now: str) -> tuple[str, ...] | None:
    """Return the fewest rules under which two texts are equal; None where they are not under all of them."""
    if was == now:
        return ()
    wanted = dict(RULES)
    if _under(was, wanted) != _under(now, wanted):
        return None
    for name in list(wanted):
        fewer = {other: pattern for other, pattern in wanted.items() if other != name}
        if _under(was, fewer) == _under(now, fewer):
            wanted = fewer
    return tuple(wanted)


def _under(text: str, rules: Mapping[str, re.Pattern[str]]) -> str:
    for name, pattern in rules.items():
        text = pattern.sub(f"<{name}>", text)
    return text


def _pairs(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[_Pair]:
    for field in ("outcome", "reason", "exit_code"):
        yield _Pair(field, _word(was.get(field)), _word(now.get(field)))
    for field in ("stdout", "stderr"):
        yield _blob(field, mapping(was.get(field)), mapping(now.get(field)))
    for field in ("name", "value"):
        one, other = mapping(was.get("error")).get(field), mapping(now.get("error")).get(field)
        yield _Pair(f"error.{field}", _word(one), _word(other))
    yield from _results(items(was.get("results")), items(now.get("results")))
    yield from _files(mapping(was.get("files")), mapping(now.get("files")))


def _word(value: object) -> str:
    return "" if value is None else str(value)


def _blob(field: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> _Pair:
    """Bytes of which the records have digests, and the begin as text."""
    marks = (_word(was.get("sha256")), _word(now.get("sha256")))
    if marks[0] == marks[1]:
        return _Pair(field, "", "")
    texts = [one.get("text") if not one.get("cut") else None for one in (was, now)]
    one, other = (text if isinstance(text, str) else None for text in texts)
    return _Pair(field, one, other, ("", "") if one is not None and other is not None else marks)


def _results(was: list[Any], now: list[Any]) -> Iterator[_Pair]:
    if len(was) != len(now):
        yield _Pair("results", f"{len(was)} results", f"{len(now)} results")
    for number, (one, other) in enumerate(zip(was, now, strict=False), start=1):
        first, second = mapping(one), mapping(other)
        field = f"results[{number}]"
        yield _Pair(f"{field}.mime", _word(first.get("mime")), _word(second.get("mime")))
        yield _blob(field, first, second)


def _files(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[_Pair]:
    first, second = _digests(was), _digests(now)
    for path in sorted(first.keys() | second.keys()):
        yield _Pair(f"files {path}", first.get(path, "not changed"), second.get(path, "not changed"))
    gone = [sorted(_word(path) for path in items(one.get("removed"))) for one in (was, now)]
    yield _Pair("files removed", "\n".join(gone[0]), "\n".join(gone[1]))


def _digests(files: Mapping[str, Any]) -> dict[str, str]:
    found = [mapping(each) for each in items(files.get("changed"))]
    return {_word(each.get("path")): f"sha256 {_word(each.get('sha256')) or 'not read'}" for each in found}


def _difference(pair: _Pair) -> Difference:
    was, now = pair.was, pair.now
    if was is None or now is None:
        # The records have not all of it: the digests differ.
        was, now = (
            f"sha256 {mark}" if text is None else text for text, mark in zip((was, now), pair.marks, strict=True)
        )
        return Difference(pair.field, was, now)
    lines = difflib.unified_diff(was.splitlines(), now.splitlines(), "recorded", "replayed", lineterm="", n=2)
    diff = [line for line, _ in zip(lines, range(MAX_DIFF_LINES), strict=False)]
    return Difference(pair.field, was, now, tuple(diff))
