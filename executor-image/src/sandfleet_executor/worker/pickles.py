"""The variables of a namespace as a stream of records, one for each, that share one memo: what two variables share they share again.

A record is {"name","kind"} (u32 and JSON), the pickle in pieces (u32 and bytes, u32 0), {"buffers","next","crc"} (u32 and JSON), and
the buffers, which are the memory of arrays as it is. `next`: the entries of the memo after it, so that one record that cannot be
read takes nothing with it but what refers to it.
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

U32 = struct.Struct(">I")
PROTOCOL = 5
# Smaller memory goes with the pickle: a buffer of its own costs more than its copy.
LEAST_BUFFER = 64 << 10
# What one look at the memo of a failed variable may cost, in entries, before the rest goes on with an empty one.
MEMO_BUDGET = 20_000_000
MAX_HEADER = 1 << 20
MAX_REASON = 300
VALUE, MODULE, PLACE, RANDOM = "value", "module", "place", "random"
# Names that a person reads for what is no variable.
PLACE_NAME, RANDOM_NAME = "(directory and environment)", "(random state)"

_namespaces: list[dict[str, Any]] = []


def use(namespace: dict[str, Any]) -> None:
    """The variables that restored functions look up by name: those of this process's context."""
    _namespaces[:] = [namespace]


def live_namespace() -> dict[str, Any]:
    return _namespaces[0]


class _LiveNamespace:
    """Stands for the namespace in a pickle."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return live_namespace, ()


class TooLargeError(Exception):
    """The variable alone is over its limit."""


class NoRoomError(Exception):
    """All together are over their limit."""


class Sink(Protocol):
    """Where the bytes of records go; raises NoRoomError."""

    def write(self, data: Any) -> None: ...
    @property
    def written(self) -> int: ...


class NamespacePickler(Pickler):
    """Functions and classes of cells by value; the variables that functions use by name, not as copies of their own."""

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
    """Writes records. What a failed one has left in the sink is the caller's to drop."""

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
        self.most = 0
        # What the pickler says while it is only asked.
        self._looked: bytes | None = None
        self._pickler = self._new_pickler()
        # Whether the next record begins with an empty memo.
        self.fresh = True

    def _new_pickler(self) -> NamespacePickler:
        return NamespacePickler(self, self._namespace, self._keep)

    def record(self, name: str, kind: str, value: object) -> int:
        """Its size in bytes. Raises whatever pickling the value raises, TooLargeError, NoRoomError."""
        before, self._size, self._crc, self._buffers = self._sink.written, 0, 0, []
        self._put({"name": name, "kind": kind, "fresh": self.fresh})
        try:
            if kind == VALUE:
                self._pickler.dump(value)
                following = self._mark()
            else:
                self.write(cloudpickle.dumps(value, protocol=PROTOCOL))
                following = self._next
        except BaseException:  # Whatever the user's code raised: what it left half done is forgotten.
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
        self.most = max(self.most, following)
        return self._sink.written - before

    def write(self, data: Any) -> int:
        """A piece of the pickle: the pickler's file."""
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
        """False keeps the memory out of the pickle."""
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
        """How many entries the memo has: a new list is the last of them, and a second look names its number."""
        mark: list[None] = []
        self._pickler.dump(mark)
        self._looked = b""
        self._pickler.dump(mark)
        said, self._looked = self._looked, None
        # PROTO, then BINGET and one byte, or FRAME and LONG_BINGET and four; then STOP.
        number = said[3:4] if said[2:3] == b"h" else said[-5:-1]
        return int.from_bytes(number, "little") + 1

    def _forget(self) -> None:
        """Takes what the failed value has put into the memo out of it."""
        self._buffers = []
        memo = self._pickler.memo.copy()
        self._spent += len(memo)
        self._pickler = self._new_pickler()
        if self._spent > MEMO_BUDGET:
            # From here on nothing is shared with what came before.
            self._next, self.fresh = 0, True
        else:
            self._pickler.memo = {key: entry for key, entry in memo.items() if entry[0] < self._next}


class Part(Protocol):
    """Where records come from: exactly so many bytes. Raises EOFError."""

    def __call__(self, size: int) -> bytearray: ...


class DamagedError(Exception):
    """The bytes of a record are not those that were written."""


class Reader:
    """Reads what a Writer wrote."""

    def __init__(self, part: Part, memo: int) -> None:
        """`memo`: the most entries that the memo has in the end."""
        self._part = part
        self._memo = memo
        self._source = _Source()
        self._unpickler = _Unpickler(self._source)

    def records(self, count: int) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        """(name, kind, what loads it) of each record. Load each before the next; raises EOFError where the stream is short."""
        for _ in range(count):
            head = self._header()
            pieces = []
            while size := self._size():
                pieces.append(self._part(size))
            tail = self._header()
            buffers = [self._part(size) for size in tail["buffers"]]
            if head["fresh"]:
                self._unpickler = _Unpickler(self._source)
            crc = 0
            for data in (*pieces, *buffers):
                crc = zlib.crc32(data, crc)
            right, following = crc == tail["crc"], tail["next"]
            yield head["name"], head["kind"], lambda: self._load(head["kind"], pieces, buffers, right, following)  # noqa: B023 - loaded before the next

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
        except BaseException:  # Whatever the user's code raised: the next value needs a fresh memo.
            if kind == VALUE:
                self._unpickler = self._unpickler.after_failure(self._source, following, self._memo)
            raise
        return value

    def _size(self) -> int:
        return int(U32.unpack(self._part(U32.size))[0])

    def _header(self) -> dict[str, Any]:
        size = self._size()
        if size > MAX_HEADER:
            raise EOFError("the saved state is damaged")
        found: dict[str, Any] = loads(self._part(size))
        return found


def check_sum(right: bool) -> None:
    """Raises DamagedError."""
    if not right:
        raise DamagedError("its bytes are not those that were saved")


class _Source:
    """The file of an unpickler and the buffers beside it: of one record after the other."""

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
    """The standard one, which can go on after a failure."""

    _known: Mapping[int, object] = {}

    def __init__(self, source: _Source) -> None:
        super().__init__(source, buffers=source)

    def persistent_load(self, key: Any) -> Any:
        return self._known[key]

    def after_failure(self, source: _Source, following: int, most: int) -> "_Unpickler":
        """One whose memo holds what this one's holds, has `following` entries, and holes where the failed value would be.

        Built with a pickle, because the memo cannot be set: known entries under their numbers, and as many as there are holes
        above `most`, where no record looks. What refers to a hole fails instead of getting something else.
        """
        memo = {key: value for key, value in self.memo.copy().items() if key < following}
        fresh = _Unpickler(source)
        fresh._known = memo
        code = bytearray()
        for number in sorted(memo):
            # BININT, BINPERSID, LONG_BINPUT, POP
            code += b"J" + struct.pack("<i", number) + b"Qr" + struct.pack("<I", number) + b"0"
        for number in range(following - len(memo)):
            code += b"Nr" + struct.pack("<I", most + number) + b"0"
        source.open(bytes(code + b"N."), [])
        fresh.load()
        fresh._known = {}
        return fresh


def describe(error: BaseException) -> str:
    """Why, in one line. The text may come from the user's code."""
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
