"""One exported span, as it is kept and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RUN, SANDBOX, CONVERSATION = "sandfleet.run.id", "sandfleet.sandbox.id", "gen_ai.conversation.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened at `time`, in nanoseconds since the epoch."""

    name: str
    time: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """Ids in hex; `parent_id` is empty for a root. Times in nanoseconds since the epoch. `error` is empty without one.

    `links`: the ids of spans of other traces, each "TRACE_ID:SPAN_ID".
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str
    service: str = ""
    start: int
    end: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[str, ...] = ()
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e9
