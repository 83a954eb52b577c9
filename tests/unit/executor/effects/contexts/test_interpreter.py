"""An interpreter whose start has failed."""

import asyncio
import os

from sandfleet_executor.effects.contexts.interpreter import Interpreter


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
