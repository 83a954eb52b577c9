"""Completions and inspections from messages. An executor is hostile: what was never asked for is left out."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet.values.execution import Completion, Inspection

_MATCHES = 10_000
_PARTS = 16


def completion(answer: api.interpreter.CompleteResponse, code: str) -> Completion:
    """Read a completion of the code; its positions lie within the code."""
    end = min(answer.cursor_end, len(code))
    return Completion(tuple(answer.matches[:_MATCHES]), min(answer.cursor_start, end), end, answer.omitted)


def inspection(answer: api.interpreter.InspectResponse) -> Inspection:
    """Read an inspection."""
    parts = {part.mime_type: part.data.decode("utf-8", "replace") for part in answer.parts[:_PARTS]}
    return Inspection(answer.found, parts)
