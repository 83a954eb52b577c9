"""Of FilesystemService what works on whole trees: archives, searches, watches."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import filesystem_pb2 as pb

from sandfleet_executor.core.filewatch import EventKind, FileEvent
from sandfleet_executor.core.paths import Root, join
from sandfleet_executor.core.unpacking import Skips
from sandfleet_executor.effects import files
from sandfleet_executor.effects.finding import Bounds, Finder, NameFinder, TextFinder
from sandfleet_executor.effects.packing import Packer
from sandfleet_executor.effects.trees import Info
from sandfleet_executor.effects.unpacking import Unpacker
from sandfleet_executor.effects.userthreads import FileThreads
from sandfleet_executor.effects.walk import Pins, Roots
from sandfleet_executor.effects.watches import Watches
from sandfleet_executor.servicers.errors import ApiError, unwanted
from sandfleet_executor.servicers.fileerrors import invalid, translated

EVENTS_AT_ONCE = 256
# What a thread takes at once: compressed, it may be a thousand times as much.
FEED_BYTES = 128 << 10
MOST_UNPACKED_BYTES = 1000 * FEED_BYTES
DEFAULT_MATCHES = 1000
MAX_MATCHES = 10_000
# Each takes a thread for a moment, again and again; there are four.
SEARCHES_AT_ONCE = 2

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
AnyFinder = TypeVar("AnyFinder", bound=Finder[Any])

_FILE_TYPES = {
    stat.S_IFREG: pb.FILE_TYPE_FILE,
    stat.S_IFDIR: pb.FILE_TYPE_DIRECTORY,
    stat.S_IFLNK: pb.FILE_TYPE_SYMLINK,
}
# What protobuf's Timestamp can say: the years 1 to 9999. A file's time is whatever its owner set.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


class Space(Protocol):
    """How much may come over the API."""

    async def take(self, size: int) -> None:
        """Counts bytes that are about to be written. Raises OSError when there is no room for them."""

    async def room(self, size: int) -> int:
        """How many bytes there is room for; looks again where it is less than `size`."""

    def count(self, size: int) -> None:
        """Counts bytes that were written."""


class TreeMethods:
    """`roots` are asked on the event loop's thread, once for each RPC."""

    def __init__(self, roots: Roots, threads: FileThreads, watches: Watches, space: Space | None) -> None:
        self._space = space
        self._roots = roots
        self._threads = threads
        self._watches = watches
        self._searching = asyncio.Semaphore(SEARCHES_AT_ONCE)

    async def Archive(self, request: pb.ArchiveRequest, _context: Context) -> AsyncIterator[pb.ArchiveResponse]:
        compressed = _is_compressed(request.compression)
        pins = self._roots.pin()
        with translated("archive", request.path):
            async with self._threads.hold(
                pins.close, lambda: Packer(pins, request.path, compressed=compressed), Packer.close
            ) as packer:
                while data := await self._threads.run(packer.read):
                    yield pb.ArchiveResponse(data=data)
                end = pb.ArchiveEnd(entries=packer.entries, bytes=packer.bytes, **_skips(packer.skips))
                yield pb.ArchiveResponse(end=end)

    async def Extract(self, request_iterator: AsyncIterator[pb.ExtractRequest], context: Context) -> pb.ExtractResponse:
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("part") != "header":
            raise invalid("InvalidStream", "cannot extract: the stream has to begin with a header")
        header = first.header
        compressed = _is_compressed(header.compression)
        pins = self._roots.pin()
        with translated("extract to", header.path):
            async with self._threads.hold(
                pins.close,
                lambda: Unpacker(pins, header.path, compressed=compressed, keep_existing=header.keep_existing),
                Unpacker.close,
            ) as unpacker:
                await self._receive_archive(request_iterator, unpacker, context)
                return _extracted(unpacker)

    async def _receive_archive(
        self, requests: AsyncIterator[pb.ExtractRequest], unpacker: Unpacker, context: Context
    ) -> None:
        """Takes the data up to the end that the client has to say.

        Also what there is no use in any more, which the client is told: while it is still writing it loses an answer.
        """
        size, wanted = 0, True
        async for request in requests:
            match request.WhichOneof("part"):
                case "data":
                    size += len(request.data)
                    if wanted and not await self._feed(unpacker, request.data):
                        wanted = False
                        await unwanted(context)
                case "end" if request.end.size == size:
                    await self._threads.run(unpacker.finish)
                    return
                case "end":
                    raise invalid("InvalidStream", f"cannot extract: {size} bytes came of {request.end.size}")
                case _:
                    raise invalid("InvalidStream", "cannot extract: after the header only data may come, then an end")
        raise ApiError(grpc.StatusCode.CANCELLED, "StreamBroken", "cannot extract: it ended before its end was said")

    async def _feed(self, unpacker: Unpacker, data: bytes) -> bool:
        """False when there is no use in more."""
        for start in range(0, len(data), FEED_BYTES):
            room = await self._space.room(MOST_UNPACKED_BYTES) if self._space else None
            before = unpacker.counted
            wanted = await self._threads.run(unpacker.feed, data[start : start + FEED_BYTES], room)
            if self._space:
                self._space.count(unpacker.counted - before)
            if not wanted:
                return False
        return True

    async def Glob(self, request: pb.GlobRequest, _context: Context) -> pb.GlobResponse:
        path = request.path or b"."
        bounds = Bounds(min(request.max_matches or DEFAULT_MATCHES, MAX_MATCHES))
        finder = await self._find("find in", path, lambda pins: NameFinder(pins, request.pattern, path, bounds))
        return pb.GlobResponse(matches=[to_info(info) for info in finder.found], stop=_search_stop(finder))

    async def Search(self, request: pb.SearchRequest, _context: Context) -> pb.SearchResponse:
        path = request.path or b"."
        bounds = Bounds(min(request.max_matches or DEFAULT_MATCHES, MAX_MATCHES))
        finder = await self._find(
            "search",
            path,
            lambda pins: TextFinder(
                pins,
                request.pattern,
                path,
                bounds,
                regex=request.regex,
                ignore_case=request.ignore_case,
                include=request.include or b"**",
            ),
        )
        return pb.SearchResponse(
            matches=[
                pb.SearchMatch(path=match.path, line=match.line, column=match.column, text=match.text)
                for match in finder.found
            ],
            stop=_search_stop(finder),
            files_searched=finder.searched,
            files_skipped=finder.skipped,
        )

    async def _find(self, verb: str, path: bytes, make: Callable[[Pins], AnyFinder]) -> AnyFinder:
        with translated(verb, path):
            async with self._searching:
                pins = self._roots.pin()
                async with self._threads.hold(pins.close, lambda: make(pins), Finder.close) as finder:
                    while await self._threads.run(finder.step):
                        pass
                    return finder

    async def Watch(self, request: pb.WatchRequest, _context: Context) -> AsyncIterator[pb.WatchResponse]:
        pins = self._roots.pin()
        with translated("watch", request.path):
            place = await self._threads.run_then(pins.close, lambda: files.directory_at(pins, request.path))
            if place[0] is not Root.WORKSPACE:
                raise invalid("NotWatchable", "cannot watch /tmp: only /workspace is watched")
            async with self._watches.open(b"/".join(place[1]), recursive=request.recursive) as watch:
                yield pb.WatchResponse(started=pb.WatchStarted(path=join(*place)))
                while True:
                    events = await watch.take(EVENTS_AT_ONCE)
                    yield pb.WatchResponse(events=pb.FileEvents(events=[_event(event) for event in events]))


def _is_compressed(compression: int) -> bool:
    if compression not in pb.Compression.values():
        raise invalid("InvalidCompression", f"cannot use compression {compression}: there is no such one")
    return compression == pb.COMPRESSION_ZSTD


def _skips(skips: Skips) -> dict[str, Any]:
    listed = [pb.SkippedEntry(path=path, reason=reason) for path, reason in skips.listed]
    return {"skipped": listed, "skipped_count": skips.count}


def _extracted(unpacker: Unpacker) -> pb.ExtractResponse:
    stopped = unpacker.stopped
    return pb.ExtractResponse(
        files=unpacker.files,
        directories=unpacker.directories,
        links=unpacker.links,
        bytes=unpacker.bytes,
        stop=f"EXTRACT_STOP_{stopped.reason}" if stopped else None,
        message=str(stopped) if stopped else "",
        **_skips(unpacker.skips),
    )


def _search_stop(finder: Finder[Any]) -> str | None:
    return f"SEARCH_STOP_{finder.stop}" if finder.stop else None


def _absolute(path: bytes) -> bytes:
    return b"/".join((join(Root.WORKSPACE, ()), path)) if path else join(Root.WORKSPACE, ())


def _event(event: FileEvent) -> pb.FileEvent:
    overflow = event.kind is EventKind.OVERFLOW
    return pb.FileEvent(
        sequence=event.sequence,
        type=f"FILE_EVENT_TYPE_{event.kind.name}",
        path=b"" if overflow else _absolute(event.path),
        old_path=_absolute(event.old_path) if event.old_path else b"",
        directory=event.directory,
        dropped=event.dropped,
    )


def to_info(info: Info) -> pb.FileInfo:
    seconds, nanos = divmod(info.modified_ns, 1_000_000_000)
    return pb.FileInfo(
        path=info.path,
        type=_FILE_TYPES.get(info.kind, pb.FILE_TYPE_OTHER),
        size=info.size,
        mode=info.mode,
        modified=Timestamp(seconds=max(_FIRST_SECOND, min(seconds, _LAST_SECOND)), nanos=nanos),
        symlink_target=info.target,
    )
