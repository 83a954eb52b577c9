"""Of FilesystemService what works on whole trees: archives, searches, watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import grpc
import grpc.aio
from sandfleet_api.executor.v1 import filesystem_pb2 as pb

from sandfleet_executor.core.files.paths import in_workspace, join
from sandfleet_executor.effects.files import files
from sandfleet_executor.effects.files.pack import Packer
from sandfleet_executor.effects.files.search import Bounds, Finder, NameFinder, TextFinder
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.unpack import Unpacker
from sandfleet_executor.effects.files.walk import Pins, Roots
from sandfleet_executor.effects.files.watch import Watches
from sandfleet_executor.servicers.convert import files as convert
from sandfleet_executor.servicers.errors import ApiError, invalid, show, translated, unwanted

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
        compressed = convert.is_compressed(request.compression)
        pins = self._roots.pin()
        with translated("archive", request.path):
            async with self._threads.hold(
                pins.close, lambda: Packer(pins, request.path, compressed=compressed), Packer.close
            ) as packer:
                while data := await self._threads.run(packer.read):
                    yield pb.ArchiveResponse(data=data)
                end = pb.ArchiveEnd(entries=packer.entries, bytes=packer.bytes, **convert.skips(packer.skips))
                yield pb.ArchiveResponse(end=end)

    async def Extract(self, request_iterator: AsyncIterator[pb.ExtractRequest], context: Context) -> pb.ExtractResponse:
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("part") != "header":
            raise invalid("InvalidStream", "cannot extract: the stream has to begin with a header")
        header = first.header
        compressed = convert.is_compressed(header.compression)
        pins = self._roots.pin()
        with translated("extract to", header.path):
            async with self._threads.hold(
                pins.close,
                lambda: Unpacker(pins, header.path, compressed=compressed, keep_existing=header.keep_existing),
                Unpacker.close,
            ) as unpacker:
                await self._receive_archive(request_iterator, unpacker, context)
                return convert.extracted(unpacker)

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
        return pb.GlobResponse(
            matches=[convert.info(info, self._threads.user) for info in finder.found], stop=convert.search_stop(finder)
        )

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
            stop=convert.search_stop(finder),
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
            below = in_workspace(*place)
            if below is None:
                raise invalid("NotWatchable", f"cannot watch {show(request.path)}: only /workspace is watched")
            async with self._watches.open(b"/".join(below), recursive=request.recursive) as watch:
                yield pb.WatchResponse(started=pb.WatchStarted(path=join(*place)))
                while True:
                    events = await watch.take(EVENTS_AT_ONCE)
                    told = [convert.event(event, place[0]) for event in events]
                    yield pb.WatchResponse(events=pb.FileEvents(events=told))
