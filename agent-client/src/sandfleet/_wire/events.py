"""Fold the events of one execution into its output, results and end. Pure; executors are hostile, so are all events."""

from __future__ import annotations

import codecs
import io
from collections.abc import Sequence
from dataclasses import dataclass

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.results import Results
from sandfleet.errors import ProtocolError
from sandfleet.values.execution import Cleared, CommandOutput, ExecutionError, Gap, Outcome, Result, Stream

# Of each stream without a limit: far above any template's limit.
OUTPUT_BOUND = 256 * 1024 * 1024
# Above the given limit, since an executor may cut at the end of a chunk.
_OUTPUT_SLACK = 1024 * 1024
_GAPS_COUNT = 1_000
# Reason of an execution whose whole sandbox ended, since its memory was used up.
OUT_OF_MEMORY = "SandboxOutOfMemory"


@dataclass(frozen=True, slots=True)
class Asked:
    """The code waits for a line of input, or (`settled`) waits for that of this id no longer."""

    input_id: str
    prompt: str
    password: bool
    settled: bool


Piece = CommandOutput | Result | Cleared | Asked


@dataclass(frozen=True, slots=True)
class Ending:
    """How an execution ended, as the executor reported or as the client had to conclude."""

    outcome: Outcome
    message: api.common.ExecutionFinished
    lost: tuple[str, ...] = ()


class Output:
    """One stream's text so far: bounded, decoded as it comes, with its gaps."""

    def __init__(self, stream: Stream, bound: int, *, keep_bytes: bool) -> None:
        self.stream = stream
        self.gaps: list[Gap] = []
        self._bound = self._room = bound
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = io.StringIO()
        self._length = 0
        self._bytes = bytearray() if keep_bytes else None

    @property
    def text(self) -> str:
        """All text so far."""
        return self._text.getvalue()

    @property
    def data(self) -> bytes:
        """All bytes so far, if they are kept."""
        return bytes(self._bytes or b"")

    def add(self, data: bytes) -> tuple[CommandOutput, ...]:
        """Take a chunk; bytes above the bound are dropped and counted."""
        kept, over = data[: self._room], len(data) - self._room
        self._room -= len(kept)
        pieces = self._pieces(kept, final=False)
        return pieces if over <= 0 else pieces + self.skip(over, 0)

    def clear(self) -> None:
        """Forget all text so far."""
        self.gaps.clear()
        self._room, self._length, self._text = self._bound, 0, io.StringIO()
        self._decoder.reset()
        if self._bytes is not None:
            self._bytes.clear()

    def skip(self, size: int, events: int) -> tuple[CommandOutput, ...]:
        """Note that output is missing here. A character that the gap cut ends here."""
        tail = self._pieces(b"", final=True)
        last = self.gaps[-1] if self.gaps else None
        if last is not None and (last.position == self._length or len(self.gaps) >= _GAPS_COUNT):
            size_so_far, events_so_far = last.dropped_bytes + size, last.dropped_events + events
            self.gaps[-1] = Gap(self.stream, last.position, size_so_far, events_so_far)
        else:
            self.gaps.append(Gap(self.stream, self._length, size, events))
        return (*tail, CommandOutput(self.stream, "", b"", dropped_bytes=size))

    def end(self) -> tuple[CommandOutput, ...]:
        """Decode the rest."""
        return self._pieces(b"", final=True)

    def _pieces(self, data: bytes, *, final: bool) -> tuple[CommandOutput, ...]:
        text = self._decoder.decode(data, final)
        if final:
            self._decoder.reset()
        self._text.write(text)
        self._length += len(text)
        if self._bytes is not None:
            self._bytes += data
        return (CommandOutput(self.stream, text, data),) if data or text else ()


class EventCollector:
    """Takes the events of one execution, in order. Raises ProtocolError for events that no executor may send."""

    def __init__(self, execution_id: str, *, output_limit: int | None = None, keep_bytes: bool = False) -> None:
        bound = output_limit + _OUTPUT_SLACK if output_limit else OUTPUT_BOUND
        self.execution_id = execution_id
        self.started: api.common.ExecutionStarted | None = None
        self.ending: Ending | None = None
        self.error: ExecutionError | None = None
        self.results = Results()
        self.outputs = {stream: Output(stream, bound, keep_bytes=keep_bytes) for stream in Stream}
        # Whether what comes next clears what was shown.
        self._clears = False
        self._sequence = 0
        # Bytes of output so far, those in gaps without a stream included: the executor counts the same.
        self.seen_bytes = 0

    @property
    def position(self) -> int:
        """Number of the last received event."""
        return self._sequence

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """All gaps of both streams."""
        return tuple(gap for output in self.outputs.values() for gap in output.gaps)

    @property
    def spans(self) -> Sequence[api.common.Span]:
        """The executor's own spans of this execution."""
        return self.ending.message.spans if self.ending else ()

    def feed(self, event: api.common.ExecutionEvent) -> tuple[Piece, ...]:
        """Take one event; return its output and results."""
        kind = event.WhichOneof("event")
        self._check_order(event, kind)
        match kind:
            case "started":
                self._start(event.started)
            case "cleared":
                return self._clear(wait=event.cleared.wait)
            case "output":
                self._clear_now()
                self.seen_bytes += len(event.output.data)
                return self._output(event.output.stream).add(event.output.data)
            case "gap":
                gap = event.gap
                self.seen_bytes = min(2**64 - 1, self.seen_bytes + (0 if gap.stream else gap.dropped_bytes))
                # A gap in the ring buffer may be of both streams; then it names none.
                output = self._output(gap.stream) if gap.stream else self.outputs[Stream.STDOUT]
                return output.skip(gap.dropped_bytes, gap.dropped_events)
            case "result":
                self._clear_now()
                return (self.results.add(event.result),)
            case "input":
                said = event.input
                return (Asked(said.input_id, said.prompt, said.password, said.settled),)
            case "error":
                self.error = convert.error(event.error)
            case "finished":
                return self._finish(event.finished)
            case _:
                # An event of a later version of the API.
                pass
        return ()

    def end_of_memory(self, message: str, lost: tuple[str, ...]) -> tuple[Piece, ...]:
        """End it as ended with its whole sandbox, whose memory was used up; what was received so far stays."""
        finished = api.common.ExecutionFinished(
            outcome=api.common.OUTCOME_MEMORY,
            blame=api.common.BLAME_LIMIT,
            reason=OUT_OF_MEMORY,
            message=message,
        )
        self.ending = Ending(Outcome.MEMORY, finished, lost)
        return self._rest()

    def lose(self, reason: str, message: str, lost: tuple[str, ...]) -> tuple[Piece, ...]:
        """End it as lost; what was received so far stays."""
        finished = api.common.ExecutionFinished(
            outcome=api.common.OUTCOME_LOST, blame=api.common.BLAME_PLATFORM, reason=reason, message=message
        )
        self.ending = Ending(Outcome.LOST, finished, lost)
        return self._rest()

    def _check_order(self, event: api.common.ExecutionEvent, kind: str | None) -> None:
        missing = event.gap.dropped_events if kind == "gap" else 0
        if not self._sequence < event.sequence <= self._sequence + 1 + missing:
            raise ProtocolError(
                f"cannot take event {event.sequence} after event {self._sequence}", reason="BadSequence"
            )
        if self.ending is not None or (kind == "started") != (self.started is None):
            raise ProtocolError(f"cannot take event {kind!r} here: out of order", reason="BadOrder")
        self._sequence = event.sequence

    def _start(self, started: api.common.ExecutionStarted) -> None:
        if started.execution_id != self.execution_id:
            raise ProtocolError("cannot take the events of another execution", reason="ForeignExecution")
        self.started = started

    def _output(self, number: int) -> Output:
        if (stream := convert.stream(number)) is None:
            raise ProtocolError(f"cannot take output of stream {number}: there is none", reason="UnknownStream")
        return self.outputs[stream]

    def _clear(self, *, wait: bool) -> tuple[Piece, ...]:
        self._clears = True
        if not wait:
            self._clear_now()
        return (Cleared(wait),)

    def _clear_now(self) -> None:
        if self._clears:
            self._clears = False
            self.results.clear()
            for output in self.outputs.values():
                output.clear()

    def _finish(self, message: api.common.ExecutionFinished) -> tuple[Piece, ...]:
        outcome = convert.outcome(message.outcome)
        if outcome is None:
            raise ProtocolError(f"cannot take outcome {message.outcome}: there is none", reason="UnknownOutcome")
        self.ending = Ending(outcome, message, convert.lost(message.lost))
        return self._rest()

    def _rest(self) -> tuple[Piece, ...]:
        return tuple(piece for output in self.outputs.values() for piece in output.end())
