"""Two runs of the same tasks side by side: which tasks flipped, which steps differ, what it took. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest

from sandfleet.observe.report.model import Report, Session, Step

# Steps of one session that are set beside those of another.
MAX_STEPS = 300
# In the place of a step that the other session has not.
NONE = -1

# The place of a step in each session, or NONE, and whether both are alike.
Row = tuple[int, int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One task in both runs. `rows`: the steps side by side."""

    key: str
    before: Session
    after: Session
    rows: tuple[Row, ...] = ()

    @property
    def differs(self) -> int:
        """How many rows differ."""
        return sum(not alike for _, _, alike in self.rows)

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
        Pair(key=key, before=first[key], after=second[key], rows=tuple(_rows(first[key], second[key])))
        for key in first
        if key in second
    ]
    order = {"lost": 0, "gained": 1, "": 2}
    return tuple(sorted(found, key=lambda pair: (order[pair.flipped], pair.key)))


def _rows(before: Session, after: Session) -> Iterator[Row]:
    """Steps of the same code stand beside each other; they are alike if they ended alike, too."""
    one, two = before.steps[:MAX_STEPS], after.steps[:MAX_STEPS]
    asked, again = [_asked(step) for step in one], [_asked(step) for step in two]
    # What both begin with needs no search.
    same = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(asked, again, strict=False)))
    yield from ((place, place, one[place].end == two[place].end) for place in range(same))
    matcher = SequenceMatcher(None, asked[same:], again[same:], autojunk=False)
    for word, i, j, k, m in matcher.get_opcodes():
        both = zip_longest(range(same + i, same + j), range(same + k, same + m), fillvalue=NONE)
        for left, right in both:
            yield left, right, word == "equal" and one[left].end == two[right].end


def _asked(step: Step) -> tuple[str, str]:
    return step.kind, step.code
