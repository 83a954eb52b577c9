"""What a cell shows, as the messages and the notebooks of Jupyter have it. Pure."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandfleet.values.execution import Execution, Logs, Result

# The language of a kernel for editors: its MIME type, the suffix of its files, and how CodeMirror calls it.
_LANGUAGES = {
    "python": ("text/x-python", ".py", "ipython"),
    "bash": ("text/x-sh", ".sh", "shell"),
    "javascript": ("text/javascript", ".js", "javascript"),
    "typescript": ("text/typescript", ".ts", "text/typescript"),
    "sql": ("text/x-sql", ".sql", "sql"),
}

# A result that IPython would show in a pager (worker/base/parts.py of the executor).
PAGE = "application/vnd.sandfleet.page.v1+json"
# Where Python says that its code is from.
_PLACE = re.compile(r"<cell (\d{1,9})>")
_MOST_NUMBERS = 10_000


def part(mime: str, data: str | bytes) -> Any:
    """Return a representation as JSON has it: text, an object, or Base64."""
    if isinstance(data, bytes):
        return base64.b64encode(data).decode()
    if mime.endswith("json"):
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return data
    return data


def bundle(result: Result) -> dict[str, Any]:
    """Return the representations of a result.

    JupyterLab shows JSON, as a tree, rather than HTML: where there is a table for people, the data is left out.
    """
    parts = {mime: part(mime, data) for mime, data in result.parts.items()}
    if "text/html" in parts:
        parts.pop("application/json", None)
    return parts


def page(result: Result) -> dict[str, Any]:
    """Return help that a front end shows beside the notebook, as `len?` asks for it."""
    data = {mime: part(mime, data) for mime, data in result.parts.items() if mime != PAGE}
    return {"source": "page", "data": data, "start": 0}


class Prompts:
    """The numbers that a front end shows for the cells of contexts, each of which counts its own."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}

    def add(self, execution: Execution, number: int) -> None:
        """Say under which number a cell is shown. The oldest ones are forgotten."""
        self._numbers.pop(key := (execution.context, execution.cell_number), None)
        self._numbers[key] = number
        if len(self._numbers) > _MOST_NUMBERS:
            self._numbers.pop(next(iter(self._numbers)))

    def renumber(self, context: str, text: str) -> str:
        """Return a traceback with the front end's numbers."""

        def shown(found: re.Match[str]) -> str:
            number = self._numbers.get((context, int(found[1])))
            return found[0] if number is None else f"<cell {number}>"

        return _PLACE.sub(shown, text)


def shown(result: Result, number: int) -> tuple[str, dict[str, Any]]:
    """Return the message that shows a result: its type and its content."""
    content: dict[str, Any] = {"data": bundle(result), "metadata": {}}
    if result.display_id:
        content["transient"] = {"display_id": result.display_id}
    if result.is_update:
        return "update_display_data", content
    if result.is_main_result:
        return "execute_result", content | {"execution_count": number}
    return "display_data", content


def error_of(execution: Execution, prompts: Prompts) -> dict[str, Any] | None:
    """Return the error of a cell as Jupyter has it; None for a cell that ended well.

    What no exception tells, as a deadline or a memory limit, has the outcome as its name.
    """
    if execution.ok:
        return None
    error = execution.error
    if error is None or execution.outcome not in ("error", "interrupted"):
        name, value = str(execution.outcome), execution.message
        return {"ename": name, "evalue": value, "traceback": [f"{name}: {value}", *_lost(execution)]}
    lines = prompts.renumber(execution.context, error.traceback or error.summary).rstrip("\n").split("\n")
    return {"ename": error.name, "evalue": error.value, "traceback": lines}


def _lost(execution: Execution) -> list[str]:
    return [f"lost: {', '.join(execution.lost)}"] if execution.lost else []


def missing(logs: Logs) -> str:
    """Say how much output is not shown; "" where all of it is."""
    count = sum(gap.dropped_bytes for gap in logs.gaps)
    return f"[{count:,} bytes of output dropped: they were above the limit]\n" if count else ""


def language_info(language: str, version: str) -> dict[str, Any]:
    """Return what Jupyter says of a language to editors."""
    mime, suffix, mode = _LANGUAGES.get(language, ("text/plain", ".txt", "null"))
    about = {"name": language, "version": version, "mimetype": mime, "file_extension": suffix}
    return about | {"codemirror_mode": mode, "pygments_lexer": language}
