from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToolFailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_FAILURE_KIND_UNSPECIFIED: _ClassVar[ToolFailureKind]
    TOOL_FAILURE_KIND_ERROR: _ClassVar[ToolFailureKind]
    TOOL_FAILURE_KIND_DENIED: _ClassVar[ToolFailureKind]
    TOOL_FAILURE_KIND_TIMEOUT: _ClassVar[ToolFailureKind]
    TOOL_FAILURE_KIND_UNAVAILABLE: _ClassVar[ToolFailureKind]
TOOL_FAILURE_KIND_UNSPECIFIED: ToolFailureKind
TOOL_FAILURE_KIND_ERROR: ToolFailureKind
TOOL_FAILURE_KIND_DENIED: ToolFailureKind
TOOL_FAILURE_KIND_TIMEOUT: ToolFailureKind
TOOL_FAILURE_KIND_UNAVAILABLE: ToolFailureKind

class ToolValue(_message.Message):
    __slots__ = ("json", "blobs")
    JSON_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    blobs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, json: _Optional[bytes] = ..., blobs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ToolParameter(_message.Message):
    __slots__ = ("name", "annotation", "default_text", "keyword_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TEXT_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    annotation: str
    default_text: str
    keyword_only: bool
    def __init__(self, name: _Optional[str] = ..., annotation: _Optional[str] = ..., default_text: _Optional[str] = ..., keyword_only: _Optional[bool] = ...) -> None: ...

class ToolSpec(_message.Message):
    __slots__ = ("name", "doc", "parameters", "returns", "schema_json", "secret")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    name: str
    doc: str
    parameters: _containers.RepeatedCompositeFieldContainer[ToolParameter]
    returns: str
    schema_json: str
    secret: bool
    def __init__(self, name: _Optional[str] = ..., doc: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[ToolParameter, _Mapping]]] = ..., returns: _Optional[str] = ..., schema_json: _Optional[str] = ..., secret: _Optional[bool] = ...) -> None: ...

class ToolOffer(_message.Message):
    __slots__ = ("tools", "host_id", "takes_many")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    TAKES_MANY_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[ToolSpec]
    host_id: str
    takes_many: bool
    def __init__(self, tools: _Optional[_Iterable[_Union[ToolSpec, _Mapping]]] = ..., host_id: _Optional[str] = ..., takes_many: _Optional[bool] = ...) -> None: ...

class ToolFailure(_message.Message):
    __slots__ = ("kind", "reason", "message", "may_have_run")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MAY_HAVE_RUN_FIELD_NUMBER: _ClassVar[int]
    kind: ToolFailureKind
    reason: str
    message: str
    may_have_run: bool
    def __init__(self, kind: _Optional[_Union[ToolFailureKind, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., may_have_run: _Optional[bool] = ...) -> None: ...

class ToolAnswer(_message.Message):
    __slots__ = ("call_id", "value", "failure")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    value: ToolValue
    failure: ToolFailure
    def __init__(self, call_id: _Optional[str] = ..., value: _Optional[_Union[ToolValue, _Mapping]] = ..., failure: _Optional[_Union[ToolFailure, _Mapping]] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("call_id", "tool", "arguments", "execution_id", "context_id", "service", "redelivered")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool: str
    arguments: ToolValue
    execution_id: str
    context_id: str
    service: str
    redelivered: bool
    def __init__(self, call_id: _Optional[str] = ..., tool: _Optional[str] = ..., arguments: _Optional[_Union[ToolValue, _Mapping]] = ..., execution_id: _Optional[str] = ..., context_id: _Optional[str] = ..., service: _Optional[str] = ..., redelivered: _Optional[bool] = ...) -> None: ...

class ServeReady(_message.Message):
    __slots__ = ("outstanding", "takes_many")
    OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    TAKES_MANY_FIELD_NUMBER: _ClassVar[int]
    outstanding: _containers.RepeatedScalarFieldContainer[str]
    takes_many: bool
    def __init__(self, outstanding: _Optional[_Iterable[str]] = ..., takes_many: _Optional[bool] = ...) -> None: ...

class ToolCancel(_message.Message):
    __slots__ = ("call_id",)
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    def __init__(self, call_id: _Optional[str] = ...) -> None: ...

class ToolAcknowledged(_message.Message):
    __slots__ = ("call_ids",)
    CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    call_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, call_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ServeEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToolReview(_message.Message):
    __slots__ = ("call_id", "over")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    over: bool
    def __init__(self, call_id: _Optional[str] = ..., over: _Optional[bool] = ...) -> None: ...

class ServeRequest(_message.Message):
    __slots__ = ("offer", "answer", "end", "review", "more_answers")
    OFFER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    MORE_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    offer: ToolOffer
    answer: ToolAnswer
    end: ServeEnd
    review: ToolReview
    more_answers: _containers.RepeatedCompositeFieldContainer[ToolAnswer]
    def __init__(self, offer: _Optional[_Union[ToolOffer, _Mapping]] = ..., answer: _Optional[_Union[ToolAnswer, _Mapping]] = ..., end: _Optional[_Union[ServeEnd, _Mapping]] = ..., review: _Optional[_Union[ToolReview, _Mapping]] = ..., more_answers: _Optional[_Iterable[_Union[ToolAnswer, _Mapping]]] = ...) -> None: ...

class ServeResponse(_message.Message):
    __slots__ = ("ready", "call", "cancel", "acknowledged", "more_calls")
    READY_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    MORE_CALLS_FIELD_NUMBER: _ClassVar[int]
    ready: ServeReady
    call: ToolCall
    cancel: ToolCancel
    acknowledged: ToolAcknowledged
    more_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    def __init__(self, ready: _Optional[_Union[ServeReady, _Mapping]] = ..., call: _Optional[_Union[ToolCall, _Mapping]] = ..., cancel: _Optional[_Union[ToolCancel, _Mapping]] = ..., acknowledged: _Optional[_Union[ToolAcknowledged, _Mapping]] = ..., more_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ...) -> None: ...
