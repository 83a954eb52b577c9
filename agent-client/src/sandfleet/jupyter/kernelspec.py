"""The kernelspec: how Jupyter finds the kernel. Its folder and its file."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
FILE = "kernel.json"


def folder(prefix: str | None, name: str) -> Path:
    """Return the folder of a kernelspec: below a prefix, as of an environment, or the user's own."""
    return (Path(prefix) / "share" / "jupyter" if prefix else _data()) / "kernels" / name


def _data() -> Path:
    """Return the user's folder of Jupyter, as Jupyter has it."""
    if given := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Jupyter"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "jupyter"


def made(language: str, display_name: str, words: list[str]) -> dict[str, Any]:
    """Return the kernelspec; `words` are arguments of the kernel."""
    argv = [sys.executable, "-P", "-m", "sandfleet", "jupyter", "kernel", "--file", "{connection_file}"]
    return {
        "argv": [*argv, "--language", language, *words],
        "display_name": display_name,
        # Editors know languages, and no kernels of others.
        "language": language.removeprefix("jupyter-"),
        # An interrupt ends the cell in the sandbox, and not the process here.
        "interrupt_mode": "message",
        "metadata": {"debugger": False},
    }


def write(place: Path, spec: dict[str, Any]) -> None:
    """Write the kernelspec; an older one is replaced at once. Raises OSError."""
    place.mkdir(parents=True, exist_ok=True)
    partial = place / f".{FILE}.{os.getpid()}"
    try:
        partial.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        partial.replace(place / FILE)
    finally:
        partial.unlink(missing_ok=True)


def remove(place: Path) -> bool:
    """Remove a kernelspec of ours; false where there is none. Raises OSError."""
    file = place / FILE
    try:
        words = json.loads(file.read_text(encoding="utf-8"))["argv"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False
    if not isinstance(words, list) or words[3:6] != ["sandfleet", "jupyter", "kernel"]:
        return False
    file.unlink()
    if not list(place.iterdir()):
        place.rmdir()
    return True
