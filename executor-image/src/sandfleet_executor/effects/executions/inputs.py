"""Requests for input of one cell: each waits for one answer, which its caller gives."""

from collections.abc import Callable
from typing import Any

from sandfleet_executor.core.contexts.frames import Prompted
from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.executions.events import InputRequest


class InputNotAskedError(RpcError, LookupError, code="NOT_FOUND", reason="InputNotAsked"):
    """The code does not wait for that input."""


class Inputs:
    """One request waits at a time: a new one says that the code waits for the earlier one no longer."""

    def __init__(
        self, emit: Callable[[InputRequest], None], send: Callable[[dict[str, Any]], None], *, taken: bool
    ) -> None:
        """`emit` tells readers, `send` the interpreter; `taken`: the caller answers."""
        self._emit, self._send, self._taken = emit, send, taken
        self._count = 0
        self._waiting: Prompted | None = None

    def ask(self, asked: Prompted) -> None:
        """A line is asked for; that is refused at once where no caller answers."""
        if not self._taken:
            self._answer(asked, None)
            return
        self._settle()
        self._count += 1
        self._waiting = asked
        self._emit(InputRequest(str(self._count), asked.prompt, asked.password))

    def answer(self, input_id: str, text: str | None) -> bool:
        """Answers a request, with None refuses it; whether it was for a password.

        Raises InputNotAskedError.
        """
        asked = self._waiting
        if asked is None or input_id != str(self._count):
            raise InputNotAskedError(f"cannot answer: the code does not wait for input {input_id}")
        self._settle()
        self._answer(asked, text)
        return asked.password

    def _settle(self) -> None:
        if self._waiting:
            self._waiting = None
            self._emit(InputRequest(str(self._count), settled=True))

    def _answer(self, asked: Prompted, text: str | None) -> None:
        self._send({"op": "input", "id": asked.id, "text": text})
