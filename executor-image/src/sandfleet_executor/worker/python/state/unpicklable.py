"""Values that can never be saved, with the reason in words for people: pickle's own message often names only a part."""

import io
import re
import socket
import sqlite3
import sys
import threading
import types
from _thread import LockType
from collections.abc import Mapping
from typing import Any

# IPython's own names: the inputs and outputs of cells.
HISTORY = frozenset(
    {"In", "Out", "_", "__", "___", "_i", "_ii", "_iii", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open"}
)
_NUMBERED = re.compile(r"_\d+")
REASONS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (
        (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
        "a generator or coroutine is in the middle of its code",
    ),
    (io.TextIOWrapper, "an open file ends with its process; open it again"),
    (
        (io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO),
        "an open file ends with its process; open it again",
    ),
    (socket.socket, "a socket ends with its process; connect again"),
    (threading.Thread, "a thread ends with its process"),
    (
        (LockType, type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore),
        "a lock belongs to its process",
    ),
    (sqlite3.Connection, "a database connection ends with its process; connect again"),
    (sqlite3.Cursor, "a database cursor ends with its connection"),
    ((types.FrameType, types.TracebackType), "a frame belongs to its process"),
    (types.ModuleType, "the module cannot be imported by its name"),
)


def is_history(name: str) -> bool:
    """Whether the name is one of IPython's own, `_3` too."""
    return name in HISTORY or _NUMBERED.fullmatch(name) is not None


def why_unpicklable(value: object, namespace: Mapping[str, Any]) -> str:
    """Why the value cannot be saved; empty if only trying can tell."""
    if value is namespace:
        return "it is the namespace itself"
    kind = type(value)
    for kinds, reason in REASONS:
        if issubclass(kind, kinds):
            return reason
    # Read past a metaclass, which may answer anything.
    if type.__dict__["__name__"].__get__(kind) == "Popen" and "subprocess" in sys.modules:
        return "a process does not outlive its parent"
    return ""
