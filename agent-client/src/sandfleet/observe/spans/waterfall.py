"""The waterfall of a trace as lines of text: name, bar, time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandfleet.observe.spans.record import SpanRecord
from sandfleet.observe.spans.tree import Node

# Shares of the width; the rest is the bar's.
_NAME, _LEAST_NAME, _TIME = 0.45, 24, 9
# Eighths of a column, from the left; and the smallest mark of a span that is shorter.
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Attributes that say in a word how a span ended, by importance.
_WORDS = ("sandfleet.outcome", "sandfleet.run.end", "sandfleet.step.verdict", "error.type")
_OURS = "sandfleet_api."
_GOOD = {"ok", "answered", "accepted"}
MAX_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Line:
    """One span: its text, and whether it went wrong."""

    text: str
    failed: bool


def waterfall(root: Node, width: int) -> Iterator[Line]:
    """The lines of a tree, at most MAX_LINES, and one that says how many are left out."""
    nodes = list(root.walk())
    start = min(node.span.start for _, node in nodes)
    total = max(1, max(node.span.end for _, node in nodes) - start)
    names = max(_LEAST_NAME, int(width * _NAME))
    room = max(1, width - names - _TIME - 2)
    for depth, node in nodes[:MAX_LINES]:
        span = node.span
        name = clip("  " * min(depth, names // 4) + title(node), names).ljust(names)
        bar = _bar((span.start - start) / total * room, (span.end - start) / total * room, room)
        yield Line(f"{name} {bar} {duration(span.seconds):>{_TIME}}".rstrip(), failed(span))
    if len(nodes) > MAX_LINES:
        yield Line(f"… {len(nodes) - MAX_LINES} spans more", failed=False)


def title(node: Node) -> str:
    """The name of a span, what it came to where that is not well, and what is missing above it."""
    span = node.span
    word = next((str(span.attributes[name]) for name in _WORDS if name in span.attributes), span.error)
    # Of an RPC's package there is one: its name is no news.
    name = span.name.rpartition(".")[2] if span.name.startswith(_OURS) else span.name
    told = f"{name}: {word}" if word and word not in _GOOD else name
    return f"{told} (parent missing)" if node.is_orphan else told


def failed(span: SpanRecord) -> bool:
    """Whether it went wrong: by the platform, or by the code."""
    return bool(span.error) or span.attributes.get("sandfleet.outcome", "ok") != "ok"


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for least, unit, digits in ((100.0, "s", 0), (10.0, "s", 1), (1.0, "s", 2)):
        if seconds >= least:
            return f"{seconds:.{digits}f} {unit}"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def clip(text: str, width: int) -> str:
    """The text in so many columns, without what a terminal would act on: names come from other processes."""
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _bar(start: float, end: float, room: int) -> str:
    """A bar from column `start` to column `end`, never empty. The start is rounded down to a whole column."""
    first = min(int(start), room - 1)
    eighths = max(1, round((min(end, room) - first) * 8))
    full, rest = divmod(eighths, 8)
    bar = _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")
    return (" " * first + bar)[:room].ljust(room)
