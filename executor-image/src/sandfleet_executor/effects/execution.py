"""One execution: its event log, the reader of it, and what holds producers back when the reader is slow."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from sandfleet_executor.core.eventlog import EventLog
from sandfleet_executor.core.events import STDERR, STDOUT, Event, Finished, Gap, Output
from sandfleet_executor.core.outcomes import Cause
from sandfleet_executor.core.output import HeadAndTail

# What is kept for a reader that may come (bytes), and what an attached reader may be behind before producers wait.
RING_BYTES = 8 << 20
WINDOW_BYTES = 4 << 20
# What travels in one message at most, unless one event is larger.
BATCH_BYTES = 1 << 20
START_HOLD_SECONDS = 0.02


class Source(Protocol):
    """Something that produces events and can be told to wait."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Execution:
    def __init__(self, execution_id: str, output_limit: int) -> None:
        self.id = execution_id
        self.cause = Cause.NONE
        self.finished: Finished | None = None
        # The end is known and follows without anything to wait for: what comes before it can go with it.
        self.ending = False
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
            self._let_go()
        if self._reader is not None:
            self._reader.set()
            self._hold()

    async def batches(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """Everything from the first event on, in order, to the last; what is there at once comes together.

        One reader at a time. A message costs more than what is in it, so the start waits a moment for company.
        """
        self._reader = ready = asyncio.Event()
        if self._log.next <= 2:
            await self._wait_a_moment(ready)
        position, seen = 1, 0
        try:
            while True:
                while self.ending and self.finished is None:
                    ready.clear()
                    await ready.wait()
                for batch in split(self._log.read(position, seen)):
                    yield batch
                    position = batch[-1][0] + 1
                    seen += sum(missed_or_read(event) for _, event in batch)
                    self._log.discard_before(position)
                    self._release()
                    if isinstance(batch[-1][1], Finished):
                        return
                if position == self._log.next:
                    ready.clear()
                    await ready.wait()
        finally:
            self._reader = None
            self._release()

    async def _wait_a_moment(self, ready: asyncio.Event) -> None:
        """Until something follows the start, or START_HOLD_SECONDS are over."""
        try:
            async with asyncio.timeout(START_HOLD_SECONDS):
                while self._log.next <= 2:
                    ready.clear()
                    await ready.wait()
        except TimeoutError:
            return

    def _hold(self) -> None:
        if not self._paused and self._log.size > WINDOW_BYTES:
            self._paused = True
            for source in self._sources:
                source.pause()

    def _let_go(self) -> None:
        """The sources outlive the execution: an interpreter that stayed paused would never hear of its next cell."""
        if self._paused:
            for source in self._sources:
                source.resume()
        self._sources.clear()

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


def split(events: list[tuple[int, Event]]) -> Iterator[list[tuple[int, Event]]]:
    """In batches of at most BATCH_BYTES."""
    batch: list[tuple[int, Event]] = []
    size = 0
    for number, event in events:
        if batch and size + event.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((number, event))
        size += event.size
    if batch:
        yield batch
