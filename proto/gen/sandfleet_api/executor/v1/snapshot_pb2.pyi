import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandfleet_api.executor.v1 import common_pb2 as _common_pb2
from sandfleet_api.executor.v1 import interpreter_pb2 as _interpreter_pb2
from sandfleet_api.executor.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SnapshotTree(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_TREE_UNSPECIFIED: _ClassVar[SnapshotTree]
    SNAPSHOT_TREE_VARIABLES: _ClassVar[SnapshotTree]
    SNAPSHOT_TREE_WORKSPACE: _ClassVar[SnapshotTree]

class SnapshotEntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_ENTRY_KIND_UNSPECIFIED: _ClassVar[SnapshotEntryKind]
    SNAPSHOT_ENTRY_KIND_FILE: _ClassVar[SnapshotEntryKind]
    SNAPSHOT_ENTRY_KIND_DIRECTORY: _ClassVar[SnapshotEntryKind]
    SNAPSHOT_ENTRY_KIND_SYMLINK: _ClassVar[SnapshotEntryKind]
    SNAPSHOT_ENTRY_KIND_HARD_LINK: _ClassVar[SnapshotEntryKind]
SNAPSHOT_TREE_UNSPECIFIED: SnapshotTree
SNAPSHOT_TREE_VARIABLES: SnapshotTree
SNAPSHOT_TREE_WORKSPACE: SnapshotTree
SNAPSHOT_ENTRY_KIND_UNSPECIFIED: SnapshotEntryKind
SNAPSHOT_ENTRY_KIND_FILE: SnapshotEntryKind
SNAPSHOT_ENTRY_KIND_DIRECTORY: SnapshotEntryKind
SNAPSHOT_ENTRY_KIND_SYMLINK: SnapshotEntryKind
SNAPSHOT_ENTRY_KIND_HARD_LINK: SnapshotEntryKind

class ExtendedAttribute(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    value: bytes
    def __init__(self, name: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Extent(_message.Message):
    __slots__ = ("offset", "length")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    length: int
    def __init__(self, offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class SnapshotEntry(_message.Message):
    __slots__ = ("tree", "path", "kind", "mode", "modified_ns", "target", "attributes", "size", "sparse", "extents", "linked", "known")
    TREE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_FIELD_NUMBER: _ClassVar[int]
    LINKED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    tree: SnapshotTree
    path: bytes
    kind: SnapshotEntryKind
    mode: int
    modified_ns: int
    target: bytes
    attributes: _containers.RepeatedCompositeFieldContainer[ExtendedAttribute]
    size: int
    sparse: bool
    extents: _containers.RepeatedCompositeFieldContainer[Extent]
    linked: bool
    known: bool
    def __init__(self, tree: _Optional[_Union[SnapshotTree, str]] = ..., path: _Optional[bytes] = ..., kind: _Optional[_Union[SnapshotEntryKind, str]] = ..., mode: _Optional[int] = ..., modified_ns: _Optional[int] = ..., target: _Optional[bytes] = ..., attributes: _Optional[_Iterable[_Union[ExtendedAttribute, _Mapping]]] = ..., size: _Optional[int] = ..., sparse: _Optional[bool] = ..., extents: _Optional[_Iterable[_Union[Extent, _Mapping]]] = ..., linked: _Optional[bool] = ..., known: _Optional[bool] = ...) -> None: ...

class UnsavedEntry(_message.Message):
    __slots__ = ("path", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    reason: str
    def __init__(self, path: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class UnsavedEntries(_message.Message):
    __slots__ = ("listed", "count")
    LISTED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    listed: _containers.RepeatedCompositeFieldContainer[UnsavedEntry]
    count: int
    def __init__(self, listed: _Optional[_Iterable[_Union[UnsavedEntry, _Mapping]]] = ..., count: _Optional[int] = ...) -> None: ...

class SavedContext(_message.Message):
    __slots__ = ("report", "cwd", "envs", "autosave")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    AUTOSAVE_FIELD_NUMBER: _ClassVar[int]
    report: _session_pb2.KeptContext
    cwd: str
    envs: _containers.ScalarMap[str, str]
    autosave: _interpreter_pb2.Autosave
    def __init__(self, report: _Optional[_Union[_session_pb2.KeptContext, _Mapping]] = ..., cwd: _Optional[str] = ..., envs: _Optional[_Mapping[str, str]] = ..., autosave: _Optional[_Union[_interpreter_pb2.Autosave, _Mapping]] = ...) -> None: ...

class SnapshotFacts(_message.Message):
    __slots__ = ("contexts", "services", "stopped_services", "unsaved", "session_id", "contract", "limits", "created", "journal_number", "journal_hash", "python_version", "packages", "running_executions", "frozen_seconds", "walk_seconds", "tmp_bytes", "executor_version", "ended_executions", "ended_connections", "save_id")
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    STOPPED_SERVICES_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_HASH_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WALK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENDED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    SAVE_ID_FIELD_NUMBER: _ClassVar[int]
    contexts: _containers.RepeatedCompositeFieldContainer[SavedContext]
    services: _containers.RepeatedScalarFieldContainer[bytes]
    stopped_services: _containers.RepeatedScalarFieldContainer[str]
    unsaved: UnsavedEntries
    session_id: str
    contract: str
    limits: _common_pb2.Limits
    created: _timestamp_pb2.Timestamp
    journal_number: int
    journal_hash: str
    python_version: str
    packages: _containers.RepeatedCompositeFieldContainer[_session_pb2.Package]
    running_executions: _containers.RepeatedScalarFieldContainer[str]
    frozen_seconds: float
    walk_seconds: float
    tmp_bytes: int
    executor_version: str
    ended_executions: _containers.RepeatedScalarFieldContainer[str]
    ended_connections: int
    save_id: str
    def __init__(self, contexts: _Optional[_Iterable[_Union[SavedContext, _Mapping]]] = ..., services: _Optional[_Iterable[bytes]] = ..., stopped_services: _Optional[_Iterable[str]] = ..., unsaved: _Optional[_Union[UnsavedEntries, _Mapping]] = ..., session_id: _Optional[str] = ..., contract: _Optional[str] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., journal_number: _Optional[int] = ..., journal_hash: _Optional[str] = ..., python_version: _Optional[str] = ..., packages: _Optional[_Iterable[_Union[_session_pb2.Package, _Mapping]]] = ..., running_executions: _Optional[_Iterable[str]] = ..., frozen_seconds: _Optional[float] = ..., walk_seconds: _Optional[float] = ..., tmp_bytes: _Optional[int] = ..., executor_version: _Optional[str] = ..., ended_executions: _Optional[_Iterable[str]] = ..., ended_connections: _Optional[int] = ..., save_id: _Optional[str] = ...) -> None: ...

class SnapshotTotals(_message.Message):
    __slots__ = ("entries", "bytes")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    entries: int
    bytes: int
    def __init__(self, entries: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("entries", "data")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[SnapshotEntry]
    data: bytes
    def __init__(self, entries: _Optional[_Iterable[_Union[SnapshotEntry, _Mapping]]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SaveRequest(_message.Message):
    __slots__ = ("without_variables", "hold", "force", "base", "unused")
    WITHOUT_VARIABLES_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    UNUSED_FIELD_NUMBER: _ClassVar[int]
    without_variables: bool
    hold: bool
    force: bool
    base: str
    unused: bool
    def __init__(self, without_variables: _Optional[bool] = ..., hold: _Optional[bool] = ..., force: _Optional[bool] = ..., base: _Optional[str] = ..., unused: _Optional[bool] = ...) -> None: ...

class SaveResponse(_message.Message):
    __slots__ = ("begun", "piece", "end")
    class End(_message.Message):
        __slots__ = ("facts", "totals")
        FACTS_FIELD_NUMBER: _ClassVar[int]
        TOTALS_FIELD_NUMBER: _ClassVar[int]
        facts: SnapshotFacts
        totals: SnapshotTotals
        def __init__(self, facts: _Optional[_Union[SnapshotFacts, _Mapping]] = ..., totals: _Optional[_Union[SnapshotTotals, _Mapping]] = ...) -> None: ...
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    begun: SnapshotTotals
    piece: SnapshotPart
    end: SaveResponse.End
    def __init__(self, begun: _Optional[_Union[SnapshotTotals, _Mapping]] = ..., piece: _Optional[_Union[SnapshotPart, _Mapping]] = ..., end: _Optional[_Union[SaveResponse.End, _Mapping]] = ...) -> None: ...

class UnholdRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnholdResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("header", "piece", "end")
    class Header(_message.Message):
        __slots__ = ("facts", "replace", "force", "undone_since", "prepare")
        FACTS_FIELD_NUMBER: _ClassVar[int]
        REPLACE_FIELD_NUMBER: _ClassVar[int]
        FORCE_FIELD_NUMBER: _ClassVar[int]
        UNDONE_SINCE_FIELD_NUMBER: _ClassVar[int]
        PREPARE_FIELD_NUMBER: _ClassVar[int]
        facts: SnapshotFacts
        replace: bool
        force: bool
        undone_since: _timestamp_pb2.Timestamp
        prepare: str
        def __init__(self, facts: _Optional[_Union[SnapshotFacts, _Mapping]] = ..., replace: _Optional[bool] = ..., force: _Optional[bool] = ..., undone_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., prepare: _Optional[str] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: RestoreRequest.Header
    piece: SnapshotPart
    end: SnapshotTotals
    def __init__(self, header: _Optional[_Union[RestoreRequest.Header, _Mapping]] = ..., piece: _Optional[_Union[SnapshotPart, _Mapping]] = ..., end: _Optional[_Union[SnapshotTotals, _Mapping]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("totals", "unrestored", "ended_executions")
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    UNRESTORED_FIELD_NUMBER: _ClassVar[int]
    ENDED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    totals: SnapshotTotals
    unrestored: UnsavedEntries
    ended_executions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, totals: _Optional[_Union[SnapshotTotals, _Mapping]] = ..., unrestored: _Optional[_Union[UnsavedEntries, _Mapping]] = ..., ended_executions: _Optional[_Iterable[str]] = ...) -> None: ...
