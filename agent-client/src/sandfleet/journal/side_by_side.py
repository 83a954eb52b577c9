"""Two sessions of one task side by side: code, outcome, results and time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet.journal.notebook import code_of, items, mapping, outcome
from sandfleet.journal.records import Record
from sandfleet.journal.sameness import Sameness, compare

# Executions of one session that are compared: aligning takes time that grows with their product.
MAX_STEPS = 2000


@dataclass(frozen=True, slots=True)
class Turn:
    """One execution of a session."""

    number: int
    code: str
    outcome: str
    seconds: float
    output: str
    record: Record


@dataclass(frozen=True, slots=True)
class Row:
    """What stands side by side; None where one session has nothing beside the other's execution.

    same_code  whether both have run the same code. `sameness` says what came of it, where both have run something.
    """

    one: Turn | None
    other: Turn | None
    same_code: bool
    sameness: Sameness | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sessions side by side. `seconds` are those of all executions of each, `failures` those that did not end well.

    left_out  executions beyond the 2,000 of each that are compared.
    """

    rows: tuple[Row, ...]
    seconds: tuple[float, float]
    failures: tuple[int, int]
    left_out: int = 0


def turns(records: Iterable[Record]) -> list[Turn]:
    """Return the executions of a session, in their order."""
    return [_turn(record) for record in records if record.kind == "execution" and "cut_record" not in record.body]


def _turn(record: Record) -> Turn:
    body = record.body
    seconds = body.get("seconds")
    took = float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else 0.0
    return Turn(record.number, code_of(body), outcome(body), took, _output(record), record)


def _output(record: Record) -> str:
    """What it showed: results, or else what it printed."""
    body = record.body
    results = map(mapping, items(body.get("results")))
    shown = [str(each["text"]) for each in results if each.get("mime") == "text/plain" and "text" in each]
    error = mapping(body.get("error"))
    if error:
        shown.append(f"{error.get('name')}: {error.get('value')}")
    return "\n".join(shown) or str(mapping(body.get("stdout")).get("text", ""))


def side_by_side(one: Iterable[Record], other: Iterable[Record]) -> Comparison:
    """Align two sessions by the code that both have run; what differs between is set side by side in its order."""
    first, second = turns(one), turns(other)
    left_out = max(0, len(first) - MAX_STEPS) + max(0, len(second) - MAX_STEPS)
    first, second = first[:MAX_STEPS], second[:MAX_STEPS]
    matcher = difflib.SequenceMatcher(None, [turn.code for turn in first], [turn.code for turn in second], False)
    rows: list[Row] = []
    for _, start, end, other_start, other_end in matcher.get_opcodes():
        here, there = first[start:end], second[other_start:other_end]
        rows += [_row(_at(here, place), _at(there, place)) for place in range(max(len(here), len(there)))]
    seconds = (sum(turn.seconds for turn in first), sum(turn.seconds for turn in second))
    failures = (_failures(first), _failures(second))
    return Comparison(tuple(rows), seconds, failures, left_out)


def _at(found: list[Turn], place: int) -> Turn | None:
    return found[place] if place < len(found) else None


def _row(one: Turn | None, other: Turn | None) -> Row:
    if one is None or other is None:
        return Row(one, other, same_code=False, sameness=None)
    return Row(one, other, one.code == other.code, compare(one.record.body, other.record.body))


def _failures(found: list[Turn]) -> int:
    return sum(1 for turn in found if turn.outcome != "ok")
