"""The variables of a namespace as a stream of records, one a variable.

All records share one memo of the pickler: an object that two variables share is shared again after it was restored. A
record is
  {"name","kind","fresh"} (u32 and JSON)
  the pickle in pieces (each u32 and bytes), then u32 0
  {"buffers","next","crc"} (u32 and JSON)
  the buffers: the memory of arrays as it is.
`next` is the number of entries in the memo after the record. With it, a record that cannot be read costs only the
variables that refer to it.
"""

import importlib
import pickle
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from json import dumps, loads
from types import FunctionType, ModuleType
from typing import Any, Protocol

import cloudpickle
from cloudpickle import Pickler

from .stored_names import stored_as

U32 = struct.Struct(">I")
PROTOCOL = 5
# Smaller memory goes into the pickle: a separate buffer would cost more than the copy.
LEAST_BUFFER = 64 << 10
# Entries of memos that may be copied after failed variables. Above that, the rest begins with an empty memo.
MEMO_BUDGET = 20_000_000
MAX_HEADER = 1 << 20
MAX_REASON = 300
VALUE, MODULE, PLACE, RANDOM = "value", "module", "place", "random"
# Names, for people, of the records that are not variables.
PLACE_NAME, RANDOM_NAME = "(directory and environment)", "(random state)"

_namespaces: list[dict[str, Any]] = []


def use(namespace: dict[str, Any]) -> None:
    """Sets the namespace in which restored functions look up their variables: that of this process's context."""
    _namespaces[:] = [namespace]


@stored_as("pickles")
def live_namespace() -> dict[str, Any]:
    return _namespaces[0]


class _LiveNamespace:
    """Stands for the namespace in a pickle."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return live_namespace, ()


class TooLargeError(Exception):
    """The variable exceeds the limit of one variable."""


class NoRoomError(Exception):
    """All variables together exceed their limit."""


class Sink(Protocol):
    """Takes the bytes of records. `write` raises NoRoomError."""

    def write(self, data: Any) -> None: ...
    @property
    def written(self) -> int: ...


class NamespacePickler(Pickler):
    """Pickles functions and classes of cells by value; the variables that functions use by name, without copies."""

    def __init__(self, file: Any, namespace: dict[str, Any], keep: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, protocol=PROTOCOL, buffer_callback=keep)
        self._namespace = namespace

    def _dynamic_function_reduce(self, func: FunctionType) -> Any:
        make, arguments, state, *rest = super()._dynamic_function_reduce(func)
        if func.__globals__ is self._namespace:
            arguments = (arguments[0], _LiveNamespace(), *arguments[2:])
            state = (state[0], {**state[1], "__globals__": {}})
        return (make, arguments, state, *rest)


class Writer:
    """Writes records. The caller drops what a failed record has left in the sink."""

    def __init__(self, namespace: dict[str, Any], sink: Sink, variable_bytes: int) -> None:
        self._namespace = namespace
        self._sink = sink
        self._limit = variable_bytes
        self._size = 0
        self._crc = 0
        self._buffers: list[memoryview] = []
        self._spent = 0
        self._next = 0
        # The most entries that the memo has had.
        self.max_memo = 0
        # Takes the pickler's output while `_mark` asks it for a number.
        self._looked: bytes | None = None
        self._pickler = self._new_pickler()
        # Whether the next record begins with an empty memo.
        self.fresh = True

    def _new_pickler(self) -> NamespacePickler:
        return NamespacePickler(self, self._namespace, self._keep)

    def record(self, name: str, kind: str, value: object) -> int:
        """Writes a record; its size in bytes. Raises TooLargeError, NoRoomError, and what pickling the value raises."""
        before, self._size, self._crc, self._buffers = self._sink.written, 0, 0, []
        self._put({"name": name, "kind": kind, "fresh": self.fresh})
        try:
            if kind == VALUE:
                self._pickler.dump(value)
                following = self._mark()
            else:
                self.write(cloudpickle.dumps(value, protocol=PROTOCOL))
                following = self._next
        except BaseException:  # The user's code may raise anything: forget what it left half done.
            self._forget()
            raise
        self._sink.write(U32.pack(0))
        for buffer in self._buffers:
            self._crc = zlib.crc32(buffer, self._crc)
        sizes = [len(buffer) for buffer in self._buffers]
        self._put({"buffers": sizes, "next": following, "crc": self._crc})
        for buffer in self._buffers:
            self._sink.write(buffer)
        self._buffers, self._next, self.fresh = [], following, False
        self.max_memo = max(self.max_memo, following)
        return self._sink.written - before

    def write(self, data: Any) -> int:
        """Called by the pickler, whose file this is: writes a piece of the pickle."""
        size = len(data)
        if self._looked is not None:
            self._looked += bytes(data)
        elif size:
            self._count(size)
            self._crc = zlib.crc32(data, self._crc)
            self._sink.write(U32.pack(size))
            self._sink.write(data)
        return size

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Called by the pickler; False keeps the buffer out of the pickle."""
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if len(raw) < LEAST_BUFFER:
            return True
        self._count(len(raw))
        self._buffers.append(raw)
        return False

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise TooLargeError

    def _put(self, header: Mapping[str, Any]) -> None:
        text = dumps(header, separators=(",", ":")).encode("ascii")
        self._sink.write(U32.pack(len(text)))
        self._sink.write(text)

    def _mark(self) -> int:
        """The number of entries in the memo.

        Pickles a new list twice: the second pickle holds the number of its entry.
        """
        mark: list[None] = []
        self._pickler.dump(mark)
        self._looked = b""
        self._pickler.dump(mark)
        looked, self._looked = self._looked, None
        # PROTO; BINGET and one byte, or FRAME, LONG_BINGET and four bytes; STOP.
        number = looked[3:4] if looked[2:3] == b"h" else looked[-5:-1]
        return int.from_bytes(number, "little") + 1

    def _forget(self) -> None:
        """Removes the entries of the failed value from the memo."""
        self._buffers = []
        memo = self._pickler.memo.copy()
        self._spent += len(memo)
        self._pickler = self._new_pickler()
        if self._spent > MEMO_BUDGET:
            # From now on nothing is shared with earlier variables.
            self._next, self.fresh = 0, True
        else:
            self._pickler.memo = {key: entry for key, entry in memo.items() if entry[0] < self._next}


class ReadExactly(Protocol):
    """Reads exactly `size` bytes of the stream. Raises EOFError."""

    def __call__(self, size: int) -> bytearray: ...


class DamagedError(Exception):
    """The checksum of a record is wrong."""


class Reader:
    """Reads what a Writer wrote."""

    def __init__(self, read: ReadExactly, memo: int) -> None:
        """`memo`: the most entries that the memo will have."""
        self._read = read
        self._memo = memo
        self._source = _Source()
        self._unpickler = _Unpickler(self._source)

    def records(self, count: int) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        """(name, kind, function that loads it) of each record.

        Load each before the next. Raises EOFError at the stream's end.
        """
        for _ in range(count):
            head = self._header()
            pieces = []
            while size := self._size():
                pieces.append(self._read(size))
            tail = self._header()
            buffers = [self._read(size) for size in tail["buffers"]]
            if head["fresh"]:
                self._unpickler = _Unpickler(self._source)
            crc = 0
            for data in (*pieces, *buffers):
                crc = zlib.crc32(data, crc)
            right, following = crc == tail["crc"], tail["next"]
            yield head["name"], head["kind"], lambda: self._load(head["kind"], pieces, buffers, right, following)  # noqa: B023 - called before the next turn

    def _load(self, kind: str, pieces: list[bytearray], buffers: list[bytearray], right: bool, following: int) -> Any:
        """Raises what unpickling raises, and DamagedError."""
        try:
            check_sum(right)
            data = b"".join(pieces)
            pieces.clear()
            if kind != VALUE:
                return pickle.loads(data)  # noqa: S301 - inside the session namespace, whose own code wrote it
            self._source.open(data, buffers)
            value = self._unpickler.load()
            self._unpickler.load()  # the mark
        except BaseException:  # The user's code may raise anything: the next value needs a repaired memo.
            if kind == VALUE:
                self._unpickler = self._unpickler.after_failure(self._source, following, self._memo)
            raise
        return value

    def _size(self) -> int:
        return int(U32.unpack(self._read(U32.size))[0])

    def _header(self) -> dict[str, Any]:
        size = self._size()
        if size > MAX_HEADER:
            raise EOFError("the saved state is damaged")
        found: dict[str, Any] = loads(self._read(size))
        return found


def check_sum(right: bool) -> None:
    """Raises DamagedError."""
    if not right:
        raise DamagedError("its bytes are not those that were saved")


class _Source:
    """The file and the buffers of an unpickler, for one record after the other."""

    def __init__(self) -> None:
        self.open(b"", [])

    def open(self, data: bytes, buffers: list[bytearray]) -> None:
        self._file = BytesIO(data)
        self._buffers = iter(buffers)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)

    def readline(self) -> bytes:
        return self._file.readline()

    def __iter__(self) -> "_Source":
        return self

    def __next__(self) -> bytearray:
        return next(self._buffers)


class _Unpickler(pickle.Unpickler):
    """The standard unpickler, which can also go on after a failure."""

    _known: Mapping[int, object] = {}

    def __init__(self, source: _Source) -> None:
        super().__init__(source, buffers=source)

    def persistent_load(self, key: Any) -> Any:
        return self._known[key]

    def after_failure(self, source: _Source, following: int, max_memo: int) -> "_Unpickler":
        """A new unpickler: its memo has `following` entries, with holes for the entries of the failed value.

        The memo cannot be set, so it is built by loading a pickle: the known entries under their numbers, and for each
        hole an entry above `max_memo`, to which no record refers. A value that refers to a hole fails, and never gets a
        wrong object.
        """
        memo = {key: value for key, value in self.memo.copy().items() if key < following}
        fresh = _Unpickler(source)
        fresh._known = memo
        code = bytearray()
        for number in sorted(memo):
            # BININT, BINPERSID, LONG_BINPUT, POP
            code += b"J" + struct.pack("<i", number) + b"Qr" + struct.pack("<I", number) + b"0"
        for number in range(following - len(memo)):
            code += b"Nr" + struct.pack("<I", max_memo + number) + b"0"
        source.open(bytes(code + b"N."), [])
        fresh.load()
        fresh._known = {}
        return fresh


def describe(error: BaseException) -> str:
    """The error in one line. The text may come from the user's code."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the user's own exceptions may do anything
        text = ""
    kind = type(error).__name__
    line = " ".join(f"{kind}: {text}".split()) if text else kind
    return line[:MAX_REASON].encode("utf-8", "replace").decode()


def import_module(name: str) -> ModuleType:
    """Raises what the import raises."""
    importlib.import_module(name)
    return sys.modules[name]
