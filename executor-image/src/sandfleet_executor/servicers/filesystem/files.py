"""FilesystemService: from the API's messages to work in FileThreads, and from its errors to statuses."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from sandfleet_api.executor.v1 import filesystem_pb2_grpc

from sandfleet_executor.core.files.paths import InvalidPath, decode_cursor, encode_cursor
from sandfleet_executor.effects.files import files
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import Pins, Roots
from sandfleet_executor.effects.files.watch import Watches
from sandfleet_executor.servicers.convert import files as convert
from sandfleet_executor.servicers.errors import ApiError, invalid, show, translated
from sandfleet_executor.servicers.filesystem.trees import Space, TreeMethods

READ_CHUNK_BYTES = 256 << 10
DEFAULT_PAGE_SIZE = 1000
MAX_PAGE_SIZE = 10_000
MAX_DEPTH = 32
MAX_MODE = 0o7777

T = TypeVar("T")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Code = grpc.StatusCode


class FilesystemServicer(TreeMethods, filesystem_pb2_grpc.FilesystemServiceServicer):
    """`roots` are asked on the event loop's thread, once for each RPC."""

    def __init__(
        self,
        roots: Roots,
        threads: FileThreads,
        watches: Watches,
        space: Space | None = None,
    ) -> None:
        """Without a `space` there is no limit but the disk's own."""
        super().__init__(roots, threads, watches, space)

    async def _do(self, verb: str, path: bytes, work: Callable[[Pins], T]) -> T:
        pins = self._roots.pin()
        with translated(verb, path):
            return await self._threads.run_then(pins.close, functools.partial(work, pins))

    async def Read(self, request: pb.ReadRequest, _context: Context) -> AsyncIterator[pb.ReadResponse]:
        pins = self._roots.pin()
        with translated("read", request.path):
            async with self._threads.hold(
                pins.close, lambda: files.Download(pins, request.path), files.Download.close
            ) as download:
                size = download.info.size
                yield pb.ReadResponse(info=convert.info(download.info, self._threads.user))
                offset = min(request.offset, size)
                # A file that grows faster than it is read has an end nevertheless.
                end = min(offset + request.length, size) if request.length else size
                while offset < end:
                    data = await self._threads.run(download.read, offset, min(READ_CHUNK_BYTES, end - offset))
                    if not data:
                        return
                    offset += len(data)
                    yield pb.ReadResponse(data=data)

    async def Write(self, request_iterator: AsyncIterator[pb.WriteRequest], _context: Context) -> pb.WriteResponse:
        header = await _header(request_iterator)
        pins = self._roots.pin()
        with translated("write", header.path):
            async with self._threads.hold(
                pins.close, lambda: files.Upload(pins, header.path, header.mode), files.Upload.discard
            ) as upload:
                await self._receive(request_iterator, upload)
                info = await self._threads.run(upload.commit)
                self._has_changed()
                return pb.WriteResponse(info=convert.info(info, self._threads.user))

    def _has_changed(self) -> None:
        """What the workspace takes has changed otherwise than by written bytes."""
        if self._space:
            self._space.count(0)

    async def _receive(self, requests: AsyncIterator[pb.WriteRequest], upload: files.Upload) -> None:
        """Takes the data up to the client's explicit end: grpc.aio ends a broken stream in the same way."""
        size = 0
        async for request in requests:
            match request.WhichOneof("part"):
                case "data":
                    size += len(request.data)
                    if self._space:
                        await self._space.take(len(request.data))
                    await self._threads.run(upload.write, request.data)
                case "end" if request.end.size == size:
                    return
                case "end":
                    raise invalid("InvalidStream", f"cannot write: {size} bytes came of {request.end.size}")
                case _:
                    raise invalid("InvalidStream", "cannot write: after the header only data may come, then an end")
        raise ApiError(Code.CANCELLED, "StreamBroken", "cannot write: the stream ended before its end was said")

    async def Stat(self, request: pb.StatRequest, _context: Context) -> pb.StatResponse:
        info = await self._do("look at", request.path, lambda pins: files.look(pins, request.path))
        return pb.StatResponse(info=convert.info(info, self._threads.user))

    async def ListDirectory(self, request: pb.ListDirectoryRequest, _context: Context) -> pb.ListDirectoryResponse:
        if request.depth > MAX_DEPTH:
            raise invalid("InvalidDepth", f"cannot list {request.depth} levels: the limit is {MAX_DEPTH}")
        try:
            after = decode_cursor(request.page_token)
        except InvalidPath as error:
            raise invalid("InvalidPageToken", f"cannot list: {error}") from error
        limit = min(request.page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        page = await self._do(
            "list",
            request.path,
            lambda pins: files.list_directory(pins, request.path, depth=request.depth or 1, limit=limit, after=after),
        )
        token = b"" if page.cursor is None else encode_cursor(page.cursor)
        return pb.ListDirectoryResponse(
            entries=[convert.info(entry, self._threads.user) for entry in page.entries], next_page_token=token
        )

    async def MakeDir(self, request: pb.MakeDirRequest, _context: Context) -> pb.MakeDirResponse:
        created = await self._do("make", request.path, lambda pins: files.make_dir(pins, request.path))
        return pb.MakeDirResponse(created=created)

    async def Move(self, request: pb.MoveRequest, _context: Context) -> pb.MoveResponse:
        info = await self._do(
            f"move {show(request.source)} to",
            request.target,
            lambda pins: files.move(pins, request.source, request.target, overwrite=request.overwrite),
        )
        self._has_changed()
        return pb.MoveResponse(info=convert.info(info, self._threads.user))

    async def Remove(self, request: pb.RemoveRequest, _context: Context) -> pb.RemoveResponse:
        await self._do(
            "remove", request.path, lambda pins: files.remove(pins, request.path, recursive=request.recursive)
        )
        self._has_changed()
        return pb.RemoveResponse()


async def _header(requests: AsyncIterator[pb.WriteRequest]) -> pb.WriteHeader:
    first = await anext(aiter(requests), None)
    if first is None or first.WhichOneof("part") != "header":
        raise invalid("InvalidStream", "cannot write: the stream has to begin with a header")
    if first.header.mode > MAX_MODE:
        raise invalid("InvalidMode", f"cannot write: the mode is over 0o{MAX_MODE:o}")
    return first.header
