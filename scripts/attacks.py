#!/usr/bin/env python3
"""Write the table of attacks into docs/explanation/isolation.md, from the runs of `make attacks`.

`attacks.py [FILE …]` takes what build/attacks/*.json says into docs/explanation/attacks.json, and writes the table.
With `--check` nothing is written; the exit code is 1 if the table is out of date, or a test of an attack is not in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs/explanation/attacks.json"
PAGE = ROOT / "docs/explanation/isolation.md"
# Those of the egress process need no sandbox.
FOLDERS = ("tests/contract", "tests/unit/operator/fleet/egress")
# The others say nothing of where a sandbox runs.
IN_PODS = "tests/contract/executor"
PLACES = {"root": "one machine, root", "user": "without root", "pod": "gVisor pod"}
NOT_HERE = {"held": 0, "open": 0, "not here": 1}
BEGIN, END = "<!-- attacks: begin -->\n", "<!-- attacks: end -->\n"
MARK = re.compile(r"@pytest\.mark\.attack\(\s*(\"(?:[^\"])*\"),\s*(\"(?:[^\"])*\")")


def marked(folders: Iterable[str] = FOLDERS) -> dict[str, str]:
    """Attack → what it is to meet, as the tests say it."""
    found = {}
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))):
        found.update({json.loads(name): json.loads(expected) for name, expected in MARK.findall(path.read_text())})
    return found


def taken(kept: dict[str, Any], run: dict[str, Any]) -> None:
    """Takes one run into what is kept: the place's results are those of this run alone."""
    for attack in kept.values():
        attack["places"].pop(run["place"], None)
    for row in run["attacks"]:
        attack = kept.setdefault(row["attack"], {"places": {}, "control": ""})
        counts = attack["places"].setdefault(run["place"], {"held": 0, "open": 0, "not here": 0})
        counts[{True: "held", False: "open", None: "not here"}[row["held"]]] += 1
        attack["control"] = row["control"] or attack["control"]


def cell(counts: dict[str, int] | None) -> str:
    if counts is None:
        return "not run"
    held, open_ = counts["held"], counts["open"]
    if not held + open_:
        return "-"
    if not open_:
        return f"{held} held" if held > 1 else "held"
    return f"**{open_} of {held + open_} not held**" if held + open_ > 1 else "**not held**"


def table(kept: dict[str, Any], attacks: dict[str, str]) -> str:
    """In the order of the tests' files."""
    head = ["hostile code or a hostile peer …", "meets", *PLACES.values(), "control"]
    rows = [head, ["---"] * len(head)]
    in_pods = marked([IN_PODS])
    for name, expected in attacks.items():
        known = kept.get(name, {"places": {}, "control": ""})
        places = known["places"] if name in in_pods else {**known["places"], "pod": NOT_HERE}
        rows.append([name, expected, *(cell(places.get(each)) for each in PLACES), known["control"] or "-"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(arguments: list[str]) -> int:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for path in (one for one in arguments if one != "--check"):
        taken(kept, json.loads(Path(path).read_text()))
    attacks = marked()
    kept = {name: one for name, one in sorted(kept.items()) if name in attacks}
    before, _, rest = PAGE.read_text().partition(BEGIN)
    page = before + BEGIN + "\n" + table(kept, attacks) + "\n" + END + rest.partition(END)[2]
    if "--check" in arguments:
        if page != PAGE.read_text():
            print(f"{PAGE.relative_to(ROOT)} is out of date: run scripts/attacks.py", file=sys.stderr)
            return 1
        return 0
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
