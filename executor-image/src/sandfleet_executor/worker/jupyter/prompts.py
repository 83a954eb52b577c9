"""Requests for input of a kernel: the executor answers them, or they are refused."""

import socket
import time
from collections.abc import Mapping
from typing import Any

from ..base import frames
from . import messages
from .kernel import PROMPTS, Kernel

# A kernel that does not end at an interrupt while it waits for input gets an empty line after so many seconds.
EMPTY_SECONDS = 1.0


class Prompts:
    """Of one cell. Some kernels ask although they were told that they must not."""

    def __init__(self, control: socket.socket, kernel: Kernel, *, taken: bool) -> None:
        """`taken`: the caller of the cell answers."""
        self._control, self._kernel, self._taken = control, kernel, taken
        self._count = 0
        self._prompt = ""
        # It waits for the executor.
        self.waits = False
        # When a refused kernel gets an empty line; 0: never.
        self._empty_at = 0.0

    def take(self, message: Mapping[str, Any], cell: messages.Cell) -> None:
        """A message of the kernel: it may ask."""
        if (asked := cell.asks(message)) is None:
            return
        self._prompt, password = asked
        if not self._taken:
            self._refuse(cell)
            return
        self._count += 1
        self.waits, self._empty_at = True, 0.0
        header = {"event": "input", "id": str(self._count), "prompt": self._prompt, "password": password}
        frames.send(self._control, header)

    def answer(self, header: Mapping[str, Any], cell: messages.Cell) -> None:
        """The executor's answer. One for an earlier request is dropped."""
        if not self.waits or header.get("id") != str(self._count):
            return
        self.waits = False
        if isinstance(text := header.get("text"), str):
            self._say(text)
        else:
            self._refuse(cell)

    def look(self) -> None:
        """Now and then, while the cell runs."""
        if self._empty_at and time.monotonic() >= self._empty_at:
            self._empty_at = 0.0
            self._say("")

    def _refuse(self, cell: messages.Cell) -> None:
        cell.refuse(self._prompt)
        self._kernel.interrupt()
        self._empty_at = time.monotonic() + EMPTY_SECONDS

    def _say(self, text: str) -> None:
        self._kernel.ask("input_reply", {"value": text, "status": "ok"}, to=PROMPTS)
