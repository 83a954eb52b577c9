"""Saved states of a context as values: the interpreter's messages, checked, and the manifest at the end of a state."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from sandfleet_executor.core.errors import BadRequest

MIB = 1 << 20
# Bytes of one state: the most that a request may ask for, and the default.
MAX_STATE_BYTES = 2048 * MIB
DEFAULT_STATE_BYTES = 512 * MIB
# Of a sandbox: states under a name, and all of them with the automatic ones, in bytes.
MAX_STATES = 32
MAX_ALL_BYTES = 4096 * MIB
MAX_VARIABLES = 20_000
# Seconds: of one save or restore, at most and without asking, and of one variable.
MAX_SECONDS, DEFAULT_SECONDS, VARIABLE_SECONDS = 600.0, 60.0, 20.0
AUTOSAVE_BYTES, AUTOSAVE_SECONDS = 256 * MIB, 30.0
# What is listed of one state, in characters of names, types and reasons; the rest is counted.
MAX_LISTED = 2 * MIB
MAX_NAME, MAX_TYPE, MAX_REASON, MAX_MESSAGE = 256, 128, 32, 400
MAX_THREADS = 16
MAX_MEMO = (1 << 31) - 1
# What the words of `lost` have room for.
LOST_CHARACTERS = 64
KINDS = ("value", "module", "place", "random")
# Names that are not user variables are left out of the report.
LISTED = ("value", "module")


class BadState(ValueError):
    """Not what a saved state looks like."""


@dataclass(frozen=True, slots=True)
class Item:
    """A variable. `reason` and `message` say why it is not there; empty where it is."""

    name: str
    kind: str = "value"
    type: str = ""
    size: int = 0
    reason: str = ""
    message: str = ""
    overwrote: bool = False

    @property
    def length(self) -> int:
        return len(self.name) + len(self.type) + len(self.message) + 32


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes and seconds of one save."""

    total: int = DEFAULT_STATE_BYTES
    variable: int = DEFAULT_STATE_BYTES
    seconds: float = DEFAULT_SECONDS


@dataclass(frozen=True)
class Persistence:
    """What of a context outlives its interpreter: the bounds of automatic saves, and what it begins from: the newest
    of them, or what a suspension has kept.
    """

    autosave: Bounds | None = None
    resume: bool = False
    kept: bool = False


NOT_PERSISTENT = Persistence()


def check_bounds(total: int, variable: int, seconds: float | None) -> Bounds:
    """0 and None mean the defaults. Raises BadRequest."""
    if total > MAX_STATE_BYTES or variable > MAX_STATE_BYTES:
        raise BadRequest(f"cannot save up to {max(total, variable)} bytes: the most is {MAX_STATE_BYTES}")
    total = total or DEFAULT_STATE_BYTES
    return Bounds(total, min(variable or total, total), check_seconds(seconds))


def check_seconds(seconds: float | None) -> float:
    """None means the default. Raises BadRequest."""
    if seconds is None:
        return DEFAULT_SECONDS
    if not 0 < seconds <= MAX_SECONDS:
        raise BadRequest(f"cannot take a timeout of {seconds:g} s: it has to be above 0 and at most {MAX_SECONDS:g}")
    return seconds


@dataclass
class Listing:
    """Items up to a limit, and how many more there are."""

    items: list[Item] = field(default_factory=list)
    count: int = 0
    _length: int = 0

    def add(self, item: Item) -> None:
        self.count += 1
        self._length += item.length
        if self._length <= MAX_LISTED:
            self.items.append(item)

    @property
    def omitted(self) -> int:
        return self.count - len(self.items)


@dataclass(frozen=True)
class Manifest:
    """The end of a saved state. `created` in nanoseconds of the epoch; `cell`: the last cell that had ended."""

    context_id: str
    created: int
    cell: int
    size: int
    records: int
    memo: int
    saved: tuple[Item, ...] = ()
    saved_omitted: int = 0
    unsaved: tuple[Item, ...] = ()
    unsaved_omitted: int = 0
    threads: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """With its length and sum behind it, so that it is found from the end and a torn one is known."""
        text = json.dumps(asdict(self), separators=(",", ":")).encode("ascii")
        return text + len(text).to_bytes(4, "big") + zlib.crc32(text).to_bytes(4, "big") + MAGIC

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Raises BadState."""
        try:
            values = json.loads(text)
            items = {name: tuple(Item(**item) for item in values[name]) for name in ("saved", "unsaved")}
            return cls(**{**values, **items, "threads": tuple(values["threads"])})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadState(f"cannot read the saved state: {error}") from error


MAGIC = b"sfstate1"
TAIL_BYTES = 8 + len(MAGIC)
MAX_MANIFEST = 64 * MIB


def tail(data: bytes, size: int) -> tuple[int, int]:
    """(length, sum) of the manifest before the last bytes of a file of `size` bytes. Raises BadState."""
    if len(data) != TAIL_BYTES or not data.endswith(MAGIC):
        raise BadState("cannot read the saved state: it was not written to its end")
    length = int.from_bytes(data[:4], "big")
    if length > min(size - TAIL_BYTES, MAX_MANIFEST):
        raise BadState("cannot read the saved state: it is shorter than it says")
    return length, int.from_bytes(data[4:8], "big")


def check_manifest(text: bytes, crc: int, size: int) -> Manifest:
    """`size` of the whole file. Raises BadState."""
    if zlib.crc32(text) != crc:
        raise BadState("cannot read the saved state: its end is damaged")
    manifest = Manifest.decode(text)
    if manifest.size + len(text) + TAIL_BYTES != size:
        raise BadState("cannot read the saved state: it is shorter or longer than it says")
    return manifest


# What the interpreter says


def item_of(word: Mapping[str, Any]) -> Item:
    """Raises BadState: it comes from user code."""
    kind = word.get("kind")
    if kind not in KINDS:
        raise BadState("cannot read what the interpreter says: unknown kind")
    return Item(
        name=text_of(word.get("name"), MAX_NAME),
        kind=str(kind),
        type=text_of(word.get("type", ""), MAX_TYPE),
        size=count_of(word.get("size", 0), MAX_STATE_BYTES),
        reason=text_of(word.get("reason", ""), MAX_REASON),
        message=text_of(word.get("message", ""), MAX_MESSAGE),
        overwrote=word.get("overwrote") is True,
    )


def missing_of(word: Mapping[str, Any]) -> Item:
    """An item that says why it is missing. Raises BadState."""
    item = item_of(word)
    if not item.reason:
        raise BadState("cannot read what the interpreter says: no reason")
    return item


def threads_of(value: Any) -> tuple[str, ...]:
    """Raises BadState."""
    if not isinstance(value, list):
        raise BadState("cannot read what the interpreter says: no list")
    return tuple(text_of(each, MAX_NAME) for each in value[:MAX_THREADS])


def text_of(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise BadState("cannot read what the interpreter says: not a text")
    # Lone surrogates do not fit into a message of the API.
    return value[:limit].encode("utf-8", "replace").decode("utf-8")


def count_of(value: Any, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise BadState("cannot read what the interpreter says: not a count")
    return value


# Words for `lost`


def still_lost(missing: Sequence[str], saved_at: int, last_cell: int) -> tuple[str, ...]:
    """What a state does not bring back: variables by name, and the work of later cells. Each word fits into `lost`."""
    words = []
    if missing:
        words.append(names_in(missing, "variables: ", LOST_CHARACTERS))
    if saved_at < last_cell:
        words.append(f"variables since cell {saved_at}")
    return tuple(words)


def names_in(names: Sequence[str], start: str, room: int) -> str:
    """As many of the names as there is room for (characters), and how many more there are."""
    for shown in range(len(names), 0, -1):
        more = f" and {len(names) - shown} more" if shown < len(names) else ""
        text = f"{start}{', '.join(names[:shown])}{more}"
        if len(text) <= room:
            return text
    return f"{start}{len(names)}"
