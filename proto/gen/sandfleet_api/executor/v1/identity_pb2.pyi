from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetSigningRequestRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSigningRequestResponse(_message.Message):
    __slots__ = ("signing_request_pem", "signed")
    SIGNING_REQUEST_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    signing_request_pem: bytes
    signed: bool
    def __init__(self, signing_request_pem: _Optional[bytes] = ..., signed: _Optional[bool] = ...) -> None: ...

class InstallCertificateRequest(_message.Message):
    __slots__ = ("certificate_pem",)
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    def __init__(self, certificate_pem: _Optional[bytes] = ...) -> None: ...

class InstallCertificateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
