"""Notebooks of Jupyter (nbformat 4): their cells of code, and what is written back. Pure, but for `save`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandfleet.jupyter import content

if TYPE_CHECKING:
    from sandfleet.values.execution import Cleared, Execution, Result

LANGUAGES = ("python", "bash", "javascript", "sql", "typescript")
# Contexts of Jupyter kernels, as the executor calls their languages.
KERNEL = "jupyter-"
_KERNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_SQL = "%%sql"


class NotebookError(ValueError):
    """What is no notebook that can be run."""


class Outputs:
    """What one cell has shown, in its order, as a notebook has it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.shown: list[dict[str, Any]] = []

    def stdout(self, text: str) -> None:
        """Add output."""
        self._stream("stdout", text)

    def stderr(self, text: str) -> None:
        """Add output of errors."""
        self._stream("stderr", text)

    def _stream(self, name: str, text: str) -> None:
        last = self.shown[-1] if self.shown else {}
        if last.get("output_type") == "stream" and last["name"] == name:
            last["text"] += text
        else:
            self.shown.append({"output_type": "stream", "name": name, "text": text})

    def result(self, result: Result) -> None:
        """Add a result, or put an update in the place of what it replaces."""
        data = content.bundle(result)
        shown: dict[str, Any] = {"output_type": "display_data", "data": data, "metadata": {}}
        if result.is_main_result:
            shown |= {"output_type": "execute_result", "execution_count": self._number}
        if result.display_id:
            shown["transient"] = result.display_id
        before = [each for each in self.shown if result.is_update and each.get("transient") == result.display_id]
        for each in before:
            each["data"] = data
        if not before:
            self.shown.append(shown)

    def clear(self, _: Cleared) -> None:
        """Forget what was shown."""
        self.shown.clear()

    def finished(self, execution: Execution) -> list[dict[str, Any]]:
        """Return all of it, with the error at the end."""
        error = execution.error
        if error is not None:
            lines = (error.traceback or f"{error.name}: {error.value}").rstrip("\n").split("\n")
            self.shown.append({"output_type": "error", "ename": error.name, "evalue": error.value, "traceback": lines})
        elif not execution.ok:
            self.stderr(f"{execution.outcome}: {execution.message}\n")
        return [{name: value for name, value in each.items() if name != "transient"} for each in self.shown]


def read(text: str) -> dict[str, Any]:
    """Return the notebook. Raises NotebookError."""
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"it is no JSON: {error}") from None
    cells = found.get("cells") if isinstance(found, dict) else None
    if not isinstance(cells, list) or found.get("nbformat") != 4 or not all(isinstance(each, dict) for each in cells):
        raise NotebookError("it is no notebook of nbformat 4")
    if language(found) not in LANGUAGES and not kernel(found):
        raise NotebookError(f"its language is {language(found)!r}; languages are {', '.join(LANGUAGES)}")
    return found


def language(notebook: dict[str, Any]) -> str:
    """Return the language of its cells; "python" where it does not say."""
    metadata = notebook.get("metadata")
    for place, name in (("kernelspec", "language"), ("language_info", "name")):
        said = metadata.get(place) if isinstance(metadata, dict) else None
        if isinstance(said, dict) and isinstance(said.get(name), str):
            return str(said[name]).lower()
    return "python"


def kernel(notebook: dict[str, Any]) -> str:
    """Return the language for contexts of the notebook's kernel; "" where it names none."""
    metadata = notebook.get("metadata")
    said = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    name = said.get("name") if isinstance(said, dict) else None
    return f"{KERNEL}{name}" if isinstance(name, str) and _KERNEL_NAME.fullmatch(name) else ""


def cells(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield its cells of code that are not empty: the cell, its code and its language. `%%sql` begins one of SQL."""
    usual = said if (said := language(notebook)) in LANGUAGES else kernel(notebook)
    for cell in notebook["cells"]:
        source = cell.get("source")
        code = "".join(map(str, source)) if isinstance(source, list) else str(source or "")
        if cell.get("cell_type") != "code" or not code.strip():
            continue
        first, _, rest = code.partition("\n")
        yield (cell, rest, "sql") if first.strip() == _SQL else (cell, code, usual)


def save(path: Path, notebook: dict[str, Any]) -> None:
    """Write it in the place of the old one, which is there until the new one is whole. Raises OSError."""
    partial = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}")
    try:
        partial.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
