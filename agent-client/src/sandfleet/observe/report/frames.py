"""Tables of data frames, read from the HTML that cells display. Hostile: only their texts are used."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

# Bounds of one table, and the characters of one cell.
MAX_ROWS, MAX_COLUMNS, MAX_CELL = 200, 60, 300
_UNSEEN = frozenset({"script", "style", "template"})


@dataclass(frozen=True, slots=True)
class Frame:
    """A table. `head`: how many of the rows are names of columns."""

    rows: tuple[tuple[str, ...], ...]
    head: int = 0


def frames(html: str) -> tuple[Frame, ...]:
    """Read the tables of a piece of HTML; none where there is none."""
    reader = _Reader()
    reader.feed(html)
    return tuple(Frame(tuple(map(tuple, rows)), head) for rows, head in reader.tables if rows)


class _Reader(HTMLParser):
    """Collects the rows of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[list[list[str]], int]] = []
        self._rows: list[list[str]] | None = None
        self._cell: list[str] | None = None
        # The column of each cell that spans rows, and how many rows below have a blank there.
        self._spans: dict[int, int] = {}
        self._head = 0
        self._is_head = False
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in _UNSEEN
        if tag == "table":
            self._rows = []
            self._spans = {}
            self._head = 0
            self._is_head = False
        elif tag == "thead":
            self._is_head = True
        elif self._rows is None:
            return
        elif tag == "tr":
            if len(self._rows) < MAX_ROWS:
                self._rows.append([])
                self._head += self._is_head
                self._skip()
        elif tag in {"td", "th"} and self._rows:
            said = dict(attrs)
            row = self._rows[-1]
            rows = _count(said.get("rowspan"))
            wide = _count(said.get("colspan"))
            self._cell = []
            if rows > 1:
                self._spans[len(row)] = rows - 1
            row += [""] * min(wide, max(0, MAX_COLUMNS - len(row)))

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in _UNSEEN and self._unseen > 0
        if tag == "thead":
            self._is_head = False
        elif tag in {"td", "th"} and self._cell is not None and self._rows and self._rows[-1]:
            self._rows[-1][-1] = " ".join("".join(self._cell).split())[:MAX_CELL]
            self._cell = None
            self._skip()
        elif tag == "table" and self._rows is not None:
            self.tables.append((self._rows, self._head))
            self._rows = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None and not self._unseen:
            self._cell.append(data)

    def _skip(self) -> None:
        """Leave the columns blank that a cell of a row above covers."""
        assert self._rows
        row = self._rows[-1]
        while self._spans.get(len(row), 0) > 0 and len(row) < MAX_COLUMNS:
            self._spans[len(row)] -= 1
            row.append("")


def _count(text: str | None) -> int:
    return min(int(text), MAX_ROWS) if text is not None and text.isdecimal() and len(text) < 5 else 1
