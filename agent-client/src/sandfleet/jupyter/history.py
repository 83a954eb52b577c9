"""The cells of one kernel that consoles ask for, and whether the lines of a console are a whole cell. Pure."""

from __future__ import annotations

from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from codeop import CommandCompiler
from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandfleet.values.execution import Execution

MOST_CELLS = 1_000
MOST_TEXT = 100_000


class History:
    """The last cells, each with its number, its code and its value as text."""

    def __init__(self) -> None:
        self._cells: deque[tuple[int, str, str | None]] = deque(maxlen=MOST_CELLS)

    def add(self, number: int, code: str, execution: Execution | None) -> None:
        """Record a cell that has ended."""
        text = execution.text if execution is not None else None
        self._cells.append((number, code[:MOST_TEXT], text[:MOST_TEXT] if text is not None else None))

    def ask(self, request: Mapping[str, Any]) -> list[tuple[int, int, Any]]:
        """Return what a `history_request` asks for, the oldest first. A kernel has one session, 0."""
        found: Sequence[tuple[int, str, str | None]] = list(self._cells)
        match request.get("hist_access_type"):
            case "range":
                start, stop = _whole(request.get("start"), 1), _whole(request.get("stop"), None)
                start = start + self._next() if start is not None and start < 0 else start
                found = [each for each in found if (start or 0) <= each[0] and (stop is None or each[0] < stop)]
                found = found if _whole(request.get("session"), 0) == 0 else []
            case "search":
                pattern = str(request.get("pattern") or "*")
                found = [each for each in found if fnmatchcase(each[1], pattern)]
                if request.get("unique"):
                    found = sorted({each[1]: each for each in found}.values())
                found = _last(found, request.get("n"))
            case _:
                found = _last(found, request.get("n"))
        has_values = bool(request.get("output"))
        return [(0, number, (code, value) if has_values else code) for number, code, value in found]

    def _next(self) -> int:
        return self._cells[-1][0] + 1 if self._cells else 1


def is_complete(language: str, code: str) -> dict[str, Any]:
    """Say whether a console should run these lines or wait for more."""
    lines = code.split("\n")
    if language != "python" or any(line.lstrip()[:1] in ("%", "!") or line.rstrip()[-1:] == "?" for line in lines):
        # Only the language's own program, or IPython, can say it.
        return {"status": "unknown"}
    compiler = CommandCompiler()
    compiler.compiler.flags |= PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        is_whole = compiler(code, "<cell>", "exec") is not None
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return {"status": "invalid"}
    # As at Python's prompt, an empty line ends a block.
    last = lines[-1]
    if is_whole and not last[:1].isspace():
        return {"status": "complete"}
    indent = len(last) - len(last.lstrip())
    return {"status": "incomplete", "indent": " " * (indent + 4 * last.rstrip().endswith(":"))}


def _whole(value: object, default: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _last(found: Sequence[Any], count: object) -> Sequence[Any]:
    number = _whole(count, None)
    return found if number is None or not 0 <= number <= len(found) else found[len(found) - number :]
