"""Tables of a context: read from its variables, and made of what comes, when the executor asks between two cells."""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from sandfleet_rules.tables import kind_of

from ...base import process, tables

MISSING = object()


def give(namespace: Mapping[str, Any], header: Mapping[str, Any], descriptor: int) -> None:
    """Sends a variable. Blocks until it is sent, or an interrupt comes, or the executor has gone."""
    name = str(header["name"])
    with _line(descriptor) as sock:
        value = namespace.get(name, MISSING)
        if value is MISSING:
            tables.refuse(sock, tables.RefusedError("NoTable", f"cannot get {name}: there is no variable of that name"))
        else:
            tables.send(sock, header, value)


def take(namespace: dict[str, Any], header: Mapping[str, Any], descriptor: int) -> None:
    """Makes a variable of what comes. Otherwise as `give`."""
    with _line(descriptor) as sock:
        try:
            table, value = tables.take(sock, str(header["name"]))
        except tables.RefusedError as error:
            tables.refuse(sock, error)
        else:
            namespace[str(header["name"])] = value
            tables.acknowledge(sock, table, kind_of(value))


@contextlib.contextmanager
def _line(descriptor: int) -> Iterator[socket.socket]:
    # What the user's objects raise ends the socket, which the executor notices.
    with contextlib.suppress(BaseException), socket.socket(fileno=process.private_copy(descriptor)) as sock:
        os.close(descriptor)
        sock.setblocking(True)
        yield sock
