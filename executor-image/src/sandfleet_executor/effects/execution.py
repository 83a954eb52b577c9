"""One execution: its event log, the reader of it, and what holds producers back when the reader is slow."""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from sandfleet_executor.core.eventlog import EventLog
from sandfleet_executor.core.events import STDERR, STDOUT, Event, Finished, Gap, Output
from sandfleet_executor.core.outcomes import Cause
from sandfleet_executor.core.output import HeadAndTail

# What is kept for a reader that may come (bytes), and what an attached reader may be behind before producers wait.
RING_BYTES = 8 << 20
WINDOW_BYTES = 4 << 20
# Largest piece of output in one event.
CHUNK_BYTES = 256 << 10


class Source(Protocol):
    """Something that produces events and can be told to wait."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Execution:
    def __init__(self, execution_id: str, output_limit: int) -> None:
        self.id = execution_id
        self.cause = Cause.NONE
        self.finished: Finished | None = None
        self._log = EventLog(RING_BYTES)
        self._limiters = {STDOUT: HeadAndTail(output_limit), STDERR: HeadAndTail(output_limit)}
        self._sources: list[Source] = []
        self._reader: asyncio.Event | None = None
        self._paused = False
        # Set once, with the seconds of grace, when somebody wants it ended before its end.
        self.stopped: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def add_source(self, source: Source) -> None:
        self._sources.append(source)

    def stop(self, cause: Cause, grace: float) -> None:
        """Asks for the end: kindly first, after `grace` seconds by force. The first to ask is the cause."""
        if not self.stopped.done() and self.finished is None:
            self.cause = cause
            self.stopped.set_result(grace)

    def output(self, stream: int, data: bytes) -> None:
        """Takes what the code wrote, as far as the output limit lets it through."""
        if head := self._limiters[stream].feed(data):
            self.emit(Output(stream, head))

    def written(self, stream: int) -> int:
        """Bytes that the code wrote to the stream."""
        return self._limiters[stream].total

    def flush_tails(self) -> None:
        """Says what the output limit dropped, then passes the tails on."""
        for stream, limiter in self._limiters.items():
            dropped, tail = limiter.finish()
            if dropped:
                self.emit(Gap(stream, dropped))
            outputs = [Output(stream, data) for data in tail]
            # They were held until now as well: nobody who reads misses what comes before them.
            self._log.capacity += sum(output.size for output in outputs)
            for output in outputs:
                self.emit(output)

    def emit(self, event: Event) -> None:
        self._log.append(event)
        if isinstance(event, Finished):
            self.finished = event
            self._sources.clear()
        if self._reader is not None:
            self._reader.set()
            self._hold()

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Everything from the first event on, in order, to the last. One reader at a time."""
        self._reader = ready = asyncio.Event()
        position, seen = 1, 0
        try:
            while True:
                for number, event in self._log.read(position, seen):
                    yield number, event
                    position = number + 1
                    seen += missed_or_read(event)
                    self._log.discard_before(position)
                    self._release()
                    if isinstance(event, Finished):
                        return
                if position == self._log.next:
                    ready.clear()
                    await ready.wait()
        finally:
            self._reader = None
            self._release()

    def _hold(self) -> None:
        if not self._paused and self._log.size > WINDOW_BYTES:
            self._paused = True
            for source in self._sources:
                source.pause()

    def _release(self) -> None:
        if self._paused and (self._reader is None or self._log.size <= WINDOW_BYTES // 2):
            self._paused = False
            for source in self._sources:
                source.resume()


def missed_or_read(event: Event) -> int:
    """Bytes of output that an event of the log stands for; one without a stream is the log's own gap."""
    match event:
        case Output(_, data):
            return len(data)
        case Gap(0, dropped_bytes):
            return dropped_bytes
    return 0
