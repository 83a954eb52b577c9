"""Completion and inspection: checks of requests and of answers. Positions are in characters."""

from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.requests import check_code

COMPLETE, INSPECT = "complete", "inspect"
DEFAULT_SECONDS, MAX_SECONDS = 2.0, 10.0
MAX_DETAIL = 1
MAX_MATCHES = 10_000
MAX_TEXT = 64 << 10


@dataclass(frozen=True)
class Look:
    """`kind` is COMPLETE or INSPECT."""

    kind: str
    code: str
    cursor: int
    seconds: float
    detail_level: int = 0

    @property
    def header(self) -> dict[str, Any]:
        """The request to the interpreter, beside the code."""
        return {
            "op": self.kind,
            "cursor": self.cursor,
            "seconds": self.seconds,
            "detail_level": self.detail_level,
        }


@dataclass(frozen=True)
class Completion:
    matches: tuple[str, ...]
    # What they replace.
    start: int
    end: int
    # Matches that are left out.
    omitted: int = 0


@dataclass(frozen=True)
class Inspection:
    found: bool
    text: str = ""


def check(kind: str, code: str, cursor: int | None, seconds: float | None, detail_level: int = 0) -> Look:
    """`cursor`: None is the end of the code. Raises BadRequest."""
    check_code(code)
    if cursor is not None and cursor > len(code):
        raise BadRequest(f"cannot {kind}: the position {cursor} is behind the code's {len(code)} characters")
    if detail_level > MAX_DETAIL:
        raise BadRequest(f"cannot {kind}: the detail level {detail_level} is none of 0 and {MAX_DETAIL}")
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise BadRequest(f"cannot {kind} within {seconds:g} s: it has to be above 0 and at most {MAX_SECONDS:g}")
    return Look(kind, code, len(code) if cursor is None else cursor, seconds or DEFAULT_SECONDS, detail_level)


def completion(header: dict[str, Any], look: Look) -> Completion:
    """Raises BadFrame."""
    try:
        matches = tuple(_text(each) for each in header["matches"][:MAX_MATCHES])
        start, end, omitted = (int(header[name]) for name in ("start", "end", "omitted"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadFrame(f"cannot read a completion: {error!r:.200}") from error
    if header.get("event") != "completed" or not 0 <= start <= end <= len(look.code) or not 0 <= omitted < 1 << 31:
        raise BadFrame("cannot read a completion: it is out of bounds")
    return Completion(matches, start, end, omitted)


def inspection(header: dict[str, Any], payload: bytes) -> Inspection:
    """Raises BadFrame."""
    if header.get("event") != "inspected":
        raise BadFrame("cannot read an inspection: it is none")
    return Inspection(header.get("found") is True, payload[:MAX_TEXT].decode("utf-8", "replace"))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadFrame("cannot read a completion: a match is no text")
    # Lone surrogates do not fit into a message of the API.
    return value[:MAX_TEXT].encode("utf-8", "replace").decode()
