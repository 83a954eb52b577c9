import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_TYPE_UNSPECIFIED: _ClassVar[FileType]
    FILE_TYPE_FILE: _ClassVar[FileType]
    FILE_TYPE_DIRECTORY: _ClassVar[FileType]
    FILE_TYPE_SYMLINK: _ClassVar[FileType]
    FILE_TYPE_OTHER: _ClassVar[FileType]

class FileEventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_EVENT_TYPE_UNSPECIFIED: _ClassVar[FileEventType]
    FILE_EVENT_TYPE_CREATED: _ClassVar[FileEventType]
    FILE_EVENT_TYPE_MODIFIED: _ClassVar[FileEventType]
    FILE_EVENT_TYPE_DELETED: _ClassVar[FileEventType]
    FILE_EVENT_TYPE_MOVED: _ClassVar[FileEventType]
    FILE_EVENT_TYPE_OVERFLOW: _ClassVar[FileEventType]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_NONE: _ClassVar[Compression]
    COMPRESSION_ZSTD: _ClassVar[Compression]

class ExtractStop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXTRACT_STOP_UNSPECIFIED: _ClassVar[ExtractStop]
    EXTRACT_STOP_INVALID_ARCHIVE: _ClassVar[ExtractStop]
    EXTRACT_STOP_TRUNCATED: _ClassVar[ExtractStop]
    EXTRACT_STOP_TOO_MANY_ENTRIES: _ClassVar[ExtractStop]
    EXTRACT_STOP_TOO_LARGE: _ClassVar[ExtractStop]
    EXTRACT_STOP_COMPRESSION_RATIO: _ClassVar[ExtractStop]
    EXTRACT_STOP_NO_SPACE: _ClassVar[ExtractStop]

class SearchStop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_STOP_UNSPECIFIED: _ClassVar[SearchStop]
    SEARCH_STOP_MATCHES: _ClassVar[SearchStop]
    SEARCH_STOP_TIME: _ClassVar[SearchStop]
    SEARCH_STOP_SIZE: _ClassVar[SearchStop]
FILE_TYPE_UNSPECIFIED: FileType
FILE_TYPE_FILE: FileType
FILE_TYPE_DIRECTORY: FileType
FILE_TYPE_SYMLINK: FileType
FILE_TYPE_OTHER: FileType
FILE_EVENT_TYPE_UNSPECIFIED: FileEventType
FILE_EVENT_TYPE_CREATED: FileEventType
FILE_EVENT_TYPE_MODIFIED: FileEventType
FILE_EVENT_TYPE_DELETED: FileEventType
FILE_EVENT_TYPE_MOVED: FileEventType
FILE_EVENT_TYPE_OVERFLOW: FileEventType
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_NONE: Compression
COMPRESSION_ZSTD: Compression
EXTRACT_STOP_UNSPECIFIED: ExtractStop
EXTRACT_STOP_INVALID_ARCHIVE: ExtractStop
EXTRACT_STOP_TRUNCATED: ExtractStop
EXTRACT_STOP_TOO_MANY_ENTRIES: ExtractStop
EXTRACT_STOP_TOO_LARGE: ExtractStop
EXTRACT_STOP_COMPRESSION_RATIO: ExtractStop
EXTRACT_STOP_NO_SPACE: ExtractStop
SEARCH_STOP_UNSPECIFIED: SearchStop
SEARCH_STOP_MATCHES: SearchStop
SEARCH_STOP_TIME: SearchStop
SEARCH_STOP_SIZE: SearchStop

class FileInfo(_message.Message):
    __slots__ = ("path", "type", "size", "mode", "modified", "symlink_target", "owner", "group")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    SYMLINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    type: FileType
    size: int
    mode: int
    modified: _timestamp_pb2.Timestamp
    symlink_target: bytes
    owner: str
    group: str
    def __init__(self, path: _Optional[bytes] = ..., type: _Optional[_Union[FileType, str]] = ..., size: _Optional[int] = ..., mode: _Optional[int] = ..., modified: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., symlink_target: _Optional[bytes] = ..., owner: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("path", "offset", "length")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    offset: int
    length: int
    def __init__(self, path: _Optional[bytes] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("info", "data")
    INFO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    info: FileInfo
    data: bytes
    def __init__(self, info: _Optional[_Union[FileInfo, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class WriteHeader(_message.Message):
    __slots__ = ("path", "mode")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    mode: int
    def __init__(self, path: _Optional[bytes] = ..., mode: _Optional[int] = ...) -> None: ...

class WriteEnd(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("header", "data", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: WriteHeader
    data: bytes
    end: WriteEnd
    def __init__(self, header: _Optional[_Union[WriteHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[WriteEnd, _Mapping]] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: FileInfo
    def __init__(self, info: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: FileInfo
    def __init__(self, info: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class ListDirectoryRequest(_message.Message):
    __slots__ = ("path", "depth", "page_size", "page_token")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    depth: int
    page_size: int
    page_token: bytes
    def __init__(self, path: _Optional[bytes] = ..., depth: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListDirectoryResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[FileInfo]
    next_page_token: bytes
    def __init__(self, entries: _Optional[_Iterable[_Union[FileInfo, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class MakeDirRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...

class MakeDirResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: _Optional[bool] = ...) -> None: ...

class MoveRequest(_message.Message):
    __slots__ = ("source", "target", "overwrite")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    target: bytes
    overwrite: bool
    def __init__(self, source: _Optional[bytes] = ..., target: _Optional[bytes] = ..., overwrite: _Optional[bool] = ...) -> None: ...

class MoveResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: FileInfo
    def __init__(self, info: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("path", "recursive")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    recursive: bool
    def __init__(self, path: _Optional[bytes] = ..., recursive: _Optional[bool] = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("path", "recursive")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    recursive: bool
    def __init__(self, path: _Optional[bytes] = ..., recursive: _Optional[bool] = ...) -> None: ...

class FileEvent(_message.Message):
    __slots__ = ("sequence", "type", "path", "old_path", "directory", "dropped")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    type: FileEventType
    path: bytes
    old_path: bytes
    directory: bool
    dropped: int
    def __init__(self, sequence: _Optional[int] = ..., type: _Optional[_Union[FileEventType, str]] = ..., path: _Optional[bytes] = ..., old_path: _Optional[bytes] = ..., directory: _Optional[bool] = ..., dropped: _Optional[int] = ...) -> None: ...

class WatchStarted(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...

class FileEvents(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[FileEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[FileEvent, _Mapping]]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("started", "events")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    started: WatchStarted
    events: FileEvents
    def __init__(self, started: _Optional[_Union[WatchStarted, _Mapping]] = ..., events: _Optional[_Union[FileEvents, _Mapping]] = ...) -> None: ...

class SkippedEntry(_message.Message):
    __slots__ = ("path", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    reason: str
    def __init__(self, path: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class ArchiveRequest(_message.Message):
    __slots__ = ("path", "compression")
    PATH_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    compression: Compression
    def __init__(self, path: _Optional[bytes] = ..., compression: _Optional[_Union[Compression, str]] = ...) -> None: ...

class ArchiveEnd(_message.Message):
    __slots__ = ("entries", "bytes", "skipped", "skipped_count")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    entries: int
    bytes: int
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedEntry]
    skipped_count: int
    def __init__(self, entries: _Optional[int] = ..., bytes: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[SkippedEntry, _Mapping]]] = ..., skipped_count: _Optional[int] = ...) -> None: ...

class ArchiveResponse(_message.Message):
    __slots__ = ("data", "end")
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end: ArchiveEnd
    def __init__(self, data: _Optional[bytes] = ..., end: _Optional[_Union[ArchiveEnd, _Mapping]] = ...) -> None: ...

class ExtractHeader(_message.Message):
    __slots__ = ("path", "compression", "keep_existing")
    PATH_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    KEEP_EXISTING_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    compression: Compression
    keep_existing: bool
    def __init__(self, path: _Optional[bytes] = ..., compression: _Optional[_Union[Compression, str]] = ..., keep_existing: _Optional[bool] = ...) -> None: ...

class ExtractEnd(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class ExtractRequest(_message.Message):
    __slots__ = ("header", "data", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: ExtractHeader
    data: bytes
    end: ExtractEnd
    def __init__(self, header: _Optional[_Union[ExtractHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[_Union[ExtractEnd, _Mapping]] = ...) -> None: ...

class ExtractResponse(_message.Message):
    __slots__ = ("files", "directories", "links", "bytes", "skipped", "skipped_count", "stop", "message")
    FILES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    files: int
    directories: int
    links: int
    bytes: int
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedEntry]
    skipped_count: int
    stop: ExtractStop
    message: str
    def __init__(self, files: _Optional[int] = ..., directories: _Optional[int] = ..., links: _Optional[int] = ..., bytes: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[SkippedEntry, _Mapping]]] = ..., skipped_count: _Optional[int] = ..., stop: _Optional[_Union[ExtractStop, str]] = ..., message: _Optional[str] = ...) -> None: ...

class GlobRequest(_message.Message):
    __slots__ = ("pattern", "path", "max_matches")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MAX_MATCHES_FIELD_NUMBER: _ClassVar[int]
    pattern: bytes
    path: bytes
    max_matches: int
    def __init__(self, pattern: _Optional[bytes] = ..., path: _Optional[bytes] = ..., max_matches: _Optional[int] = ...) -> None: ...

class GlobResponse(_message.Message):
    __slots__ = ("matches", "stop")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[FileInfo]
    stop: SearchStop
    def __init__(self, matches: _Optional[_Iterable[_Union[FileInfo, _Mapping]]] = ..., stop: _Optional[_Union[SearchStop, str]] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("pattern", "regex", "ignore_case", "path", "include", "max_matches")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    MAX_MATCHES_FIELD_NUMBER: _ClassVar[int]
    pattern: bytes
    regex: bool
    ignore_case: bool
    path: bytes
    include: bytes
    max_matches: int
    def __init__(self, pattern: _Optional[bytes] = ..., regex: _Optional[bool] = ..., ignore_case: _Optional[bool] = ..., path: _Optional[bytes] = ..., include: _Optional[bytes] = ..., max_matches: _Optional[int] = ...) -> None: ...

class SearchMatch(_message.Message):
    __slots__ = ("path", "line", "column", "text")
    PATH_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    line: int
    column: int
    text: bytes
    def __init__(self, path: _Optional[bytes] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., text: _Optional[bytes] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("matches", "stop", "files_searched", "files_skipped")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    FILES_SEARCHED_FIELD_NUMBER: _ClassVar[int]
    FILES_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[SearchMatch]
    stop: SearchStop
    files_searched: int
    files_skipped: int
    def __init__(self, matches: _Optional[_Iterable[_Union[SearchMatch, _Mapping]]] = ..., stop: _Optional[_Union[SearchStop, str]] = ..., files_searched: _Optional[int] = ..., files_skipped: _Optional[int] = ...) -> None: ...
