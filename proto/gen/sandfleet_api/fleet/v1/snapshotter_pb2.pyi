from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WorkRequest(_message.Message):
    __slots__ = ("event", "continues", "data")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    event: bytes
    continues: bool
    data: bytes
    def __init__(self, event: _Optional[bytes] = ..., continues: _Optional[bool] = ..., data: _Optional[bytes] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("job", "data")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    job: bytes
    data: bytes
    def __init__(self, job: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...
