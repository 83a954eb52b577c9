"""Counts the lines of code of the tree by package and room: no blank line, comment, docstring or generated file.

With a revision as its argument it counts that commit, and shows the difference between it and the tree.
"""

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    "client": "agent-client/src/sandfleet",
    "executor": "executor-image/src/sandfleet_executor",
    "operator": "operator/src/sandfleet_operator",
    "rules": "proto/rules/sandfleet_rules",
}
BESIDE = {"examples": "examples", "scripts": "scripts", "tools": "tools", "tests": "tests"}
GENERATED = ("/_sync/", "values/reasons.py")
WRITTEN = "_sync/portal.py"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, OWNERS) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, text.end_lineno + 1))
    return len(lines)


def room_of(name: str) -> str | None:
    for package, folder in (SOURCES | BESIDE).items():
        if name.startswith(folder + "/"):
            inner = name.removeprefix(folder + "/").split("/")
            depth = 2 if package in ("executor", "operator") and inner[0] in ("core", "effects", "fleet", "plan") else 1
            return "/".join([package, *inner[:-1][:depth]])
    return None


def in_tree() -> dict[str, str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split()
    return {name: (ROOT / name).read_text() for name in listed if (ROOT / name).is_file()}


def in_commit(revision: str) -> dict[str, str]:
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {
            member.name: archive.extractfile(member).read().decode()
            for member in archive
            if member.isfile() and member.name.endswith(".py")
        }


def count(files: dict[str, str]) -> Counter[str]:
    rooms = Counter[str]()
    for name, source in files.items():
        generated = any(part in name for part in GENERATED) and not name.endswith(WRITTEN)
        if (room := room_of(name)) and not generated:
            lines = code_lines(source)
            parts = room.split("/")
            for depth in range(len(parts)):
                rooms["/".join(parts[: depth + 1])] += lines
            rooms["all sources"] += lines if parts[0] in SOURCES else 0
    return rooms


def main(arguments: list[str]) -> None:
    now = count(in_tree())
    before = count(in_commit(arguments[0])) if arguments else now
    for room in sorted(now.keys() | before.keys(), key=lambda room: (room == "all sources", room)):
        title = "  " * room.count("/") + room if "/" in room else room
        difference = f" {now[room] - before[room]:+7,}" if before[room] != now[room] else ""
        print(f"{title:<40}{now[room]:>8,}{difference}")


if __name__ == "__main__":
    main(sys.argv[1:])
