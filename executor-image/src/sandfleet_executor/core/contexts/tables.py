"""Tables of contexts: checks of requests, and of what an interpreter says of a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_rules.tables import LIBRARIES

from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.errors import BadRequest, Code, RpcError

GIVE, TAKE = "give", "take"
DEFAULT_SECONDS, MAX_SECONDS = 60.0, 600.0
MAX_BYTES = 1 << 30
MAX_NAME = 256
# Those whose tables are what has come.
UNCOPIED = ("polars", "pyarrow")
# An interpreter may give these reasons for a table that is not there; each has its status.
REASONS: dict[str, Code] = {
    "NoTable": "NOT_FOUND",
    "NotATable": "FAILED_PRECONDITION",
    "UnsupportedColumn": "FAILED_PRECONDITION",
    "NotArrow": "INVALID_ARGUMENT",
    "NotTaken": "FAILED_PRECONDITION",
    "TooLarge": "RESOURCE_EXHAUSTED",
    "OutOfMemory": "RESOURCE_EXHAUSTED",
    "LibraryMissing": "FAILED_PRECONDITION",
}
# What a stream of Arrow IPC ends with.
END = b"\xff\xff\xff\xff\0\0\0\0"
MAX_COUNT = 1 << 62
MAX_MESSAGE = 1000


class NoTableError(RpcError):
    """The interpreter has no such table, or cannot move it; `reason` is one of REASONS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = REASONS[reason]
        self.reason = reason


@dataclass(frozen=True)
class Moved:
    """A table to move. `kind` is its library, where one comes in, and `size` the bytes of its stream; 0: not known.

    `lent`: to another context of the session.
    """

    op: str
    name: str
    seconds: float
    most_bytes: int = MAX_BYTES
    kind: str = ""
    size: int = 0
    lent: bool = False

    @property
    def verb(self) -> str:
        return "get" if self.op == GIVE else "put"

    @property
    def word(self) -> dict[str, Any]:
        """What the interpreter is told of a table that comes in."""
        return {"event": "table", "kind": self.kind, "size": self.size}

    @property
    def header(self) -> dict[str, Any]:
        """The request to the interpreter."""
        return {"op": self.op, "name": self.name, "most_bytes": self.most_bytes, "lent": self.lent}


@dataclass(frozen=True)
class Table:
    """What an interpreter says of a table."""

    kind: str
    rows: int
    columns: int
    size: int


def check(op: str, name: str, seconds: float | None, most_bytes: int = 0, *, kind: str = "", size: int = 0) -> Moved:
    """Raises BadRequest, and NoTableError for one that is too large."""
    verb = "get" if op == GIVE else "put"
    if not name.isidentifier() or len(name) > MAX_NAME:
        raise BadRequest(
            f"cannot {verb} {name[:80]!r}: a variable's name is an identifier of at most {MAX_NAME} characters"
        )
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise BadRequest(f"cannot {verb} {name} within {seconds:g} s: it has to be above 0 and at most {MAX_SECONDS:g}")
    if most_bytes > MAX_BYTES:
        raise BadRequest(f"cannot {verb} {name}: the limit is {most_bytes} bytes, and the most is {MAX_BYTES}")
    if kind and kind not in LIBRARIES:
        raise BadRequest(f"cannot {verb} {name} as {kind[:80]!r}: libraries are {', '.join(LIBRARIES)}")
    if size > MAX_BYTES:
        raise NoTableError("TooLarge", f"cannot {verb} {name}: it has {size} bytes, and the most is {MAX_BYTES}")
    return Moved(op, name, seconds or DEFAULT_SECONDS, most_bytes or MAX_BYTES, kind or "pyarrow", size)


def parse(header: Mapping[str, Any]) -> Table:
    """What the interpreter says first. Raises NoTableError, and BadFrame for anything that is not exactly right."""
    if header.get("event") == "refused" and header.get("reason") in tuple(REASONS):
        message = header.get("message")
        text = message[:MAX_MESSAGE] if isinstance(message, str) else "cannot move the table"
        raise NoTableError(str(header["reason"]), text.encode("utf-8", "replace").decode())
    if header.get("event") != "table" or header.get("kind") not in LIBRARIES:
        raise BadFrame("cannot read what the interpreter says of a table")
    rows, columns, size = (_count(header.get(name)) for name in ("rows", "columns", "bytes"))
    if columns >= 1 << 31:
        raise BadFrame("cannot read what the interpreter says of a table: not a count")
    return Table(str(header["kind"]), rows, columns, size)


def most_for(room: int, come: int, kind: str) -> int:
    """How large a table may become that comes: `come` of it is there, and `room` is left, all in bytes.

    Pandas and DuckDB copy it, and have it twice for a moment. Such as do not fit would cost a context its variables.
    """
    return (room + come) // (1 if kind in UNCOPIED else 2)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_COUNT:
        raise BadFrame("cannot read what the interpreter says of a table: not a count")
    return value
