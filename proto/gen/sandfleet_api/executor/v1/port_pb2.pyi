from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TunnelOpen(_message.Message):
    __slots__ = ("port",)
    PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    def __init__(self, port: _Optional[int] = ...) -> None: ...

class TunnelOpened(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TunnelEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TunnelRequest(_message.Message):
    __slots__ = ("open", "data", "end")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    open: TunnelOpen
    data: bytes
    end: TunnelEnd
    def __init__(self, open: _Optional[_Union[TunnelOpen, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[TunnelEnd, _Mapping]] = ...) -> None: ...

class TunnelResponse(_message.Message):
    __slots__ = ("opened", "data", "end")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    opened: TunnelOpened
    data: bytes
    end: TunnelEnd
    def __init__(self, opened: _Optional[_Union[TunnelOpened, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[TunnelEnd, _Mapping]] = ...) -> None: ...
