"""Values ↔ messages that several servicers need."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import common_pb2 as pb

from sandfleet_executor.core.executions.events import (
    STDERR,
    STDOUT,
    Cleared,
    Error,
    Event,
    Finished,
    Gap,
    InputRequest,
    Output,
    Result,
    Rollback,
    Span,
    Started,
    Stored,
    Usage,
)
from sandfleet_executor.core.executions.records import FINGERPRINT_BYTES
from sandfleet_executor.core.executions.tracing import TraceParent, parse_traceparent
from sandfleet_executor.core.limits import BOUNDS, SECONDS, Bound, Limits
from sandfleet_executor.effects.executions.registry import (
    Stream,
)

# As names, which messages take, too.
OUTCOMES = {name.removeprefix("OUTCOME_").lower(): name for name in pb.Outcome.keys()[1:]}
BLAMES = {"": "BLAME_UNSPECIFIED"} | {name.removeprefix("BLAME_").lower(): name for name in pb.Blame.keys()[1:]}
# A gap of the ring belongs to no one stream.
STREAMS = {0: pb.STREAM_UNSPECIFIED, STDOUT: pb.STREAM_STDOUT, STDERR: pb.STREAM_STDERR}


def seconds(message: Any, field: str) -> float | None:
    """A Duration's seconds, None where it is not set."""
    if not message.HasField(field):
        return None
    value: Duration = getattr(message, field)
    return value.seconds + value.nanos / 1e9


def duration(value: float) -> Duration:
    whole = int(value)
    return Duration(seconds=whole, nanos=int((value - whole) * 1e9))


def timestamp(nanoseconds: int) -> Timestamp:
    return Timestamp(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)


def traceparent(context: "grpc.aio.ServicerContext[Any, Any]") -> TraceParent | None:
    """The caller's span, from the metadata."""
    for key, value in context.invocation_metadata() or ():
        if key == "traceparent":
            return parse_traceparent(value if isinstance(value, str) else value.decode("ascii", "replace"))
    return None


def text(name: bytes) -> str:
    """For messages only: a path as text."""
    return name.decode("utf-8", "backslashreplace")


def span(value: Span) -> pb.Span:
    return pb.Span(
        name=value.name,
        trace_id=value.trace_id,
        span_id=value.span_id,
        parent_span_id=value.parent_span_id,
        start=timestamp(value.start),
        end=timestamp(value.end),
        attributes=value.attributes,
        error=value.error,
    )


def usage(value: Usage) -> pb.Usage:
    return pb.Usage(
        wall_seconds=value.wall_seconds,
        cpu_seconds=value.cpu_seconds,
        peak_memory_bytes=value.peak_memory_bytes,
        peak_processes=value.peak_processes,
        stdout_bytes=value.stdout_bytes,
        stderr_bytes=value.stderr_bytes,
        written_bytes=value.written_bytes,
    )


def finished(value: Finished) -> pb.ExecutionFinished:
    used, files = value.usage, value.files
    return pb.ExecutionFinished(
        outcome=OUTCOMES[value.outcome],
        blame=BLAMES[value.blame],
        reason=value.reason,
        message=value.message,
        exit_code=value.exit_code,
        signal=value.signal,
        usage=usage(used),
        files=pb.FileChanges(
            created=files.created,
            modified=files.modified,
            deleted=files.deleted,
            complete=files.complete,
            omitted=files.omitted,
        ),
        lost=value.lost,
        leftover_processes_killed=value.leftover_processes_killed,
        spans=map(span, value.spans),
        rollback=rollback(value.rollback) if value.rollback else None,
        not_stored=value.not_stored,
        denied_hosts=value.denied_hosts,
    )


def rollback(value: Rollback) -> pb.Rollback:
    return pb.Rollback(**asdict(value))


def event(sequence: int, value: Event) -> pb.ExecutionEvent:
    """The message of one event."""
    match value:
        case Output(stream, data):
            return pb.ExecutionEvent(sequence=sequence, output=pb.OutputChunk(stream=STREAMS[stream], data=data))
        case Stored(data):
            return pb.ExecutionEvent.FromString(data)
        case Finished():
            return pb.ExecutionEvent(sequence=sequence, finished=finished(value))
        case Started(execution_id, context_id, cell_number, lost, resumed, notices, pid):
            started = pb.ExecutionStarted(
                execution_id=execution_id,
                context_id=context_id,
                cell_number=cell_number,
                lost=lost,
                notices=[pb.Notice(reason=each.reason, message=each.message) for each in notices],
                pid=pid,
            )
            if resumed:
                started.resumed.variables, started.resumed.cell_number = resumed
            return pb.ExecutionEvent(sequence=sequence, started=started)
        case Result():
            return pb.ExecutionEvent(sequence=sequence, result=result(value))
        case Cleared() | InputRequest():
            return _of_front_end(sequence, value)
        case Gap(stream, dropped_bytes, dropped_events):
            gap = pb.OutputGap(stream=STREAMS[stream], dropped_bytes=dropped_bytes, dropped_events=dropped_events)
            return pb.ExecutionEvent(sequence=sequence, gap=gap)
        case Error():
            return pb.ExecutionEvent(sequence=sequence, error=error(value))


def _of_front_end(sequence: int, value: Cleared | InputRequest) -> pb.ExecutionEvent:
    if isinstance(value, Cleared):
        return pb.ExecutionEvent(sequence=sequence, cleared=pb.OutputCleared(wait=value.wait))
    asked = pb.InputRequest(
        input_id=value.input_id, prompt=value.prompt, password=value.password, settled=value.settled
    )
    return pb.ExecutionEvent(sequence=sequence, input=asked)


def result(value: Result) -> pb.Result:
    return pb.Result(
        parts=[pb.MimePart(mime_type=name, data=data) for name, data in value.parts],
        is_main_result=value.is_main,
        dropped_bytes=value.dropped_bytes,
        display_id=value.display_id,
        is_update=value.is_update,
    )


def stored(sequence: int, value: Event) -> bytes:
    """An event as it is stored."""
    return event(sequence, value).SerializeToString()


def fingerprint(request: Message) -> bytes:
    """Tells one request from another."""
    return hashlib.blake2b(request.SerializeToString(deterministic=True), digest_size=FINGERPRINT_BYTES).digest()


async def streamed(stream: Stream, after: int = 0, seen: int = 0) -> AsyncIterator[list[pb.ExecutionEvent]]:
    """The events of an execution, as they travel together."""
    async for batch in stream.batches(after, seen):
        yield [event(number, value) for number, value in batch]


def error(value: Error) -> pb.ExecutionError:
    frames = [pb.Frame(file=f.file, line=f.line, function=f.function, source=f.source) for f in value.frames]
    return pb.ExecutionError(
        name=value.name, value=value.value, traceback=value.traceback, frames=frames, dropped_bytes=value.left_out
    )


def limits_wish(message: pb.Limits) -> Mapping[str, float]:
    """The limits that the message sets."""
    return {name: value for name, bound in BOUNDS.items() if (value := _limit(message, name, bound))}


def _limit(message: pb.Limits, name: str, bound: Bound) -> float | None:
    return seconds(message, name) if bound.unit == SECONDS else getattr(message, name)


def limits_message(limits: Limits) -> pb.Limits:
    """The limits as they hold; /tmp gets less than its limit where the memory is small."""
    values: dict[str, Any] = {name: getattr(limits, name) for name in BOUNDS} | {"tmp_bytes": limits.tmpfs_bytes}
    for name, bound in BOUNDS.items():
        if bound.unit == SECONDS:
            values[name] = duration(values[name])
    return pb.Limits(**values)
