"""Spans as trees. Spans may be missing, foreign or wrong: whatever comes, each span stands in one tree once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sandfleet.observe.spans.record import SpanRecord

# Deeper spans hang on the last one that is allowed.
MAX_DEPTH = 64


@dataclass(slots=True)
class Node:
    """A span and those below it, by their start. `is_orphan`: its parent is not among the spans."""

    span: SpanRecord
    children: list[Node] = field(default_factory=list)
    is_orphan: bool = False

    def walk(self) -> Iterator[tuple[int, Node]]:
        """It and all below it, each with its depth, as they are drawn."""
        waiting = [(0, self)]
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            waiting += [(min(depth + 1, MAX_DEPTH), child) for child in reversed(node.children)]


def trees(spans: Iterable[SpanRecord]) -> list[Node]:
    """The trees of all spans, by their start. A circle is opened at its earliest span."""
    nodes = {(span.trace_id, span.span_id): Node(span) for span in spans}
    ordered = sorted(nodes.values(), key=lambda node: node.span.start)
    roots = []
    for node in ordered:
        parent = nodes.get((node.span.trace_id, node.span.parent_id))
        node.is_orphan = bool(node.span.parent_id) and parent is None
        if parent is None or parent is node:
            roots.append(node)
        else:
            parent.children.append(node)
    seen = {id(node) for root in roots for _, node in root.walk()}
    for node in ordered:
        # What no root leads to is in a circle, or below one.
        if id(node) not in seen:
            parent = nodes[node.span.trace_id, node.span.parent_id]
            parent.children.remove(node)
            roots.append(node)
            seen |= {id(below) for _, below in node.walk()}
    return sorted(roots, key=lambda node: node.span.start)


def gaps(root: Node) -> list[SpanRecord]:
    """The spans that their parents do not cover, by more than a millisecond: a clock is wrong, or a span was lost."""
    return [
        child.span
        for _, node in root.walk()
        for child in node.children
        if child.span.start < node.span.start - 10**6 or child.span.end > node.span.end + 10**6
    ]
