"""The built-in `sql`: what the session's context of SQL has shown last, as a frame."""

import builtins
import socket
from collections.abc import Callable
from typing import Any

from ...base import tables

Ask = Callable[[str, str], socket.socket]


class SqlError(RuntimeError):
    """There is no such table, or the context of SQL is busy."""


class Sql:
    """`sql.last` is the result of the last SQL statement that had rows; `sql["name"]` a table of the SQL context."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __repr__(self) -> str:
        return "<the session's context of SQL: sql.last, sql['table']>"

    @property
    def last(self) -> Any:
        """A frame of pandas where that is installed, else a table of pyarrow."""
        return self["last"]

    def __getitem__(self, name: str) -> Any:
        """A table or view by its name."""
        try:
            with self._ask(name, "sql") as sock:
                sock.setblocking(True)
                table, _ = tables.receive(sock)
        except (tables.RefusedError, ValueError) as error:
            raise SqlError(str(error)) from None
        return tables.made(table, "pandas")


def install(ask: Ask) -> None:
    """In a context: `sql` is there without an import. As a built-in it is no variable of the user's."""
    builtins.sql = Sql(ask)  # type: ignore[attr-defined]
