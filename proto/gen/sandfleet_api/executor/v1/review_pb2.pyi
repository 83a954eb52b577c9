import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PendingReview(_message.Message):
    __slots__ = ("review_id", "method", "kind", "context_id", "execution_id", "name", "content", "settings", "digest", "state", "editable", "since", "intent", "language", "incarnation", "cells", "submitter", "votes")
    REVIEW_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EDITABLE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTER_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    review_id: str
    method: str
    kind: str
    context_id: str
    execution_id: str
    name: str
    content: bytes
    settings: str
    digest: bytes
    state: int
    editable: bool
    since: _timestamp_pb2.Timestamp
    intent: str
    language: str
    incarnation: str
    cells: int
    submitter: str
    votes: Votes
    def __init__(self, review_id: _Optional[str] = ..., method: _Optional[str] = ..., kind: _Optional[str] = ..., context_id: _Optional[str] = ..., execution_id: _Optional[str] = ..., name: _Optional[str] = ..., content: _Optional[bytes] = ..., settings: _Optional[str] = ..., digest: _Optional[bytes] = ..., state: _Optional[int] = ..., editable: _Optional[bool] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., intent: _Optional[str] = ..., language: _Optional[str] = ..., incarnation: _Optional[str] = ..., cells: _Optional[int] = ..., submitter: _Optional[str] = ..., votes: _Optional[_Union[Votes, _Mapping]] = ...) -> None: ...

class Votes(_message.Message):
    __slots__ = ("voters", "state", "edit")
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EDIT_FIELD_NUMBER: _ClassVar[int]
    voters: _containers.RepeatedScalarFieldContainer[str]
    state: int
    edit: bytes
    def __init__(self, voters: _Optional[_Iterable[str]] = ..., state: _Optional[int] = ..., edit: _Optional[bytes] = ...) -> None: ...

class ListPendingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPendingResponse(_message.Message):
    __slots__ = ("reviews",)
    REVIEWS_FIELD_NUMBER: _ClassVar[int]
    reviews: _containers.RepeatedCompositeFieldContainer[PendingReview]
    def __init__(self, reviews: _Optional[_Iterable[_Union[PendingReview, _Mapping]]] = ...) -> None: ...

class WatchPendingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchPendingResponse(_message.Message):
    __slots__ = ("reviews",)
    REVIEWS_FIELD_NUMBER: _ClassVar[int]
    reviews: _containers.RepeatedCompositeFieldContainer[PendingReview]
    def __init__(self, reviews: _Optional[_Iterable[_Union[PendingReview, _Mapping]]] = ...) -> None: ...

class AnswerRequest(_message.Message):
    __slots__ = ("statement", "content")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    statement: str
    content: bytes
    def __init__(self, statement: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class AnswerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
