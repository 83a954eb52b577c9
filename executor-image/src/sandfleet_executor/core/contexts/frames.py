"""Frames of an interpreter, checked: it runs user code, so nothing in them is trusted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.executions.events import Cleared, Error, Frame, Result

MAX_PARTS = 64
MAX_FRAMES = 200
MAX_TEXT = 256 << 10
# The value of an error, in bytes.
MAX_VALUE = 8 << 20
MAX_MIME_NAME = 256
MAX_DISPLAY_ID = 256
MAX_TABLE_NAME = 256
MAX_PROMPT = 4096
MAX_INPUT_ID = 64
# What the API's fields hold.
MAX_LINE = 1 << 31
MAX_SECONDS = 1e9
STATUSES = ("ok", "error", "interrupted")


class BadFrame(RpcError, ValueError, code="ABORTED", reason="NoAnswer", retryable=True):
    """The interpreter broke the protocol."""


@dataclass(frozen=True, slots=True)
class Done:
    status: str
    cpu_seconds: float
    peak_bytes: int
    written_bytes: int
    # Of a shell's cell that failed.
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Clearing:
    """`answer`: the interpreter waits until it has been read."""

    event: Cleared
    answer: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """The interpreter waits for a table of the session's context of another language."""

    name: str
    language: str


@dataclass(frozen=True, slots=True)
class Prompted:
    """The interpreter waits for a line of input, under an id of its own."""

    id: str
    prompt: str
    password: bool


Said = Result | Clearing | Error | Done | Asked | Prompted


def parse(header: Mapping[str, Any], payload: bytes) -> Said:
    """Raises BadFrame for anything that is not exactly right."""
    try:
        match header["event"]:
            case "result":
                return _result(header, payload)
            case "cleared":
                return Clearing(Cleared(header["wait"] is True), header["answer"] is True)
            case "frame":
                return Asked(_text(header["name"], MAX_TABLE_NAME), _text(header["language"], MAX_TABLE_NAME))
            case "input":
                prompt = _text(header["prompt"], MAX_PROMPT)
                return Prompted(_text(header["id"], MAX_INPUT_ID), prompt, header["password"] is True)
            case "error":
                return _error(header, payload)
            case "done":
                return _done(header)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadFrame(f"cannot read what the interpreter says: {error!r}") from error
    raise BadFrame("cannot read what the interpreter says: unknown event")


def _result(header: Mapping[str, Any], payload: bytes) -> Result:
    parts: list[tuple[str, bytes]] = []
    position = 0
    for part in header["parts"][:MAX_PARTS]:
        size = _count(part["size"])
        parts.append((_text(part["mime"], MAX_MIME_NAME), payload[position : position + size]))
        position += size
    if position > len(payload):
        raise BadFrame("cannot read a result: it is shorter than it says")
    display_id = _text(header.get("display_id", ""), MAX_DISPLAY_ID)
    is_update = bool(display_id) and header.get("update") is True
    return Result(tuple(parts), header["main"] is True, _count(header["dropped"]), display_id, is_update)


def _error(header: Mapping[str, Any], payload: bytes) -> Error:
    frames = tuple(
        Frame(_text(each["file"]), _count(each["line"], MAX_LINE), _text(each["function"]), _text(each["source"]))
        for each in header["frames"][:MAX_FRAMES]
    )
    value = payload[:MAX_VALUE].decode("utf-8", "replace") or _text(header["value"])
    left_out = _count(header.get("left_out", 0))
    return Error(_text(header["name"]), value, _text(header["traceback"]), frames, left_out)


def _done(header: Mapping[str, Any]) -> Done:
    if header["status"] not in STATUSES:
        raise BadFrame("cannot read the end of a cell: unknown status")
    cpu = float(header["cpu"])
    if not 0 <= cpu <= MAX_SECONDS:
        raise BadFrame("cannot read the end of a cell: not a time")
    code = _count(header.get("exit_code", 0), 256)
    failed = header["status"] == "error"
    return Done(header["status"], cpu, _count(header["peak"]), _count(header["written"]), code if failed else 0)


def _text(value: Any, limit: int = MAX_TEXT) -> str:
    if not isinstance(value, str):
        raise BadFrame("cannot read what the interpreter says: not a text")
    # Lone surrogates do not fit into a message of the API.
    return value[:limit].encode("utf-8", "replace").decode("utf-8")


def _count(value: Any, limit: int = 1 << 62) -> int:
    # true is an int to Python, and none to the messages of the API.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise BadFrame("cannot read what the interpreter says: not a count")
    return value
