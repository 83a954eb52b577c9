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

class EgressPod(_message.Message):
    __slots__ = ("uid", "name")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    uid: str
    name: str
    def __init__(self, uid: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("pods", "rows")
    PODS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[EgressPod]
    rows: _containers.RepeatedCompositeFieldContainer[EgressRow]
    def __init__(self, pods: _Optional[_Iterable[_Union[EgressPod, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[EgressRow, _Mapping]]] = ...) -> None: ...

class ExchangeResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[EgressSession]
    def __init__(self, sessions: _Optional[_Iterable[_Union[EgressSession, _Mapping]]] = ...) -> None: ...

class EgressRow(_message.Message):
    __slots__ = ("pod_uid", "sandbox_id", "host", "port", "reason", "address", "connections", "open", "sent_bytes", "received_bytes")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    sandbox_id: str
    host: str
    port: int
    reason: str
    address: str
    connections: int
    open: int
    sent_bytes: int
    received_bytes: int
    def __init__(self, pod_uid: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., reason: _Optional[str] = ..., address: _Optional[str] = ..., connections: _Optional[int] = ..., open: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ...) -> None: ...

class EgressSession(_message.Message):
    __slots__ = ("pod_uid", "sandbox_id", "names", "secrets", "authority")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    sandbox_id: str
    names: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedCompositeFieldContainer[EgressSecret]
    authority: bytes
    def __init__(self, pod_uid: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[_Union[EgressSecret, _Mapping]]] = ..., authority: _Optional[bytes] = ...) -> None: ...

class EgressSecret(_message.Message):
    __slots__ = ("host", "header", "format", "placeholder", "env", "namespace", "secret", "key")
    HOST_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PLACEHOLDER_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    host: str
    header: str
    format: str
    placeholder: str
    env: str
    namespace: str
    secret: str
    key: str
    def __init__(self, host: _Optional[str] = ..., header: _Optional[str] = ..., format: _Optional[str] = ..., placeholder: _Optional[str] = ..., env: _Optional[str] = ..., namespace: _Optional[str] = ..., secret: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...
