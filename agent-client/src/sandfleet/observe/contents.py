"""What a span says of an execution: always numbers and words of ours; code and output only where they are asked for."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandfleet.values.execution import CommandResult, Execution

# OpenTelemetry's own variable for the contents of models and tools.
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_YES = {"true", "1", "span_only", "span_and_event"}
# Characters of one text in a span.
MAX_TEXT = 16_000
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"


def captured() -> bool:
    """Whether code, output and messages go into spans."""
    return os.environ.get(CAPTURE, "").strip().lower() in _YES


def numbers(result: Execution | CommandResult) -> dict[str, str | float]:
    """What is said of every execution."""
    usage, files = result.usage, result.files
    said: dict[str, str | float] = {
        "sandfleet.outcome": result.outcome.value,
        "sandfleet.blame": result.blame.value if result.blame is not None else "",
        "sandfleet.reason": result.reason,
        "sandfleet.usage.wall_seconds": usage.wall_seconds,
        "sandfleet.usage.cpu_seconds": usage.cpu_seconds,
        "sandfleet.usage.peak_memory_bytes": usage.peak_memory_bytes,
        "sandfleet.usage.output_bytes": usage.stdout_bytes + usage.stderr_bytes,
        "sandfleet.files.changed": len(files.created) + len(files.modified) + len(files.deleted),
        "sandfleet.lost": words(result.lost),
        "sandfleet.signal": result.signal,
    }
    rollback = getattr(result, "rollback", None)
    if rollback is not None:
        said["sandfleet.rollback"] = "done" if rollback.done else f"refused: {rollback.refused}"
        said["sandfleet.rollback.cell"] = rollback.cell_number
    error = getattr(result, "error", None)
    if error is not None:
        # Any other name is a word of the code, which may hold anything.
        said["sandfleet.exception"] = error.name if hasattr(builtins, error.name) else "other"
    return {name: value for name, value in said.items() if value != ""}


def words(lost: Iterable[str]) -> str:
    """What was lost, in our words: what follows them are names of the code's variables."""
    return ",".join(dict.fromkeys(one.partition(":")[0] for one in lost))


def texts(asked: str, result: Execution | CommandResult) -> dict[str, str]:
    """What was run and what came of it, cut. Only where `captured` says so."""
    logs: Any = getattr(result, "logs", result)
    shown = [logs.stdout, logs.stderr]
    if logs is not result:
        error = getattr(result, "error", None)
        shown += [getattr(result, "text", None) or "", error.traceback if error is not None else ""]
    name = "command" if logs is result else "code"
    return {
        ARGUMENTS: json.dumps({name: cut(asked)}, ensure_ascii=False),
        RESULT: cut("\n".join(filter(None, shown))),
    }


def cut(text: str) -> str:
    """The beginning and the end of a text that is too long."""
    sound = text.encode("utf-8", "replace").decode()
    if len(sound) <= MAX_TEXT:
        return sound
    half = MAX_TEXT // 2
    return f"{sound[:half]}\n… {len(sound) - MAX_TEXT} characters left out …\n{sound[-half:]}"
