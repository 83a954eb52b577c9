"""One execution: its event log, its readers, and the back-pressure on its producers.

No reader gets an event before the kernel has it (or it is known that it cannot be stored): so what a client saw is
stored even if this process is killed. Memory holds what the readers have not read yet; the rest is read from the store.
Producers wait for the slowest reader. A reader that has taken nothing for STALL_SECONDS is stalled: producers stop
waiting for it while others read. When it reads again, it gets the kept events, and a gap with exact counts for the
rest.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Protocol

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.executions.event_log import EventLog, output_bytes
from sandfleet_executor.core.executions.events import STDERR, STDOUT, Event, Finished, Gap, Output, is_end
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.executions.output import HeadAndTail
from sandfleet_executor.effects.executions.inputs import Inputs
from sandfleet_executor.effects.executions.store.files import NO_STORE, StoreError
from sandfleet_executor.effects.executions.store.log import END_BYTES, Write
from sandfleet_executor.effects.executions.store.reader import StoreReader
from sandfleet_executor.effects.executions.store.recorder import Numbered, Readers, Recorder

# The most that memory holds (bytes), and how far readers may be behind before producers wait.
RING_BYTES = 8 << 20
WINDOW_BYTES = 4 << 20
# The most that is stored at once.
STORE_BYTES = 1 << 20
START_HOLD_SECONDS = 0.02
STORE_SECONDS = 0.05
STALL_SECONDS = 2.0


class Source(Protocol):
    """Something that produces events and can be told to wait."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Recording(Protocol):
    """Sees the events in their turn, and learns what was asked: the execution's record in the journal."""

    def see(self, event: Event) -> None: ...
    def note(self, **asked: Any) -> None: ...
    def sent(self, data: bytes) -> None: ...
    def signalled(self, number: int) -> None: ...


class Unrecorded:
    """Of an execution that has no record."""

    def see(self, event: Event) -> None:
        """It is not looked at."""

    def note(self, **asked: Any) -> None:
        """It is not kept."""

    def sent(self, data: bytes) -> None:
        """It is not kept."""

    def signalled(self, number: int) -> None:
        """It is not kept."""


class Reader:
    """One reader of an execution, and its position."""

    def __init__(self, position: int, seen: int, weight: int) -> None:
        # The next event; the bytes of output before it, by the reader's count; the bytes of events before it.
        self.position = position
        self.seen = seen
        self.weight = weight
        self.ready = asyncio.Event()
        # The start alone does not wake it.
        self.holds = False
        # Stalled readers are not waited for. Where the reader was when producers began to wait.
        self.stalled = False
        self.stood_at = 0
        # Its place in the store, where it reads there.
        self.stored: StoreReader | None = None

    def took(self, batch: Numbered, weight: int) -> None:
        self.position = batch[-1][0] + 1
        self.seen += sum(missed_or_read(event) for _, event in batch)
        self.weight = weight
        self.stalled = False

    def stop_holding(self) -> None:
        """It takes what is there, the start alone as well."""
        self.holds = False
        self.ready.set()


class AheadError(RpcError, ValueError, code="OUT_OF_RANGE", reason="AheadOfStream"):
    """The execution has not reached the event after which the reader wants to go on."""


class Execution:
    def __init__(
        self, execution_id: str, output_limit: int, recorder: Recorder | None = None, readers: Readers | None = None
    ) -> None:
        self.id = execution_id
        self.cause = Cause.NONE
        self.finished: Finished | None = None
        # The end follows at once: the events before it can be sent with it.
        self.ending = False
        self.first_output = 0  # When it came, in nanoseconds since the epoch.
        # Why some events could not be stored; empty while all are.
        self.not_stored = recorder.failed if recorder else NO_STORE
        self._recorder = recorder
        self.recording: Recording = Unrecorded()
        self._readers_everywhere = readers or Readers()
        self._log = EventLog(RING_BYTES)
        self._limiters = {STDOUT: HeadAndTail(output_limit), STDERR: HeadAndTail(output_limit)}
        self._sources: list[Source] = []
        self._readers: set[Reader] = set()
        self._paused = False
        # The first event that is not stored yet, and the bytes of output and of events before it.
        self._unstored = 1
        self._stored_output = self._stored_weight = 0
        self._storing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.inputs: Inputs | None = None  # While its cell runs.
        # Set once, with the seconds of grace, when the execution is stopped before its end.
        self.stopped: asyncio.Future[float] = self._loop.create_future()

    def add_source(self, source: Source) -> None:
        self._sources.append(source)

    def stop(self, cause: Cause, grace: float) -> None:
        """Asks for the end: kindly first, after `grace` seconds by force. The first call decides the cause."""
        if not self.stopped.done() and self.finished is None:
            self.cause = cause
            self.stopped.set_result(grace)

    def output(self, stream: int, data: bytes) -> None:
        """Takes what the code wrote, as far as the output limit lets it through."""
        self.first_output = self.first_output or time.time_ns()
        if head := self._limiters[stream].feed(data):
            self.emit(Output(stream, head))

    def written(self, stream: int) -> int:
        """Bytes that the code wrote to the stream."""
        return self._limiters[stream].total

    def flush_tails(self) -> None:
        """Emits a gap for the output that the limit dropped, then the tails."""
        for stream, limiter in self._limiters.items():
            dropped, tail = limiter.finish()
            if dropped:
                self.emit(Gap(stream, dropped))
            outputs = [Output(stream, data) for data in tail]
            # The tails were in memory before, too, so no reader loses earlier events to them.
            self._log.capacity += sum(output.size for output in outputs)
            for output in outputs:
                self.emit(output)

    def emit(self, event: Event) -> None:
        self.recording.see(event)
        self._log.append(event)
        if isinstance(event, Finished):
            self.finished, self.inputs = event, None
            self._let_go()
        for reader in self._readers:
            if not (reader.holds and self._is_only_start):
                reader.ready.set()
        if self._timer is None and self.finished is None:
            self._timer = self._loop.call_later(STORE_SECONDS, self._store_soon)
        # With less than that in all, no producer has to wait, and an event that is new frees none before it.
        if self._log.total > WINDOW_BYTES:
            self._adjust()

    # Reading

    @property
    def size(self) -> int:
        """Bytes held in memory."""
        return self._log.size

    @property
    def _is_only_start(self) -> bool:
        """Whether nothing has followed the start, which may not be there yet."""
        return self._log.next <= 2

    async def batches(self, after: int = 0, seen: int = 0) -> AsyncIterator[Numbered]:
        """All events after event `after`, in order, to the last. Events that are there at once come in one batch.

        `seen` is the bytes of output up to there. A message costs more than what is in it, so the start waits a moment
        for company. Raises AheadError and TooManyReadersError.
        """
        if after >= self._log.next:
            raise AheadError(f"cannot go on after event {after} of {self.id}: it is at event {self._log.next - 1}")
        with self._readers_everywhere.one():
            reader = self._attach(after, seen)
            try:
                if self._is_only_start:
                    await self._wait_a_moment(reader)
                while not (self.finished and reader.position == self._log.next):
                    reader.ready.clear()
                    while self.ending and self.finished is None:
                        await reader.ready.wait()
                        reader.ready.clear()
                    await self.settle()
                    batch, weight = await self._next(reader)
                    if batch:
                        yield batch
                        reader.took(batch, weight)
                        self._adjust()
                        if is_end(batch[-1][1]):
                            return
                    else:
                        await reader.ready.wait()
            finally:
                self._readers.discard(reader)
                self._adjust()

    def _attach(self, after: int, seen: int) -> Reader:
        held = max(after + 1, self._log.first)
        reader = Reader(after + 1, seen, self._log.weight_before(held))
        self._readers.add(reader)
        return reader

    async def _next(self, reader: Reader) -> tuple[Numbered, int]:
        """What the reader gets now, from memory or from the store, and the bytes of events up to there."""
        most = self._readers_everywhere.most
        if reader.position < self._log.first and self._recorder:
            reader.stored = reader.stored or self._recorder.reader()
            found = await asyncio.to_thread(reader.stored.read, reader.position, most)
            if found.events and found.events[0][0] < self._log.first:
                return found.after(reader.position, reader.seen), found.weight
        batch = self._log.read(reader.position, reader.seen, before=self._unstored, most=most)
        return batch, self._log.weight_before(batch[-1][0] + 1) if batch else 0

    async def _wait_a_moment(self, reader: Reader) -> None:
        """Until something follows the start, or START_HOLD_SECONDS are over."""
        reader.holds = True
        over = self._loop.call_later(START_HOLD_SECONDS, reader.stop_holding)
        try:
            while reader.holds and self._is_only_start:
                reader.ready.clear()
                await reader.ready.wait()
        finally:
            reader.holds = False
            over.cancel()

    # Storing

    async def settle(self) -> None:
        """Waits until the kernel has all emitted events, or it is known that they cannot be stored."""
        while self._unstored < self._log.next:
            if self._storing is None and self._store_small():
                return
            # A reader that goes away meanwhile does not take it along.
            self._storing = self._storing or self._loop.create_task(self._store_all())
            await asyncio.shield(self._storing)

    def close(self) -> None:
        """Nothing follows, and all is settled."""
        if self._timer:
            self._timer.cancel()
        if self._recorder:
            self._recorder.close()

    def _store_soon(self) -> None:
        self._timer = None
        if self._unstored < self._log.next and self._storing is None and not self._store_small():
            self._storing = self._loop.create_task(self._store_all())

    def _store_small(self) -> bool:
        """Stores small events now; False where there is more to store."""
        while self._unstored < self._log.next:
            batch = self._unstored_events()
            if sum(event.size for _, event in batch) > STORE_BYTES // 16:
                return False
            self._write(batch)
        return True

    async def _store_all(self) -> None:
        try:
            while self._unstored < self._log.next:
                batch = self._unstored_events()
                write = self._prepare(batch)
                if write:
                    try:
                        await write.behind()
                    except StoreError as error:
                        self._fail(error)
                self._stored(batch)
        finally:
            self._storing = None

    def _write(self, batch: Numbered) -> None:
        write = self._prepare(batch)
        if write:
            try:
                write.now()
            except StoreError as error:
                self._fail(error)
        self._stored(batch)

    def _unstored_events(self) -> Numbered:
        if self._unstored < self._log.first:
            # Events came faster than the disk takes them, and the oldest were dropped.
            self._unstored = self._log.first
            self._stored_output = self._log.passed_before(self._log.first)
            self._stored_weight = self._log.weight_before(self._log.first)
        if self.finished and self.not_stored:
            self._say_not_stored(self.finished)
        batch = self._log.read(self._unstored, 0, most=STORE_BYTES)
        # The end on its own, so that it may be kept where the rest is not.
        large = sum(event.size for _, event in batch) > END_BYTES
        return batch[:-1] if large and len(batch) > 1 and isinstance(batch[-1][1], Finished) else batch

    def _say_not_stored(self, end: Finished) -> None:
        self.finished = replace(end, not_stored=self.not_stored)
        self._log.replace_last(self.finished)

    def _prepare(self, batch: Numbered) -> Write | None:
        if self._recorder is None:
            return None
        try:
            return self._recorder.prepare(batch, self._stored_output, self._stored_weight)
        except StoreError as error:
            self._fail(error)
        return None

    def _fail(self, error: StoreError) -> None:
        self.not_stored = self.not_stored or error.reason

    def _stored(self, batch: Numbered) -> None:
        """The batch is stored, or it is known that it is not."""
        self._unstored = batch[-1][0] + 1
        self._stored_output += sum(output_bytes(event) for _, event in batch)
        self._stored_weight += sum(event.size for _, event in batch)
        if isinstance(batch[-1][1], Finished) and self.not_stored:
            self._say_not_stored(batch[-1][1])
        for reader in self._readers:
            reader.ready.set()
        self._adjust()

    # Holding back

    def _adjust(self) -> None:
        """Frees the events that no reader needs in memory, and pauses or resumes producers."""
        waited_for = [reader for reader in self._readers if not reader.stalled]
        if not waited_for and self._readers:
            waited_for = list(self._readers)
        if not self.not_stored:
            positions = [reader.position for reader in waited_for if reader.position >= self._log.first]
            self._log.discard_before(min([self._unstored, *positions]))
        slowest = min([self._stored_weight, *(reader.weight for reader in waited_for)])
        behind = self._log.total - slowest
        if not self._paused and behind > WINDOW_BYTES:
            self._pause()
        elif self._paused and behind <= WINDOW_BYTES // 2:
            self._resume()

    def _pause(self) -> None:
        self._paused = True
        for source in self._sources:
            source.pause()
        # It may be the store that is behind.
        self._loop.call_soon(self._store_soon)
        for reader in self._readers:
            reader.stood_at = reader.position
        if self._sources and self._stall_timer is None:
            self._stall_timer = self._loop.call_later(STALL_SECONDS, self._give_up)

    def _resume(self) -> None:
        self._paused = False
        for source in self._sources:
            source.resume()

    def _give_up(self) -> None:
        """Marks readers that take nothing as stalled, if others read."""
        self._stall_timer = None
        if not self._paused:
            return
        standing = [reader for reader in self._readers if reader.position == reader.stood_at]
        near = [reader for reader in self._readers if self._log.total - reader.weight <= WINDOW_BYTES // 2]
        for reader in standing:
            reader.stalled = bool(near) and reader not in near
        self._adjust()
        if self._paused:
            # Readers that moved may stall from now on.
            self._pause()

    def _let_go(self) -> None:
        """The sources outlive the execution: an interpreter that stayed paused would never hear of its next cell."""
        if self._paused:
            self._resume()
        self._sources.clear()
        if self._stall_timer:
            self._stall_timer.cancel()
            self._stall_timer = None


def missed_or_read(event: Event) -> int:
    """Bytes of output that an event of the log stands for; a gap without a stream is the log's own."""
    match event:
        case Output():
            return len(event.data)
        case Gap(0, dropped_bytes):
            return dropped_bytes
    return getattr(event, "output", 0)
