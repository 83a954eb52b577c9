from sandfleet_api.executor.v1 import port_pb2 as _port_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SignRequest(_message.Message):
    __slots__ = ("signing_request_pem", "component")
    SIGNING_REQUEST_PEM_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    signing_request_pem: bytes
    component: str
    def __init__(self, signing_request_pem: _Optional[bytes] = ..., component: _Optional[str] = ...) -> None: ...

class SignResponse(_message.Message):
    __slots__ = ("certificate_pem",)
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    def __init__(self, certificate_pem: _Optional[bytes] = ...) -> None: ...

class TunnelOpen(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class TunnelOpened(_message.Message):
    __slots__ = ("sandbox_uid",)
    SANDBOX_UID_FIELD_NUMBER: _ClassVar[int]
    sandbox_uid: str
    def __init__(self, sandbox_uid: _Optional[str] = ...) -> None: ...

class TunnelRequest(_message.Message):
    __slots__ = ("open", "data", "end", "token")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    open: TunnelOpen
    data: bytes
    end: _port_pb2.TunnelEnd
    token: str
    def __init__(self, open: _Optional[_Union[TunnelOpen, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[_port_pb2.TunnelEnd, _Mapping]] = ..., token: _Optional[str] = ...) -> None: ...

class TunnelResponse(_message.Message):
    __slots__ = ("opened", "data", "end")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    opened: TunnelOpened
    data: bytes
    end: _port_pb2.TunnelEnd
    def __init__(self, opened: _Optional[_Union[TunnelOpened, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[_port_pb2.TunnelEnd, _Mapping]] = ...) -> None: ...
