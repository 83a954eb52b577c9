"""Values of files and trees to messages of the API."""

from __future__ import annotations

import stat
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import filesystem_pb2 as pb

from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.core.files.paths import Root, Tree, join
from sandfleet_executor.core.files.unpacking import Skips
from sandfleet_executor.core.files.watch import EventKind, FileEvent
from sandfleet_executor.effects.files.search import Finder
from sandfleet_executor.effects.files.trees import Info
from sandfleet_executor.effects.files.unpack import Unpacker
from sandfleet_executor.servicers.errors import invalid

_FILE_TYPES = {
    stat.S_IFREG: pb.FILE_TYPE_FILE,
    stat.S_IFDIR: pb.FILE_TYPE_DIRECTORY,
    stat.S_IFLNK: pb.FILE_TYPE_SYMLINK,
}
# What protobuf's Timestamp can say: the years 1 to 9999. A file's time is whatever its owner set.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def is_compressed(compression: int) -> bool:
    if compression not in pb.Compression.values():
        raise invalid("InvalidCompression", f"cannot use compression {compression}: there is no such one")
    return compression == pb.COMPRESSION_ZSTD


def skips(found: Skips) -> dict[str, Any]:
    listed = [pb.SkippedEntry(path=path, reason=reason) for path, reason in found.listed]
    return {"skipped": listed, "skipped_count": found.count}


def extracted(unpacker: Unpacker) -> pb.ExtractResponse:
    stopped = unpacker.stopped
    return pb.ExtractResponse(
        files=unpacker.files,
        directories=unpacker.directories,
        links=unpacker.links,
        bytes=unpacker.bytes,
        stop=f"EXTRACT_STOP_{stopped.reason}" if stopped else None,
        message=str(stopped) if stopped else "",
        **skips(unpacker.skips),
    )


def search_stop(finder: Finder[Any]) -> str | None:
    return f"SEARCH_STOP_{finder.stop}" if finder.stop else None


def _absolute(path: bytes, tree: Tree) -> bytes:
    """Of a path below the workspace: as in the tree that is watched, where it lies in that."""
    names = tuple(path.split(b"/")) if path else ()
    if isinstance(tree, Mount) and names[: len(tree.folder)] == tree.folder:
        return join(tree, names[len(tree.folder) :])
    return join(Root.WORKSPACE, names)


def event(value: FileEvent, tree: Tree) -> pb.FileEvent:
    """`tree` is the one that the watch was asked for."""
    overflow = value.kind is EventKind.OVERFLOW
    return pb.FileEvent(
        sequence=value.sequence,
        type=f"FILE_EVENT_TYPE_{value.kind.name}",
        path=b"" if overflow else _absolute(value.path, tree),
        old_path=_absolute(value.old_path, tree) if value.old_path else b"",
        directory=value.directory,
        dropped=value.dropped,
    )


def info(value: Info, user: tuple[int, int]) -> pb.FileInfo:
    """`user` is the sandbox's user on this machine, and its group."""
    seconds, nanos = divmod(value.modified_ns, 1_000_000_000)
    return pb.FileInfo(
        path=value.path,
        type=_FILE_TYPES.get(value.kind, pb.FILE_TYPE_OTHER),
        size=value.size,
        mode=value.mode,
        modified=Timestamp(seconds=max(_FIRST_SECOND, min(seconds, _LAST_SECOND)), nanos=nanos),
        symlink_target=value.target,
        owner="sandbox" if value.uid == user[0] else "nobody",
        group="sandbox" if value.gid == user[1] else "nogroup",
    )
