"""Values ↔ messages that several servicers need."""

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import common_pb2 as pb

from sandfleet_executor.core.config import ConfigError
from sandfleet_executor.core.events import (
    STDERR,
    STDOUT,
    Error,
    Event,
    Finished,
    Gap,
    Output,
    Result,
    Rollback,
    Span,
    Started,
    Stored,
    Usage,
)
from sandfleet_executor.core.manifest import BadManifest
from sandfleet_executor.core.records import FINGERPRINT_BYTES
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.core.services.plan import TakenError, TooManyError
from sandfleet_executor.core.services.spec import CycleError, UnknownServiceError
from sandfleet_executor.core.tracing import TraceParent, parse_traceparent
from sandfleet_executor.effects import statestore
from sandfleet_executor.effects.children import NamespaceError
from sandfleet_executor.effects.copies import NotCopiedError
from sandfleet_executor.effects.execution import AheadError
from sandfleet_executor.effects.executions import ForgottenError, OtherRequestError, Stream, UnknownExecutionError
from sandfleet_executor.effects.journal import TooManyReadersError
from sandfleet_executor.effects.services import UnknownNameError
from sandfleet_executor.effects.session import BusyError, ExistsError, FullError, MismatchError, NotFoundError
from sandfleet_executor.servicers.errors import ApiError

# (exception, status, reason, retryable)
FAILURES: tuple[tuple[type[Exception], grpc.StatusCode, str, bool], ...] = (
    (UnknownServiceError, grpc.StatusCode.INVALID_ARGUMENT, "UnknownService", False),
    (CycleError, grpc.StatusCode.INVALID_ARGUMENT, "ServiceCycle", False),
    (BadRequest, grpc.StatusCode.INVALID_ARGUMENT, "InvalidArgument", False),
    (ConfigError, grpc.StatusCode.INVALID_ARGUMENT, "InvalidLimits", False),
    (NotFoundError, grpc.StatusCode.NOT_FOUND, "NotFound", False),
    (UnknownNameError, grpc.StatusCode.NOT_FOUND, "ServiceNotFound", False),
    (TakenError, grpc.StatusCode.ALREADY_EXISTS, "TemplateService", False),
    (TooManyError, grpc.StatusCode.RESOURCE_EXHAUSTED, "TooManyServices", False),
    (ExistsError, grpc.StatusCode.ALREADY_EXISTS, "AlreadyExists", False),
    (OtherRequestError, grpc.StatusCode.ALREADY_EXISTS, "ExecutionMismatch", False),
    (ForgottenError, grpc.StatusCode.ALREADY_EXISTS, "ResultForgotten", False),
    (UnknownExecutionError, grpc.StatusCode.NOT_FOUND, "ExecutionNotFound", False),
    (AheadError, grpc.StatusCode.OUT_OF_RANGE, "AheadOfStream", False),
    (TooManyReadersError, grpc.StatusCode.RESOURCE_EXHAUSTED, "TooManyReaders", True),
    (BusyError, grpc.StatusCode.RESOURCE_EXHAUSTED, "TooMany", True),
    (FullError, grpc.StatusCode.RESOURCE_EXHAUSTED, "WorkspaceFull", True),
    (MismatchError, grpc.StatusCode.FAILED_PRECONDITION, "SessionMismatch", False),
    (statestore.NoSpaceError, grpc.StatusCode.RESOURCE_EXHAUSTED, "NoSpace", True),
    (statestore.TooManyStatesError, grpc.StatusCode.RESOURCE_EXHAUSTED, "TooManyStates", True),
    (statestore.StateMissingError, grpc.StatusCode.NOT_FOUND, "NoState", False),
    (statestore.StateDamagedError, grpc.StatusCode.DATA_LOSS, "StateDamaged", False),
    (statestore.BrokenOffError, grpc.StatusCode.ABORTED, "BrokenOff", True),
    (statestore.NoStateDirError, grpc.StatusCode.FAILED_PRECONDITION, "NoStateDirectory", False),
    (statestore.NothingToSaveError, grpc.StatusCode.FAILED_PRECONDITION, "NothingToSave", False),
    (BadManifest, grpc.StatusCode.FAILED_PRECONDITION, "EnvironmentUnreadable", False),
    (NamespaceError, grpc.StatusCode.UNAVAILABLE, "SessionUnavailable", True),
)
# Why a context is not forked: (status, retryable) of the reasons that are no state of the context.
REFUSALS = {
    "ForkFailed": (grpc.StatusCode.RESOURCE_EXHAUSTED, True),
    "CopyBroken": (grpc.StatusCode.UNAVAILABLE, True),
}
OUTCOMES = {
    "ok": pb.OUTCOME_OK,
    "error": pb.OUTCOME_ERROR,
    "timeout": pb.OUTCOME_TIMEOUT,
    "memory": pb.OUTCOME_MEMORY,
    "killed": pb.OUTCOME_KILLED,
    "interrupted": pb.OUTCOME_INTERRUPTED,
    "denied": pb.OUTCOME_DENIED,
    "lost": pb.OUTCOME_LOST,
}
BLAMES = {
    "": pb.BLAME_UNSPECIFIED,
    "code": pb.BLAME_CODE,
    "limit": pb.BLAME_LIMIT,
    "policy": pb.BLAME_POLICY,
    "platform": pb.BLAME_PLATFORM,
}
# A gap of the ring belongs to no one stream.
STREAMS = {0: pb.STREAM_UNSPECIFIED, STDOUT: pb.STREAM_STDOUT, STDERR: pb.STREAM_STDERR}


@contextmanager
def typed_failures(subject: str = "") -> Iterator[None]:
    """Turns the failures that the API knows into ApiError."""
    try:
        yield
    except tuple(kind for kind, *_ in FAILURES) as error:
        status, reason, retryable = next(row[1:] for row in FAILURES if isinstance(error, row[0]))
        raise ApiError(status, reason, str(error), retryable=retryable, subject=subject.encode()) from error
    except NotCopiedError as error:
        status, retryable = REFUSALS.get(error.why.reason, (grpc.StatusCode.FAILED_PRECONDITION, False))
        message = f"cannot fork the context because {error}"
        raise ApiError(status, error.why.reason, message, retryable=retryable, subject=subject.encode()) from error


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
    )


def rollback(value: Rollback) -> pb.Rollback:
    return pb.Rollback(
        done=value.done,
        restored=value.restored,
        kept=value.kept,
        refused=value.refused,
        message=value.message,
        cell_number=value.cell_number,
        cells_undone=value.cells_undone,
    )


def event(sequence: int, value: Event) -> pb.ExecutionEvent:
    """The message of one event."""
    match value:
        case Output(stream, data):
            return pb.ExecutionEvent(sequence=sequence, output=pb.OutputChunk(stream=STREAMS[stream], data=data))
        case Stored(data):
            return pb.ExecutionEvent.FromString(data)
        case Finished():
            return pb.ExecutionEvent(sequence=sequence, finished=finished(value))
        case Started(execution_id, context_id, cell_number, lost, resumed, notices):
            started = pb.ExecutionStarted(
                execution_id=execution_id,
                context_id=context_id,
                cell_number=cell_number,
                lost=lost,
                notices=[pb.Notice(reason=each.reason, message=each.message) for each in notices],
            )
            if resumed:
                started.resumed.variables, started.resumed.cell_number = resumed
            return pb.ExecutionEvent(sequence=sequence, started=started)
        case Result(parts, is_main, dropped):
            shown = [pb.MimePart(mime_type=name, data=data) for name, data in parts]
            result = pb.Result(parts=shown, is_main_result=is_main, dropped_bytes=dropped)
            return pb.ExecutionEvent(sequence=sequence, result=result)
        case Gap(stream, dropped_bytes, dropped_events):
            gap = pb.OutputGap(stream=STREAMS[stream], dropped_bytes=dropped_bytes, dropped_events=dropped_events)
            return pb.ExecutionEvent(sequence=sequence, gap=gap)
        case Error():
            return pb.ExecutionEvent(sequence=sequence, error=error(value))


def stored(sequence: int, value: Event) -> bytes:
    """An event as it is stored."""
    return event(sequence, value).SerializeToString()


def fingerprint(request: Message) -> bytes:
    """Tells one request from another."""
    return hashlib.blake2b(request.SerializeToString(deterministic=True), digest_size=FINGERPRINT_BYTES).digest()


async def streamed(stream: Stream, after: int = 0, seen: int = 0) -> AsyncIterator[list[pb.ExecutionEvent]]:
    """The events of an execution, as they travel together."""
    with typed_failures():
        async for batch in stream.batches(after, seen):
            yield [event(number, value) for number, value in batch]


def error(value: Error) -> pb.ExecutionError:
    frames = [pb.Frame(file=f.file, line=f.line, function=f.function, source=f.source) for f in value.frames]
    return pb.ExecutionError(name=value.name, value=value.value, traceback=value.traceback, frames=frames)


def limits_wish(message: pb.Limits) -> Mapping[str, float]:
    """The limits that are set."""
    wish: dict[str, float] = {
        name: getattr(message, name)
        for name in ("memory_bytes", "tmp_bytes", "processes", "output_bytes", "executions", "open_files", "disk_bytes")
        if getattr(message, name)
    }
    for name in ("max_timeout", "default_timeout"):
        value = seconds(message, name)
        if value is not None:
            wish[name] = value
    return wish
