import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandfleet_api.executor.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ContextState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTEXT_STATE_UNSPECIFIED: _ClassVar[ContextState]
    CONTEXT_STATE_IDLE: _ClassVar[ContextState]
    CONTEXT_STATE_BUSY: _ClassVar[ContextState]
    CONTEXT_STATE_ENDED: _ClassVar[ContextState]

class OnFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_FAILURE_UNSPECIFIED: _ClassVar[OnFailure]
    ON_FAILURE_KEEP: _ClassVar[OnFailure]
    ON_FAILURE_ROLLBACK: _ClassVar[OnFailure]
CONTEXT_STATE_UNSPECIFIED: ContextState
CONTEXT_STATE_IDLE: ContextState
CONTEXT_STATE_BUSY: ContextState
CONTEXT_STATE_ENDED: ContextState
ON_FAILURE_UNSPECIFIED: OnFailure
ON_FAILURE_KEEP: OnFailure
ON_FAILURE_ROLLBACK: OnFailure

class Context(_message.Message):
    __slots__ = ("context_id", "language", "state", "generation", "executions", "copied_cell", "cwd", "autosaved")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    COPIED_CELL_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    AUTOSAVED_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    language: str
    state: ContextState
    generation: int
    executions: int
    copied_cell: int
    cwd: str
    autosaved: AutomaticSave
    def __init__(self, context_id: _Optional[str] = ..., language: _Optional[str] = ..., state: _Optional[_Union[ContextState, str]] = ..., generation: _Optional[int] = ..., executions: _Optional[int] = ..., copied_cell: _Optional[int] = ..., cwd: _Optional[str] = ..., autosaved: _Optional[_Union[AutomaticSave, _Mapping]] = ...) -> None: ...

class AutomaticSave(_message.Message):
    __slots__ = ("state", "problem")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    state: SavedState
    problem: str
    def __init__(self, state: _Optional[_Union[SavedState, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class Autosave(_message.Message):
    __slots__ = ("max_bytes", "timeout")
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    max_bytes: int
    timeout: _duration_pb2.Duration
    def __init__(self, max_bytes: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SavedState(_message.Message):
    __slots__ = ("name", "context_id", "created", "cell_number", "size_bytes", "saved", "unsaved")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CELL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    name: str
    context_id: str
    created: _timestamp_pb2.Timestamp
    cell_number: int
    size_bytes: int
    saved: int
    unsaved: int
    def __init__(self, name: _Optional[str] = ..., context_id: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cell_number: _Optional[int] = ..., size_bytes: _Optional[int] = ..., saved: _Optional[int] = ..., unsaved: _Optional[int] = ...) -> None: ...

class StateItem(_message.Message):
    __slots__ = ("name", "type", "size_bytes", "reason", "message", "overwrote")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OVERWROTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    size_bytes: int
    reason: str
    message: str
    overwrote: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., size_bytes: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., overwrote: _Optional[bool] = ...) -> None: ...

class StateItems(_message.Message):
    __slots__ = ("items", "omitted")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[StateItem]
    omitted: int
    def __init__(self, items: _Optional[_Iterable[_Union[StateItem, _Mapping]]] = ..., omitted: _Optional[int] = ...) -> None: ...

class CreateContextRequest(_message.Message):
    __slots__ = ("context_id", "language", "cwd", "envs", "autosave", "resume")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    AUTOSAVE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    language: str
    cwd: str
    envs: _containers.ScalarMap[str, str]
    autosave: Autosave
    resume: bool
    def __init__(self, context_id: _Optional[str] = ..., language: _Optional[str] = ..., cwd: _Optional[str] = ..., envs: _Optional[_Mapping[str, str]] = ..., autosave: _Optional[_Union[Autosave, _Mapping]] = ..., resume: _Optional[bool] = ...) -> None: ...

class CreateContextResponse(_message.Message):
    __slots__ = ("context", "resumed")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    context: Context
    resumed: RestoreStateResponse
    def __init__(self, context: _Optional[_Union[Context, _Mapping]] = ..., resumed: _Optional[_Union[RestoreStateResponse, _Mapping]] = ...) -> None: ...

class ListContextsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListContextsResponse(_message.Message):
    __slots__ = ("contexts",)
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    contexts: _containers.RepeatedCompositeFieldContainer[Context]
    def __init__(self, contexts: _Optional[_Iterable[_Union[Context, _Mapping]]] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("execution_id", "context_id", "code", "timeout", "output_limit_bytes", "envs", "on_failure", "autosave", "language", "takes_input", "max_rows")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    AUTOSAVE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TAKES_INPUT_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    context_id: str
    code: str
    timeout: _duration_pb2.Duration
    output_limit_bytes: int
    envs: _containers.ScalarMap[str, str]
    on_failure: OnFailure
    autosave: Autosave
    language: str
    takes_input: bool
    max_rows: int
    def __init__(self, execution_id: _Optional[str] = ..., context_id: _Optional[str] = ..., code: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., output_limit_bytes: _Optional[int] = ..., envs: _Optional[_Mapping[str, str]] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., autosave: _Optional[_Union[Autosave, _Mapping]] = ..., language: _Optional[str] = ..., takes_input: _Optional[bool] = ..., max_rows: _Optional[int] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_common_pb2.ExecutionEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_common_pb2.ExecutionEvent, _Mapping]]] = ...) -> None: ...

class InterpreterServiceAttachRequest(_message.Message):
    __slots__ = ("execution_id", "after_sequence", "seen_bytes")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    after_sequence: int
    seen_bytes: int
    def __init__(self, execution_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., seen_bytes: _Optional[int] = ...) -> None: ...

class InterpreterServiceAttachResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_common_pb2.ExecutionEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_common_pb2.ExecutionEvent, _Mapping]]] = ...) -> None: ...

class InterruptRequest(_message.Message):
    __slots__ = ("context_id", "grace", "execution_id")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    grace: _duration_pb2.Duration
    execution_id: str
    def __init__(self, context_id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., execution_id: _Optional[str] = ...) -> None: ...

class InterruptResponse(_message.Message):
    __slots__ = ("interrupted",)
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    interrupted: bool
    def __init__(self, interrupted: _Optional[bool] = ...) -> None: ...

class AnswerInputRequest(_message.Message):
    __slots__ = ("execution_id", "input_id", "text", "refused")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    input_id: str
    text: str
    refused: bool
    def __init__(self, execution_id: _Optional[str] = ..., input_id: _Optional[str] = ..., text: _Optional[str] = ..., refused: _Optional[bool] = ...) -> None: ...

class AnswerInputResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForkContextRequest(_message.Message):
    __slots__ = ("context_id", "new_context_ids")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_CONTEXT_IDS_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    new_context_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, context_id: _Optional[str] = ..., new_context_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ForkContextResponse(_message.Message):
    __slots__ = ("contexts",)
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    contexts: _containers.RepeatedCompositeFieldContainer[Context]
    def __init__(self, contexts: _Optional[_Iterable[_Union[Context, _Mapping]]] = ...) -> None: ...

class RestartContextRequest(_message.Message):
    __slots__ = ("context_id",)
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    def __init__(self, context_id: _Optional[str] = ...) -> None: ...

class RestartContextResponse(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: Context
    def __init__(self, context: _Optional[_Union[Context, _Mapping]] = ...) -> None: ...

class DeleteContextRequest(_message.Message):
    __slots__ = ("context_id",)
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    def __init__(self, context_id: _Optional[str] = ...) -> None: ...

class DeleteContextResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("context_id", "code", "cursor_pos", "timeout")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_POS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    code: str
    cursor_pos: int
    timeout: _duration_pb2.Duration
    def __init__(self, context_id: _Optional[str] = ..., code: _Optional[str] = ..., cursor_pos: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("matches", "cursor_start", "cursor_end", "omitted")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_START_FIELD_NUMBER: _ClassVar[int]
    CURSOR_END_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedScalarFieldContainer[str]
    cursor_start: int
    cursor_end: int
    omitted: int
    def __init__(self, matches: _Optional[_Iterable[str]] = ..., cursor_start: _Optional[int] = ..., cursor_end: _Optional[int] = ..., omitted: _Optional[int] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ("context_id", "code", "cursor_pos", "detail_level", "timeout")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_POS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    code: str
    cursor_pos: int
    detail_level: int
    timeout: _duration_pb2.Duration
    def __init__(self, context_id: _Optional[str] = ..., code: _Optional[str] = ..., cursor_pos: _Optional[int] = ..., detail_level: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class InspectResponse(_message.Message):
    __slots__ = ("found", "parts")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    found: bool
    parts: _containers.RepeatedCompositeFieldContainer[_common_pb2.MimePart]
    def __init__(self, found: _Optional[bool] = ..., parts: _Optional[_Iterable[_Union[_common_pb2.MimePart, _Mapping]]] = ...) -> None: ...

class TableInfo(_message.Message):
    __slots__ = ("kind", "rows", "columns", "size_bytes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    rows: int
    columns: int
    size_bytes: int
    def __init__(self, kind: _Optional[str] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class GetTableRequest(_message.Message):
    __slots__ = ("context_id", "name", "max_bytes", "timeout")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    name: str
    max_bytes: int
    timeout: _duration_pb2.Duration
    def __init__(self, context_id: _Optional[str] = ..., name: _Optional[str] = ..., max_bytes: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetTableResponse(_message.Message):
    __slots__ = ("info", "data")
    INFO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    info: TableInfo
    data: bytes
    def __init__(self, info: _Optional[_Union[TableInfo, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutTableHeader(_message.Message):
    __slots__ = ("context_id", "name", "kind", "timeout", "size_bytes")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    name: str
    kind: str
    timeout: _duration_pb2.Duration
    size_bytes: int
    def __init__(self, context_id: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PutTableEnd(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class PutTableRequest(_message.Message):
    __slots__ = ("header", "data", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: PutTableHeader
    data: bytes
    end: PutTableEnd
    def __init__(self, header: _Optional[_Union[PutTableHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[PutTableEnd, _Mapping]] = ...) -> None: ...

class PutTableResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: TableInfo
    def __init__(self, info: _Optional[_Union[TableInfo, _Mapping]] = ...) -> None: ...

class SaveStateRequest(_message.Message):
    __slots__ = ("context_id", "name", "max_bytes", "max_variable_bytes", "timeout")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_VARIABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    name: str
    max_bytes: int
    max_variable_bytes: int
    timeout: _duration_pb2.Duration
    def __init__(self, context_id: _Optional[str] = ..., name: _Optional[str] = ..., max_bytes: _Optional[int] = ..., max_variable_bytes: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SaveStateResponse(_message.Message):
    __slots__ = ("state", "saved", "unsaved", "threads")
    STATE_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    state: SavedState
    saved: StateItems
    unsaved: StateItems
    threads: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[_Union[SavedState, _Mapping]] = ..., saved: _Optional[_Union[StateItems, _Mapping]] = ..., unsaved: _Optional[_Union[StateItems, _Mapping]] = ..., threads: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreStateRequest(_message.Message):
    __slots__ = ("context_id", "name", "timeout")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    name: str
    timeout: _duration_pb2.Duration
    def __init__(self, context_id: _Optional[str] = ..., name: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RestoreStateResponse(_message.Message):
    __slots__ = ("state", "restored", "unrestored", "unsaved", "lost")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    UNRESTORED_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    state: SavedState
    restored: StateItems
    unrestored: StateItems
    unsaved: StateItems
    lost: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[_Union[SavedState, _Mapping]] = ..., restored: _Optional[_Union[StateItems, _Mapping]] = ..., unrestored: _Optional[_Union[StateItems, _Mapping]] = ..., unsaved: _Optional[_Union[StateItems, _Mapping]] = ..., lost: _Optional[_Iterable[str]] = ...) -> None: ...

class ListStatesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStatesResponse(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[SavedState]
    def __init__(self, states: _Optional[_Iterable[_Union[SavedState, _Mapping]]] = ...) -> None: ...

class DeleteStateRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteStateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
