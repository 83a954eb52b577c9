from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class HeadRequest(_message.Message):
    __slots__ = ("pod_uid",)
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    def __init__(self, pod_uid: _Optional[str] = ...) -> None: ...

class HeadResponse(_message.Message):
    __slots__ = ("number", "hash", "anchor_number", "anchor_hash", "pod_uid", "session", "missed_records", "missed_reason", "lasting")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_HASH_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MISSED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MISSED_REASON_FIELD_NUMBER: _ClassVar[int]
    LASTING_FIELD_NUMBER: _ClassVar[int]
    number: int
    hash: str
    anchor_number: int
    anchor_hash: str
    pod_uid: str
    session: str
    missed_records: int
    missed_reason: str
    lasting: bool
    def __init__(self, number: _Optional[int] = ..., hash: _Optional[str] = ..., anchor_number: _Optional[int] = ..., anchor_hash: _Optional[str] = ..., pod_uid: _Optional[str] = ..., session: _Optional[str] = ..., missed_records: _Optional[int] = ..., missed_reason: _Optional[str] = ..., lasting: _Optional[bool] = ...) -> None: ...

class JournalServiceReadRequest(_message.Message):
    __slots__ = ("from_number", "pod_uid", "most_bytes")
    FROM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    from_number: int
    pod_uid: str
    most_bytes: int
    def __init__(self, from_number: _Optional[int] = ..., pod_uid: _Optional[str] = ..., most_bytes: _Optional[int] = ...) -> None: ...

class JournalServiceReadResponse(_message.Message):
    __slots__ = ("lines", "next_number")
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    lines: bytes
    next_number: int
    def __init__(self, lines: _Optional[bytes] = ..., next_number: _Optional[int] = ...) -> None: ...
