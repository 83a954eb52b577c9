"""Input for the code of a cell: each request is passed to a callback, whose answer goes back."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress

from sandfleet._wire import api
from sandfleet._wire.events import Asked
from sandfleet._wire.link import Link
from sandfleet.errors import NotFoundError, SandfleetError
from sandfleet.values.execution import InputRequest, OnInput

# What one answer may hold, in bytes, without its end.
_MOST = 64 << 10
# A client that attaches reads first what was before: it asks for what is still open after so many seconds.
LATER = 0.5


class Inputs:
    """Asks the callback beside the stream of the cell, which may end while a person thinks."""

    def __init__(self, link: Link, execution_id: str, on_input: OnInput | None, delay: float = 0.0) -> None:
        """`delay`: seconds that a request has to be open before it is passed on."""
        self._link = link
        self._delay = delay
        self._execution_id = execution_id
        self._on_input = on_input
        self._asking: dict[str, asyncio.Task[None]] = {}
        # What the callback has raised.
        self._failure: BaseException | None = None

    def take(self, asked: Asked) -> None:
        """Ask the callback, or give up what is settled."""
        if self._on_input is None:
            return
        if not asked.settled:
            work = self._ask(self._on_input, asked)
            self._asking[asked.input_id] = asyncio.get_running_loop().create_task(work)
        elif task := self._asking.pop(asked.input_id, None):
            # Another client has answered, or the answer is on its way out of the callback.
            task.cancel()

    async def close(self) -> None:
        """The cell has ended. Raises what the callback has raised."""
        for task in self._asking.values():
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())
        if self._failure is not None:
            raise self._failure

    async def _ask(self, on_input: OnInput, asked: Asked) -> None:
        line: str | None = None
        if self._delay:
            await asyncio.sleep(self._delay)
        try:
            line = _line(await _answer(on_input, InputRequest(asked.prompt, asked.password)))
        except Exception as error:  # noqa: BLE001  the cell is told that there is no input, and the caller what it was
            self._failure = self._failure or error
        request = api.interpreter.AnswerInputRequest(execution_id=self._execution_id, input_id=asked.input_id)
        if line is None:
            request.refused = True
        else:
            request.text = line
        # It may wait no longer. A connection that breaks is the stream's to report.
        with suppress(NotFoundError, SandfleetError):
            await self._link.unary(lambda c: c.interpreter.AnswerInput, request, idempotent=True)


async def _answer(on_input: OnInput, request: InputRequest) -> object:
    if inspect.iscoroutinefunction(on_input):
        return await on_input(request)
    # It may ask a person.
    said = await asyncio.to_thread(on_input, request)
    return await said if inspect.isawaitable(said) else said


def _line(said: object) -> str | None:
    """Return the line without its end. Raises TypeError and ValueError."""
    if said is None:
        return None
    if not isinstance(said, str):
        raise TypeError(f"cannot answer with a {type(said).__name__}: on_input returns a str, or None to refuse")
    line = said.removesuffix("\n").removesuffix("\r")
    if "\n" in line or "\r" in line:
        raise ValueError("cannot answer with more than one line")
    if len(line.encode()) > _MOST:
        raise ValueError(f"cannot answer with a line of more than {_MOST} bytes")
    return line
