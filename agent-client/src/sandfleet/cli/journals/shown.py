"""What the commands for journals print. Nothing of a journal acts on the terminal."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sandfleet.cli import table
from sandfleet.journal.notebook import visible

if TYPE_CHECKING:
    from sandfleet.journal.side_by_side import Comparison, Row, Turn
    from sandfleet.journal.verify import Verification
    from sandfleet.replay.runner import Replay, Replayed

_STYLES = {"dim": "2", "code": "36", "good": "32", "bad": "31", "name": "1"}
_WIDTH = 44


def paint(text: str, style: str) -> str:
    """Colour a text, where standard output shows colours."""
    if not text or style not in _STYLES or table.is_plain(sys.stdout):
        return text
    return f"\033[{_STYLES[style]}m{text}\033[0m"


def verification(found: Verification) -> None:
    """Print what a check has found: the faults, what is proved, and what is not."""
    for fault in found.faults:
        print(paint(visible(str(fault)), "bad"))
    if found.fault_count > len(found.faults):
        print(f"… {found.fault_count} faults in all")
    word = paint("whole", "good") if found.ok else paint(f"not whole: {_many(found.fault_count, 'fault')}", "bad")
    if found.pod_uid:
        print(f"session {visible(found.session) or '?'}, pod {visible(found.pod_uid)}")
    print(f"{_many(found.count, 'record')}, {found.first} to {found.head.number}: {word}")
    keys = "a key that you trust" if found.is_pinned else "a key that came with the signature"
    if found.kept:
        print(f"records up to {found.kept}: proved by a head that the client has kept")
    if found.signed:
        print(f"records up to {found.signed}: proved by a head that the fleet has signed, with {keys}")
    if found.proved < found.head.number:
        print(f"from record {found.proved + 1} on: only the executor vouches for them")
    if not found.ends_known:
        print("no head says whether later records were cut off")
    for note in found.notes:
        print(visible(note))


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def verification_json(found: Verification) -> dict[str, Any]:
    """Return the same for programs."""
    said = asdict(found)
    said["faults"] = [{**fault, "kind": fault["kind"].value} for fault in said["faults"]]
    vouched = found.proved + 1 if found.proved < found.head.number else None
    return {**said, "ok": found.ok, "proved": found.proved, "only_executor_from": vouched}


def step(one: Replayed) -> None:
    """Print how one step of a replay went."""
    good = {"same": "good", "same but for": "good", "skipped": "dim", "not replayed": "name"}.get(one.word, "bad")
    found = one.sameness
    rules = f" {', '.join(found.rules)}" if found is not None and found.rules and one.word == "same but for" else ""
    why = f": {one.why}" if one.why else ""
    print(f"{paint(f'[{one.number}]', 'name')} {paint(one.word + rules, good)}{visible(why)}  {one.step.title}")
    for difference in found.differences if found is not None else ():
        print(f"    {visible(difference.field)}")
        lines = difference.diff or (f"-{difference.was}", f"+{difference.now}")
        for line in lines:
            style = "bad" if line.startswith("-") else "good" if line.startswith("+") else "dim"
            print(f"      {paint(visible(line)[:400], style)}")


def step_json(one: Replayed) -> str:
    """Return the same as a line for programs."""
    found = one.sameness
    said = {
        "number": one.number,
        "kind": one.step.record.kind,
        "title": one.step.title,
        "result": one.word,
        "why": one.why,
        "rules": list(found.rules) if found is not None else [],
        "differences": [asdict(each) for each in found.differences] if found is not None else [],
    }
    return json.dumps(said)


def replayed(done: Replay) -> None:
    """Print the sum of a replay."""
    words = ("same", "same but for", "different", "cannot be replayed", "not replayed", "skipped")
    print(", ".join(f"{done.count(word)} {word}" for word in words if done.count(word)) or "nothing to replay")
    if done.stopped:
        print(f"stopped: {visible(done.stopped)}; --go-on goes on behind such a step")


def comparison(found: Comparison, names: tuple[str, str]) -> None:
    """Print two sessions side by side."""
    print(f"{'':8}{_cell(visible(names[0]))}  {visible(names[1])}")
    for row in found.rows:
        for line in _row(row):
            print(line.rstrip())
    seconds, failures = found.seconds, found.failures
    print(f"{'time':8}{_cell(f'{seconds[0]:.3f} s')}  {seconds[1]:.3f} s")
    print(f"{'failed':8}{_cell(str(failures[0]))}  {failures[1]}")
    if found.left_out:
        print(f"{table.count(found.left_out, 'execution')} left out")


def _row(row: Row) -> list[str]:
    mark = "=" if row.same_code else "<" if row.other is None else ">" if row.one is None else "≠"
    word = row.sameness.verdict.value if row.sameness is not None else "only here"
    heads = [_cell(_head(turn)) for turn in (row.one, row.other)]
    lines = [f"{mark:8}{heads[0]}  {heads[1]}"]
    codes = [turn.code.splitlines() if turn else [] for turn in (row.one, row.other)]
    lines += _columns(codes, "  │ ")
    outputs = [turn.output.splitlines() if turn else [] for turn in (row.one, row.other)]
    if row.same_code and word == "same":
        outputs[1] = ["the same"] if any(outputs) else []
    return [*lines, *_columns(outputs, "  > "), ""]


def _head(turn: Turn | None) -> str:
    return f"[{turn.number}] {turn.outcome}, {turn.seconds:.3f} s" if turn else ""


def _columns(texts: list[list[str]], mark: str) -> list[str]:
    most = min(12, max(map(len, texts)))
    lines = []
    for number in range(most):
        cells = [text[number] if number < len(text) else "" for text in texts]
        lines.append(f"{mark:8}{_cell(visible(cells[0]))}  {visible(cells[1])[:_WIDTH]}")
    if max(map(len, texts)) > most:
        lines.append(f"{'':8}…")
    return lines


def _cell(text: str) -> str:
    return text[:_WIDTH].ljust(_WIDTH)


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "rows": [
            {
                "same_code": row.same_code,
                "result": row.sameness.verdict.value if row.sameness is not None else None,
                "rules": list(row.sameness.rules) if row.sameness is not None else [],
                "one": _turn(row.one),
                "other": _turn(row.other),
            }
            for row in found.rows
        ],
        "seconds": list(found.seconds),
        "failures": list(found.failures),
        "left_out": found.left_out,
    }


def _turn(turn: Turn | None) -> dict[str, Any] | None:
    if turn is None:
        return None
    return {
        "number": turn.number,
        "code": turn.code,
        "outcome": turn.outcome,
        "seconds": turn.seconds,
        "output": turn.output,
    }
