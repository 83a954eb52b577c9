import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_OK: _ClassVar[Outcome]
    OUTCOME_ERROR: _ClassVar[Outcome]
    OUTCOME_TIMEOUT: _ClassVar[Outcome]
    OUTCOME_MEMORY: _ClassVar[Outcome]
    OUTCOME_KILLED: _ClassVar[Outcome]
    OUTCOME_INTERRUPTED: _ClassVar[Outcome]
    OUTCOME_DENIED: _ClassVar[Outcome]
    OUTCOME_LOST: _ClassVar[Outcome]

class Blame(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLAME_UNSPECIFIED: _ClassVar[Blame]
    BLAME_CODE: _ClassVar[Blame]
    BLAME_LIMIT: _ClassVar[Blame]
    BLAME_POLICY: _ClassVar[Blame]
    BLAME_PLATFORM: _ClassVar[Blame]

class Stream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_UNSPECIFIED: _ClassVar[Stream]
    STREAM_STDOUT: _ClassVar[Stream]
    STREAM_STDERR: _ClassVar[Stream]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_OK: Outcome
OUTCOME_ERROR: Outcome
OUTCOME_TIMEOUT: Outcome
OUTCOME_MEMORY: Outcome
OUTCOME_KILLED: Outcome
OUTCOME_INTERRUPTED: Outcome
OUTCOME_DENIED: Outcome
OUTCOME_LOST: Outcome
BLAME_UNSPECIFIED: Blame
BLAME_CODE: Blame
BLAME_LIMIT: Blame
BLAME_POLICY: Blame
BLAME_PLATFORM: Blame
STREAM_UNSPECIFIED: Stream
STREAM_STDOUT: Stream
STREAM_STDERR: Stream

class Usage(_message.Message):
    __slots__ = ("wall_seconds", "cpu_seconds", "peak_memory_bytes", "peak_processes", "stdout_bytes", "stderr_bytes", "written_bytes")
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    peak_processes: int
    stdout_bytes: int
    stderr_bytes: int
    written_bytes: int
    def __init__(self, wall_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., peak_processes: _Optional[int] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ...) -> None: ...

class FileChanges(_message.Message):
    __slots__ = ("created", "modified", "deleted", "complete", "omitted")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    created: _containers.RepeatedScalarFieldContainer[bytes]
    modified: _containers.RepeatedScalarFieldContainer[bytes]
    deleted: _containers.RepeatedScalarFieldContainer[bytes]
    complete: bool
    omitted: int
    def __init__(self, created: _Optional[_Iterable[bytes]] = ..., modified: _Optional[_Iterable[bytes]] = ..., deleted: _Optional[_Iterable[bytes]] = ..., complete: _Optional[bool] = ..., omitted: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("file", "line", "function", "source")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    source: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class ExecutionError(_message.Message):
    __slots__ = ("name", "value", "traceback", "frames", "dropped_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    traceback: str
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    dropped_bytes: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., traceback: _Optional[str] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., dropped_bytes: _Optional[int] = ...) -> None: ...

class MimePart(_message.Message):
    __slots__ = ("mime_type", "data")
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    mime_type: str
    data: bytes
    def __init__(self, mime_type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("parts", "is_main_result", "dropped_bytes", "display_id", "is_update")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    IS_MAIN_RESULT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_ID_FIELD_NUMBER: _ClassVar[int]
    IS_UPDATE_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[MimePart]
    is_main_result: bool
    dropped_bytes: int
    display_id: str
    is_update: bool
    def __init__(self, parts: _Optional[_Iterable[_Union[MimePart, _Mapping]]] = ..., is_main_result: _Optional[bool] = ..., dropped_bytes: _Optional[int] = ..., display_id: _Optional[str] = ..., is_update: _Optional[bool] = ...) -> None: ...

class OutputCleared(_message.Message):
    __slots__ = ("wait",)
    WAIT_FIELD_NUMBER: _ClassVar[int]
    wait: bool
    def __init__(self, wait: _Optional[bool] = ...) -> None: ...

class InputRequest(_message.Message):
    __slots__ = ("input_id", "prompt", "password", "settled")
    INPUT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    input_id: str
    prompt: str
    password: bool
    settled: bool
    def __init__(self, input_id: _Optional[str] = ..., prompt: _Optional[str] = ..., password: _Optional[bool] = ..., settled: _Optional[bool] = ...) -> None: ...

class ExecutionStarted(_message.Message):
    __slots__ = ("execution_id", "context_id", "cell_number", "lost", "resumed", "notices", "pid")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    CELL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    context_id: str
    cell_number: int
    lost: _containers.RepeatedScalarFieldContainer[str]
    resumed: Resumed
    notices: _containers.RepeatedCompositeFieldContainer[Notice]
    pid: int
    def __init__(self, execution_id: _Optional[str] = ..., context_id: _Optional[str] = ..., cell_number: _Optional[int] = ..., lost: _Optional[_Iterable[str]] = ..., resumed: _Optional[_Union[Resumed, _Mapping]] = ..., notices: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ..., pid: _Optional[int] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("reason", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Resumed(_message.Message):
    __slots__ = ("variables", "cell_number")
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    CELL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    variables: int
    cell_number: int
    def __init__(self, variables: _Optional[int] = ..., cell_number: _Optional[int] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("stream", "data")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    data: bytes
    def __init__(self, stream: _Optional[_Union[Stream, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class OutputGap(_message.Message):
    __slots__ = ("stream", "dropped_bytes", "dropped_events")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    dropped_bytes: int
    dropped_events: int
    def __init__(self, stream: _Optional[_Union[Stream, str]] = ..., dropped_bytes: _Optional[int] = ..., dropped_events: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("name", "trace_id", "span_id", "parent_span_id", "start", "end", "attributes", "error")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    attributes: _containers.ScalarMap[str, str]
    error: str
    def __init__(self, name: _Optional[str] = ..., trace_id: _Optional[bytes] = ..., span_id: _Optional[bytes] = ..., parent_span_id: _Optional[bytes] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attributes: _Optional[_Mapping[str, str]] = ..., error: _Optional[str] = ...) -> None: ...

class ExecutionFinished(_message.Message):
    __slots__ = ("outcome", "blame", "reason", "message", "exit_code", "signal", "usage", "files", "lost", "leftover_processes_killed", "spans", "rollback", "denied_hosts", "not_stored")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BLAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LEFTOVER_PROCESSES_KILLED_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    DENIED_HOSTS_FIELD_NUMBER: _ClassVar[int]
    NOT_STORED_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    blame: Blame
    reason: str
    message: str
    exit_code: int
    signal: str
    usage: Usage
    files: FileChanges
    lost: _containers.RepeatedScalarFieldContainer[str]
    leftover_processes_killed: int
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    rollback: Rollback
    denied_hosts: _containers.RepeatedScalarFieldContainer[str]
    not_stored: str
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., blame: _Optional[_Union[Blame, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., exit_code: _Optional[int] = ..., signal: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., files: _Optional[_Union[FileChanges, _Mapping]] = ..., lost: _Optional[_Iterable[str]] = ..., leftover_processes_killed: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., rollback: _Optional[_Union[Rollback, _Mapping]] = ..., denied_hosts: _Optional[_Iterable[str]] = ..., not_stored: _Optional[str] = ...) -> None: ...

class Rollback(_message.Message):
    __slots__ = ("done", "restored", "kept", "refused", "message", "cell_number", "cells_undone")
    DONE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CELL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CELLS_UNDONE_FIELD_NUMBER: _ClassVar[int]
    done: bool
    restored: _containers.RepeatedScalarFieldContainer[str]
    kept: _containers.RepeatedScalarFieldContainer[str]
    refused: str
    message: str
    cell_number: int
    cells_undone: int
    def __init__(self, done: _Optional[bool] = ..., restored: _Optional[_Iterable[str]] = ..., kept: _Optional[_Iterable[str]] = ..., refused: _Optional[str] = ..., message: _Optional[str] = ..., cell_number: _Optional[int] = ..., cells_undone: _Optional[int] = ...) -> None: ...

class ExecutionEvent(_message.Message):
    __slots__ = ("sequence", "started", "output", "result", "error", "gap", "finished", "cleared", "input")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    started: ExecutionStarted
    output: OutputChunk
    result: Result
    error: ExecutionError
    gap: OutputGap
    finished: ExecutionFinished
    cleared: OutputCleared
    input: InputRequest
    def __init__(self, sequence: _Optional[int] = ..., started: _Optional[_Union[ExecutionStarted, _Mapping]] = ..., output: _Optional[_Union[OutputChunk, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., error: _Optional[_Union[ExecutionError, _Mapping]] = ..., gap: _Optional[_Union[OutputGap, _Mapping]] = ..., finished: _Optional[_Union[ExecutionFinished, _Mapping]] = ..., cleared: _Optional[_Union[OutputCleared, _Mapping]] = ..., input: _Optional[_Union[InputRequest, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("memory_bytes", "tmp_bytes", "processes", "output_bytes", "executions", "max_timeout", "default_timeout", "open_files", "disk_bytes", "cpus")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    tmp_bytes: int
    processes: int
    output_bytes: int
    executions: int
    max_timeout: _duration_pb2.Duration
    default_timeout: _duration_pb2.Duration
    open_files: int
    disk_bytes: int
    cpus: float
    def __init__(self, memory_bytes: _Optional[int] = ..., tmp_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., executions: _Optional[int] = ..., max_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., default_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., open_files: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., cpus: _Optional[float] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("reason", "message", "retryable", "subject", "retry_after")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    retryable: bool
    subject: bytes
    retry_after: _duration_pb2.Duration
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., subject: _Optional[bytes] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RpcStatus(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class RetryInfo(_message.Message):
    __slots__ = ("retry_delay",)
    RETRY_DELAY_FIELD_NUMBER: _ClassVar[int]
    retry_delay: _duration_pb2.Duration
    def __init__(self, retry_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
