"""An interpreter whose start has failed, or that does not read what it is answered."""

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.effects.contexts.interpreter import MAX_BACKLOG, Interpreter
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.inputs import Inputs
from sandfleet_executor.worker.base.frames import Frame


async def test_the_end_of_the_session_does_not_disturb_an_interpreter_that_has_no_process() -> None:
    """As after its working directory was not there: its socket ends with the session, or with the failed child."""
    out, out_writer = os.pipe()
    err, err_writer = os.pipe()
    try:
        interpreter = Interpreter(None, out, err)  # type: ignore[arg-type] # it has nothing to do in it
        interpreter.on_channel_end(None)
        await asyncio.sleep(0)
        assert not interpreter.alive
    finally:
        for fd in (out_writer, err_writer):
            os.close(fd)


@pytest.mark.parametrize("backlog", [0, MAX_BACKLOG, MAX_BACKLOG + 1])
async def test_an_interpreter_that_does_not_read_its_answers_is_not_answered_for_ever(backlog: int) -> None:
    """Each refusal of input would stay in memory. With fewer answers on their way it is answered, as a control."""
    interpreter = Interpreter.__new__(Interpreter)
    sent: list[dict[str, Any]] = []
    channel = SimpleNamespace(backlog=backlog, send=sent.append)
    execution = Execution("e", 1000)
    end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    execution.inputs = Inputs(execution.emit, sent.append, taken=False)
    cell = SimpleNamespace(end=end, execution=execution)
    vars(interpreter).update(_cell=cell, _awaited=None, _child=SimpleNamespace(channel=channel))
    interpreter.on_frame(Frame({"event": "input", "id": "x", "prompt": "", "password": False}))
    if backlog > MAX_BACKLOG:
        assert (sent, isinstance(end.result(), BadFrame)) == ([], True)
    else:
        assert (len(sent), end.done()) == (1, False)
