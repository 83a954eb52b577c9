import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandfleet_api.executor.v1 import common_pb2 as _common_pb2
from sandfleet_api.executor.v1 import session_pb2 as _session_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as _snapshot_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Snapshot(_message.Message):
    __slots__ = ("snapshot_id", "name", "sandbox_id", "template", "contract", "received", "limits", "labels", "reason", "created", "entries", "bytes", "new_bytes", "stored_bytes", "facts")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    NEW_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: str
    name: str
    sandbox_id: str
    template: str
    contract: str
    received: _containers.RepeatedScalarFieldContainer[str]
    limits: _common_pb2.Limits
    labels: _containers.ScalarMap[str, str]
    reason: str
    created: _timestamp_pb2.Timestamp
    entries: int
    bytes: int
    new_bytes: int
    stored_bytes: int
    facts: _snapshot_pb2.SnapshotFacts
    def __init__(self, snapshot_id: _Optional[str] = ..., name: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., template: _Optional[str] = ..., contract: _Optional[str] = ..., received: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., reason: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., new_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., facts: _Optional[_Union[_snapshot_pb2.SnapshotFacts, _Mapping]] = ...) -> None: ...

class SnapshotProgress(_message.Message):
    __slots__ = ("entries", "bytes", "total_bytes")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    entries: int
    bytes: int
    total_bytes: int
    def __init__(self, entries: _Optional[int] = ..., bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class CreateSnapshotRequest(_message.Message):
    __slots__ = ("sandbox_id", "name", "labels", "reason")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    name: str
    labels: _containers.ScalarMap[str, str]
    reason: str
    def __init__(self, sandbox_id: _Optional[str] = ..., name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class CreateSnapshotResponse(_message.Message):
    __slots__ = ("progress", "snapshot")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    progress: SnapshotProgress
    snapshot: Snapshot
    def __init__(self, progress: _Optional[_Union[SnapshotProgress, _Mapping]] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class RestoreSnapshotRequest(_message.Message):
    __slots__ = ("sandbox_id", "snapshot", "force")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    snapshot: str
    force: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., snapshot: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class RestoreSnapshotResponse(_message.Message):
    __slots__ = ("progress", "restored")
    class Restored(_message.Message):
        __slots__ = ("snapshot", "unrestored", "ended_executions", "resumption")
        SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
        UNRESTORED_FIELD_NUMBER: _ClassVar[int]
        ENDED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
        RESUMPTION_FIELD_NUMBER: _ClassVar[int]
        snapshot: Snapshot
        unrestored: _snapshot_pb2.UnsavedEntries
        ended_executions: _containers.RepeatedScalarFieldContainer[str]
        resumption: _session_pb2.Resumption
        def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., unrestored: _Optional[_Union[_snapshot_pb2.UnsavedEntries, _Mapping]] = ..., ended_executions: _Optional[_Iterable[str]] = ..., resumption: _Optional[_Union[_session_pb2.Resumption, _Mapping]] = ...) -> None: ...
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    progress: SnapshotProgress
    restored: RestoreSnapshotResponse.Restored
    def __init__(self, progress: _Optional[_Union[SnapshotProgress, _Mapping]] = ..., restored: _Optional[_Union[RestoreSnapshotResponse.Restored, _Mapping]] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ("snapshot", "namespace")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    namespace: str
    def __init__(self, snapshot: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class GetSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("sandbox_id", "namespace", "deleted")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    namespace: str
    deleted: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., namespace: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots",)
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ("snapshot", "namespace", "now")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    namespace: str
    now: bool
    def __init__(self, snapshot: _Optional[str] = ..., namespace: _Optional[str] = ..., now: _Optional[bool] = ...) -> None: ...

class DeleteSnapshotResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class UndeleteSnapshotRequest(_message.Message):
    __slots__ = ("snapshot", "namespace")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    namespace: str
    def __init__(self, snapshot: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class UndeleteSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class ExportSnapshotRequest(_message.Message):
    __slots__ = ("snapshot", "namespace")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    namespace: str
    def __init__(self, snapshot: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class ExportSnapshotResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ImportSnapshotRequest(_message.Message):
    __slots__ = ("header", "data")
    class Header(_message.Message):
        __slots__ = ("name", "namespace", "template")
        NAME_FIELD_NUMBER: _ClassVar[int]
        NAMESPACE_FIELD_NUMBER: _ClassVar[int]
        TEMPLATE_FIELD_NUMBER: _ClassVar[int]
        name: str
        namespace: str
        template: str
        def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., template: _Optional[str] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: ImportSnapshotRequest.Header
    data: bytes
    def __init__(self, header: _Optional[_Union[ImportSnapshotRequest.Header, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ImportSnapshotResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...
