"""What a journal adds to the spans of a session: code, output, results and files. Hostile: an executor has written it.

The page shows what the records say. It does not check their chain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandfleet.errors import InvalidArgument

# Of one file, in lines and in bytes of a line.
MAX_RECORDS, MAX_LINE = 200_000, 2 << 20
MAX_TEXT, MAX_FILES = 64_000, 200


@dataclass(frozen=True, slots=True)
class Recorded:
    """One execution. `files`: the paths that changed, and with a minus those that were removed."""

    code: str = ""
    output: str = ""
    results: tuple[str, ...] = ()
    error: str = ""
    files: tuple[str, ...] = ()


def read(paths: Iterable[Path]) -> dict[str, Recorded]:
    """The executions of journals, by their id. Raises InvalidArgument where a file cannot be read."""
    found: dict[str, Recorded] = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                for _ in range(MAX_RECORDS):
                    if not (line := file.readline(MAX_LINE)):
                        break
                    found |= executions(line)
        except OSError as error:
            raise InvalidArgument(f"cannot read the journal {path}: {error.strerror}") from error
    return found


def executions(line: bytes) -> dict[str, Recorded]:
    """The execution that a line of a journal records; empty for any other line."""
    try:
        record = json.loads(line)
        body = record["body"]
        if record["kind"] not in {"execution", "terminal"}:
            return {}
        return {str(body["id"]): _recorded(body)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _recorded(body: Mapping[str, Any]) -> Recorded:
    error, files = body.get("error") or {}, body.get("files") or {}
    changed = [str(one["path"]) for one in files.get("changed", [])]
    removed = [f"-{one}" for one in files.get("removed", [])]
    results = [str(one.get("text") or _described(one)) for one in body.get("results", [])]
    return Recorded(
        code=_text(body.get("code")),
        output="\n".join(filter(None, (_text(body.get("stdout")), _text(body.get("stderr"))))),
        results=tuple(one[:MAX_TEXT] for one in results[:MAX_FILES]),
        error=f"{error.get('name', '')}: {error.get('value', '')}"[:MAX_TEXT] if error else "",
        files=tuple(one[:512] for one in (changed + removed)[:MAX_FILES]),
    )


def _described(result: Mapping[str, Any]) -> str:
    return f"[{result.get('mime', '')}, {result.get('bytes', 0)} bytes, sha256 {str(result.get('sha256', ''))[:16]}]"


def _text(blob: Any) -> str:
    if not isinstance(blob, Mapping):
        return ""
    more = "\n… cut" if blob.get("cut") else ""
    return str(blob.get("text") or "")[:MAX_TEXT] + more
