"""Short shows of one thing each: `sandfleet demo NAME`."""

from importlib import import_module
from typing import Protocol, cast

# Name → (module, what it shows).
SHOWS: dict[str, tuple[str, str]] = {
    "fork": (
        "shows.fork",
        "one loaded dataset, many attempts at once, each in a copy of the interpreter",
    ),
    "resume": (
        "shows.resume",
        "a stream survives its connection and its executor; every step runs once",
    ),
    "rollback": ("shows.rollback", "cells that are killed, and variables that are still there"),
    "services": (
        "shows.services",
        "a web application and its database as services: built, tried through a tunnel, broken, repaired from its log",
    ),
    "tools": (
        "shows.tools",
        "code calls tools of its host: twelve in one step, an MCP server, an injection that is stopped, a huge text",
    ),
}


class Show(Protocol):
    """A module of this folder."""

    def main(self, *, as_json: bool) -> int:
        """Run the show: 0 when it went as it should, 1 when not. Raises SandfleetError, OSError."""


def load(name: str) -> Show:
    """The module of a show. Raises KeyError."""
    return cast("Show", import_module(SHOWS[name][0]))
