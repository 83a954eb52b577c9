"""What cannot be saved by its nature, in words for people: the message of pickle's own failure often names only a part of it."""

import io
import socket
import sqlite3
import sys
import threading
import types
from _thread import LockType
from collections.abc import Mapping
from typing import Any

# IPython's own: the inputs and outputs of cells.
HISTORY = frozenset(
    {"In", "Out", "_", "__", "___", "_i", "_ii", "_iii", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open"}
)
KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (
        (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
        "a generator or coroutine stands in the middle of its code",
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
    (types.ModuleType, "the module is not one that can be imported by its name"),
)


def why_not(value: object, namespace: Mapping[str, Any]) -> str:
    """Why the value cannot be saved; empty where it is not known before it was tried."""
    if value is namespace:
        return "it is the namespace itself"
    kind = type(value)
    for kinds, reason in KINDS:
        if issubclass(kind, kinds):
            return reason
    # Whatever its metaclass says.
    if type.__dict__["__name__"].__get__(kind) == "Popen" and "subprocess" in sys.modules:
        return "a process does not outlive its parent"
    return ""
