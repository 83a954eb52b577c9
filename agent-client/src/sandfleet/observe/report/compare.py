"""Two runs of the same tasks side by side: which tasks flipped, which steps differ, what it took. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sandfleet.observe.report.model import Report, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One task in both runs. `differs`: the number of the first step that differs; 0: none does."""

    key: str
    before: Session
    after: Session
    differs: int

    @property
    def flipped(self) -> str:
        """Either gained or lost; empty where both ended alike."""
        if self.before.is_failed == self.after.is_failed:
            return ""
        return "lost" if self.after.is_failed else "gained"


def pairs(before: Report, after: Report) -> tuple[Pair, ...]:
    """The tasks that both runs have; those that flipped first. Of a task that ran twice, the last session counts."""
    first = {session.key: session for session in before.sessions}
    second = {session.key: session for session in after.sessions}
    found = [
        Pair(key=key, before=first[key], after=second[key], differs=_differs(first[key], second[key]))
        for key in first
        if key in second
    ]
    order = {"lost": 0, "gained": 1, "": 2}
    return tuple(sorted(found, key=lambda pair: (order[pair.flipped], pair.key)))


def _differs(before: Session, after: Session) -> int:
    one = [(step.kind, step.end, step.code) for step in before.steps]
    two = [(step.kind, step.end, step.code) for step in after.steps]
    for number, (left, right) in enumerate(zip(one, two, strict=False), 1):
        if left != right:
            return number
    return min(len(one), len(two)) + 1 if len(one) != len(two) else 0
