"""Restores saved variables in a context, one after the other, and reports each.

Unpickling runs code. The session's own code wrote it, and it runs only here, inside the session namespace.
Events on the socket: at {name,kind} · restored {name,kind,overwrote} · unrestored {name,kind,reason,message} · end
"""

import os
import random
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ...base import packets
from . import pickles
from .pickles import MODULE, PLACE, RANDOM

MAX_NAME = 256


class Incoming:
    """The bytes of a state, as they arrive on the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._have = memoryview(b"")

    def read(self, size: int) -> bytearray:
        """Exactly `size` bytes. Raises EOFError."""
        made = bytearray()
        while len(made) < size:
            if not self._have:
                data = self._sock.recv(packets.MAX_PACKET)
                frame = packets.decode(data) if data else None
                if frame is None or frame.header:
                    raise EOFError("the saved state is shorter than it says")
                self._have = memoryview(frame.payload)
            taken = self._have[: size - len(made)]
            made += taken
            self._have = self._have[len(taken) :]
        return made


def restore(sock: socket.socket, namespace: dict[str, Any], count: int, memo: int) -> None:
    """Restores all records and reports each on the socket. Raises only what ends the context."""

    def send(event: str, name: str, kind: str, **fields: Any) -> None:
        sock.sendall(packets.encode({"event": event, "name": name[:MAX_NAME], "kind": kind, **fields}))

    pickles.use(namespace)
    reader = pickles.Reader(Incoming(sock).read, memo)
    for name, kind, load in reader.records(count):
        send("at", name, kind)
        overwrote = kind not in (PLACE, RANDOM) and name in namespace
        missed = partial(report_unavailable, send, kind)
        try:
            put(namespace, name, kind, load, missed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - unpickling runs the user's code, which may raise anything
            send("unrestored", name, kind, reason=reason_of(error), message=pickles.describe(error))
        else:
            send("restored", name, kind, overwrote=overwrote)
    sock.sendall(packets.encode({"event": "end"}))


def report_unavailable(send: Callable[..., None], kind: str, name: str, message: str) -> None:
    send("unrestored", name, kind, reason="Unavailable", message=message)


def reason_of(error: BaseException) -> str:
    """The reason as one word. Pure."""
    if isinstance(error, ModuleNotFoundError):
        return "ModuleMissing"
    if isinstance(error, pickles.DamagedError):
        return "Damaged"
    if isinstance(error, MemoryError):
        return "OutOfMemory"
    if "Memo value not found" in str(error):
        return "SharesWithMissing"
    return "NotRestorable"


def put(
    namespace: dict[str, Any], name: str, kind: str, load: Callable[[], Any], missed: Callable[[str, str], None]
) -> None:
    """Restores one record. Raises what loading raises; `missed` is told (name, why) of a part that is unavailable."""
    value = load()
    if kind == PLACE:
        _put_place(value, missed)
    elif kind == RANDOM:
        _put_random(value)
    elif kind == MODULE:
        main, submodules = value
        namespace[name] = pickles.import_module(main)
        for each in submodules:
            if each not in sys.modules:
                try:
                    pickles.import_module(each)
                except Exception as error:  # noqa: BLE001 - an import runs any code
                    missed(each, pickles.describe(error))
    else:
        namespace[name] = value


def _put_place(value: dict[str, Any], missed: Callable[[str, str], None]) -> None:
    for name, text in value["environment"].items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    sys.path += [entry for entry in value["path"] if entry not in sys.path]
    if value["cwd"] is None:
        return
    try:
        os.chdir(value["cwd"])
    except OSError as error:
        missed(f"(directory {value['cwd']})", pickles.describe(error))


def _put_random(value: dict[str, Any]) -> None:
    random.setstate(value["random"])
    if "numpy" in value:
        pickles.import_module("numpy.random").set_state(value["numpy"])
