import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandfleet_api.executor.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Pty(_message.Message):
    __slots__ = ("rows", "cols", "term")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    rows: int
    cols: int
    term: str
    def __init__(self, rows: _Optional[int] = ..., cols: _Optional[int] = ..., term: _Optional[str] = ...) -> None: ...

class StartRequest(_message.Message):
    __slots__ = ("execution_id", "argv", "shell", "cwd", "envs", "open_stdin", "merge_output", "timeout", "output_limit_bytes", "pty")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    OPEN_STDIN_FIELD_NUMBER: _ClassVar[int]
    MERGE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PTY_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    shell: bytes
    cwd: bytes
    envs: _containers.ScalarMap[str, str]
    open_stdin: bool
    merge_output: bool
    timeout: _duration_pb2.Duration
    output_limit_bytes: int
    pty: Pty
    def __init__(self, execution_id: _Optional[str] = ..., argv: _Optional[_Iterable[bytes]] = ..., shell: _Optional[bytes] = ..., cwd: _Optional[bytes] = ..., envs: _Optional[_Mapping[str, str]] = ..., open_stdin: _Optional[bool] = ..., merge_output: _Optional[bool] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., output_limit_bytes: _Optional[int] = ..., pty: _Optional[_Union[Pty, _Mapping]] = ...) -> None: ...

class StartResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_common_pb2.ExecutionEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_common_pb2.ExecutionEvent, _Mapping]]] = ...) -> None: ...

class ProcessServiceAttachRequest(_message.Message):
    __slots__ = ("execution_id", "after_sequence", "seen_bytes")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    after_sequence: int
    seen_bytes: int
    def __init__(self, execution_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., seen_bytes: _Optional[int] = ...) -> None: ...

class ProcessServiceAttachResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_common_pb2.ExecutionEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_common_pb2.ExecutionEvent, _Mapping]]] = ...) -> None: ...

class SendInputRequest(_message.Message):
    __slots__ = ("execution_id", "data")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    data: bytes
    def __init__(self, execution_id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class SendInputResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CloseInputRequest(_message.Message):
    __slots__ = ("execution_id",)
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    def __init__(self, execution_id: _Optional[str] = ...) -> None: ...

class CloseInputResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SignalRequest(_message.Message):
    __slots__ = ("execution_id", "signal")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    signal: int
    def __init__(self, execution_id: _Optional[str] = ..., signal: _Optional[int] = ...) -> None: ...

class SignalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("execution_id", "rows", "cols")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLS_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    rows: int
    cols: int
    def __init__(self, execution_id: _Optional[str] = ..., rows: _Optional[int] = ..., cols: _Optional[int] = ...) -> None: ...

class ResizeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunningCommand(_message.Message):
    __slots__ = ("execution_id", "argv", "started", "pid")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    started: _timestamp_pb2.Timestamp
    pid: int
    def __init__(self, execution_id: _Optional[str] = ..., argv: _Optional[_Iterable[bytes]] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pid: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[RunningCommand]
    def __init__(self, commands: _Optional[_Iterable[_Union[RunningCommand, _Mapping]]] = ...) -> None: ...
