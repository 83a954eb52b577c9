"""Looks at a live interpreter: completion and inspection, in a fork of it that answers on a socket of its own."""

import asyncio
from collections.abc import Awaitable, Callable

from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.looks import Look
from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.effects.contexts.interpreter import Interpreter
from sandfleet_executor.effects.contexts.interpreter_slot import ContextSpec
from sandfleet_executor.effects.contexts.queue import CellQueue
from sandfleet_executor.worker.base import packets
from sandfleet_executor.worker.base.frames import Frame, FrameError
from sandfleet_executor.worker.languages import declared

# How long an answer may be behind its time, in seconds.
GRACE_SECONDS = 1.0


class ContextBusyError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="ContextBusy", retryable=True):
    """A cell runs or waits: code is only looked at between two cells."""


class CannotLookError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="LanguageCannot"):
    """The context's language has no completion and inspection."""


class NoAnswerError(RpcError, RuntimeError, code="ABORTED", reason="NoAnswer", retryable=True):
    """It took too long, or ended without an answer."""


class Looks:
    """Looks at one context, between two of its cells."""

    def __init__(self, spec: ContextSpec, queue: CellQueue, start: Callable[[], Awaitable[Interpreter]]) -> None:
        """`start` gives the living interpreter, or a fresh one."""
        self._spec = spec
        self._queue = queue
        self._start = start

    async def look(self, asked: Look) -> Frame:
        """The answer, unchecked.

        Raises CannotLookError, ContextBusyError, NoAnswerError, BadFrame, NamespaceError and BadRequest.
        """
        language = self._spec.language
        if not declared(language).looks:
            raise CannotLookError(f"cannot {asked.kind}: contexts of {language} cannot, only Python's")
        busy = ContextBusyError(f"cannot {asked.kind}: context {self._spec.id} is busy; ask again after its cell")
        if not self._queue.empty:
            raise busy
        try:
            # Variables may be being saved, or a copy made: a moment. A restore takes longer.
            async with asyncio.timeout(asked.seconds):
                await self._queue.lock.acquire()
        except TimeoutError:
            raise busy from None
        try:
            interpreter = await self._start()
        finally:
            self._queue.lock.release()
        return await look(interpreter, asked)


async def look(interpreter: Interpreter, asked: Look) -> Frame:
    """The answer, unchecked. Raises NoAnswerError and BadFrame."""
    ours, theirs = packets.pair()
    with ours:
        ours.setblocking(False)
        with theirs:
            interpreter.tell(asked.header, theirs.fileno(), asked.code.encode("utf-8", "surrogatepass"))
        try:
            async with asyncio.timeout(asked.seconds + GRACE_SECONDS):
                data = await asyncio.get_running_loop().sock_recv(ours, packets.MAX_PACKET + 1)
        except (TimeoutError, OSError):
            data = b""
    if not data:
        raise NoAnswerError(f"cannot {asked.kind}: there was no answer within {asked.seconds:g} s")
    try:
        return packets.decode(data)
    except FrameError as error:
        raise BadFrame(str(error)) from error
