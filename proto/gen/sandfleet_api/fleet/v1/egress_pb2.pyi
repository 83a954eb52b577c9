import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetEgressRequest(_message.Message):
    __slots__ = ("sandbox_id", "names")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sandbox_id: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class SetEgressResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetEgressRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class GetEgressResponse(_message.Message):
    __slots__ = ("names", "hosts")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    hosts: _containers.RepeatedCompositeFieldContainer[HostReport]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., hosts: _Optional[_Iterable[_Union[HostReport, _Mapping]]] = ...) -> None: ...

class HostReport(_message.Message):
    __slots__ = ("host", "port", "reason", "address", "connections", "open", "sent_bytes", "received_bytes", "first", "last")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    reason: str
    address: str
    connections: int
    open: int
    sent_bytes: int
    received_bytes: int
    first: _timestamp_pb2.Timestamp
    last: _timestamp_pb2.Timestamp
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., reason: _Optional[str] = ..., address: _Optional[str] = ..., connections: _Optional[int] = ..., open: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., first: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
