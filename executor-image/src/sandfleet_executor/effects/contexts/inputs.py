"""Requests for input of one cell: each waits for one answer, which its caller gives."""

from typing import Any

from sandfleet_executor.core.contexts.frames import Prompted
from sandfleet_executor.core.executions.events import InputRequest
from sandfleet_executor.effects.executions.execution import Execution


class InputNotAskedError(LookupError):
    """The code does not wait for that input."""


class Inputs:
    """One request waits at a time: a new one says that the code waits for the earlier one no longer."""

    def __init__(self, execution: Execution, *, taken: bool) -> None:
        """`taken`: the caller answers."""
        self._execution = execution
        self._taken = taken
        self._count = 0
        self._waiting: Prompted | None = None

    def ask(self, asked: Prompted) -> dict[str, Any] | None:
        """A line is asked for; the refusal for the interpreter where no caller answers."""
        if not self._taken:
            return _answer(asked, None)
        self._settle()
        self._count += 1
        self._waiting = asked
        self._execution.emit(InputRequest(str(self._count), asked.prompt, asked.password))
        return None

    def answer(self, input_id: str, text: str | None) -> dict[str, Any] | None:
        """The answer for the interpreter (None: refused), or None where that request does not wait."""
        asked = self._waiting
        if asked is None or input_id != str(self._count):
            return None
        if text is not None and not asked.password:
            self._execution.recording.sent(f"{text}\n".encode())
        self._settle()
        return _answer(asked, text)

    def _settle(self) -> None:
        if self._waiting:
            self._waiting = None
            self._execution.emit(InputRequest(str(self._count), settled=True))


def _answer(asked: Prompted, text: str | None) -> dict[str, Any]:
    return {"op": "input", "id": asked.id, "text": text}
