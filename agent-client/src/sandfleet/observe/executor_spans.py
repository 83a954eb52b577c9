"""What an executor says of its own spans, checked: an executor is hostile, and its clock may be wrong.

Its spans stay in the trace of the call, below the call's span, inside the time of the call, and within bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp
    from sandfleet_api.executor.v1.common_pb2 import Span

MAX_SPANS, MAX_ATTRIBUTES, MAX_DEPTH = 256, 32, 16
# Characters of a name, of an attribute's name and of its value.
MAX_NAME, MAX_KEY, MAX_TEXT = 128, 128, 512
# An executor may speak of its own, and not of models, users or services.
ALLOWED = ("sandfleet.", "process.")
# Seconds since the epoch: no span is later.
_LATEST = 2**33
# How far the executor's clock is behind the client's, in seconds; only where its spans were moved.
CLOCK_OFFSET = "sandfleet.clock.offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The client's span of the call: its ids, and its time in nanoseconds since the epoch, by the client's clock."""

    trace_id: int
    span_id: int
    start: int
    end: int


class Placed(NamedTuple):
    """A span that may be exported. Times in nanoseconds since the epoch, by the client's clock."""

    name: str
    span_id: int
    parent_id: int
    start: int
    end: int
    attributes: Mapping[str, str | float]
    # Empty: no error.
    error: str


def place(spans: Iterable[Span], call: Call) -> tuple[Placed, ...]:
    """Return the spans that belong to the call, parents before their children."""
    found = taken(spans, call)
    parents = {span_id: int.from_bytes(span.parent_span_id, "big") for span_id, span in found.items()}
    parents = {span_id: parent if parent in found else call.span_id for span_id, parent in parents.items()}
    depths = {span_id: _depth(span_id, parents) for span_id in found}
    # What is part of a circle, or too deep, hangs on the call itself.
    parents = {span_id: parents[span_id] if depth else call.span_id for span_id, depth in depths.items()}
    moments = {span_id: (_time(span.start), _time(span.end)) for span_id, span in found.items()}
    offset = _offset(moments.values(), call)
    times = {call.span_id: (call.start, call.end)}
    placed = []
    for span_id in sorted(found, key=lambda one: depths[one] or 1):
        span, parent = found[span_id], parents[span_id]
        first, last = times[parent]
        start, end = moments[span_id]
        start = min(max(start + offset, first), last)
        end = min(max(end + offset, start), last)
        times[span_id] = start, end
        placed.append(_placed(span, span_id, parent, (start, end), offset))
    return tuple(placed)


def taken(spans: Iterable[Span], call: Call) -> dict[int, Span]:
    """Return those that may be looked at, by their ids.

    A foreign trace id would let an executor write into the traces of others.
    """
    trace_id = call.trace_id.to_bytes(16, "big")
    found: dict[int, Span] = {}
    for span in islice(spans, MAX_SPANS):
        own = span.span_id
        if len(own) == 8 and span.trace_id == trace_id:
            found.setdefault(int.from_bytes(own, "big"), span)
    found.pop(0, None)
    found.pop(call.span_id, None)
    return found


def _depth(span_id: int, parents: Mapping[int, int]) -> int:
    """How many spans are between this one and the call, itself included; 0 in a circle, or too deep."""
    for depth in range(1, MAX_DEPTH + 1):
        span_id = parents[span_id]
        if span_id not in parents:
            return depth
    return 0


def _offset(times: Collection[tuple[int, int]], call: Call) -> int:
    """Nanoseconds to add to the executor's times. 0 where they fit into the call: the clocks may well agree.

    Otherwise the way there is taken to be as long as the way back.
    """
    if not times:
        return 0
    first, last = min(start for start, _ in times), max(end for _, end in times)
    if call.start <= first and last <= call.end:
        return 0
    return ((call.start - first) + (call.end - last)) // 2


def _placed(span: Span, span_id: int, parent: int, times: tuple[int, int], offset: int) -> Placed:
    said = span.attributes
    attributes: dict[str, str | float] = {}
    if said:
        attributes |= {key: _text(value, MAX_TEXT) for key, value in islice(said.items(), MAX_ATTRIBUTES) if _may(key)}
    if offset:
        attributes[CLOCK_OFFSET] = offset / 1e9
    name, error = _text(span.name, MAX_NAME) or "unnamed", _text(span.error, MAX_TEXT)
    return Placed(name, span_id, parent, times[0], times[1], attributes, error)


def _may(key: str) -> bool:
    return key.startswith(ALLOWED) and len(key) <= MAX_KEY and key.isprintable()


def _text(text: str, most: int) -> str:
    """Cut, without characters that could write to a terminal."""
    kept = text[:most]
    return kept if kept.isprintable() else "".join(letter if letter.isprintable() else " " for letter in kept)


def _time(moment: Timestamp) -> int:
    seconds, nanos = moment.seconds, moment.nanos
    if 0 <= seconds <= _LATEST and 0 <= nanos < 10**9:
        return seconds * 10**9 + nanos
    # No clock may break an exporter.
    return max(0, min(seconds, _LATEST)) * 10**9 + max(0, min(nanos, 10**9 - 1))
