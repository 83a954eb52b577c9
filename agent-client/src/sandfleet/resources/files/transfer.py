"""Directories copied between this machine and a sandbox, and searches in them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert.enums import reasons_of, words_of
from sandfleet._wire.heads import hear
from sandfleet._wire.link import patience_of, receive_within, within
from sandfleet._wire.status import to_error
from sandfleet.errors import ProtocolError, TransferIncomplete
from sandfleet.observe.tracing import call, rpc
from sandfleet.resources.files.tar_pack import Packer
from sandfleet.resources.files.tar_unpack import Unpacker
from sandfleet.values.files import Found, Match, OnProgress, Progress, Skipped, Transfer

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link
    from sandfleet.values.files import FileInfo

    Part = api.filesystem.ArchiveResponse

_LISTED = 1000
# A search ends by itself after 30 s; it may first wait for others.
SEARCH_PATIENCE = 90.0


async def tell(on_progress: OnProgress | None, progress: Progress) -> None:
    """Call a callback, and await it if it returns an awaitable."""
    if on_progress is not None:
        told = on_progress(progress)
        if inspect.isawaitable(told):
            await told


# The executor says so in the initial metadata, which come before its answer.
_UNWANTED = "sandfleet-unwanted"


@contextlib.asynccontextmanager
async def server_rejected_upload(call: api.aio.StreamUnaryCall[Any, Any]) -> AsyncIterator[Callable[[], bool]]:
    """Yield a function that says whether the executor has rejected an upload while its data is still on its way.

    The executor answers, and says why, once the client has stopped sending.
    """
    told = asyncio.create_task(_told(call))
    try:
        yield lambda: told.done() and told.result()
    finally:
        told.cancel()


async def _told(call: api.aio.StreamUnaryCall[Any, Any]) -> bool:
    # A call that fails before its metadata come reports the failure in its own answer.
    with contextlib.suppress(Exception):
        return any(key == _UNWANTED for key, _ in await call.initial_metadata() or ())
    return False


@contextlib.asynccontextmanager
async def sending(call: api.aio.StreamUnaryCall[Any, Any]) -> AsyncIterator[None]:
    """Send the requests of a call in this block, and then await the call: its own status says why it has failed.

    A server that answers before it has read everything ends the call, and the next write fails. gRPC then reports
    INTERNAL for the write, which says nothing of the server's reason. Any other error cancels the call, so that half
    an upload is never stored.
    """
    try:
        yield
        await call.done_writing()
    except (api.aio.UsageError, asyncio.InvalidStateError):
        pass
    except BaseException as error:
        if isinstance(error, api.aio.AioRpcError) and call.done():
            return
        call.cancel()
        raise


async def upload(link: Link, local: bytes, path: bytes, on_progress: OnProgress | None) -> Transfer:
    """Copy the contents of a local directory into a directory of the sandbox."""
    header = api.filesystem.ExtractHeader(path=path)

    async def attempt(connection: Connection) -> Transfer:
        packer = Packer(local)
        stream = connection.filesystem.Extract(None, metadata=connection.metadata())
        async with sending(stream):
            await stream.write(api.filesystem.ExtractRequest(header=header))
            await _send(stream, packer, link.rpc_timeout, on_progress)
        patience = patience_of(link, "ExtractRequest", link.rpc_timeout)
        answer = await within(patience, stream)
        await hear(link.heads, connection.uid, stream)
        return _uploaded(answer, packer, path)

    with call(*rpc(api.filesystem.ExtractRequest.DESCRIPTOR)):
        return await link.run(attempt, resend=False)


async def _send(
    stream: api.aio.StreamUnaryCall[api.filesystem.ExtractRequest, api.filesystem.ExtractResponse],
    packer: Packer,
    patience: float,
    on_progress: OnProgress | None,
) -> None:
    pieces = packer.pieces()
    size = 0
    async with server_rejected_upload(stream) as rejected:
        while not rejected() and (piece := await asyncio.to_thread(next, pieces, b"")):
            size += len(piece)
            await within(patience, stream.write(api.filesystem.ExtractRequest(data=piece)))
            await tell(on_progress, packer.progress)
    await stream.write(api.filesystem.ExtractRequest(end=api.filesystem.ExtractEnd(size=size)))


def _uploaded(answer: api.filesystem.ExtractResponse, packer: Packer, path: bytes) -> Transfer:
    listed = (*packer.skipped, *_skipped(answer.skipped))
    transfer = Transfer(
        files=answer.files,
        directories=answer.directories,
        links=answer.links,
        bytes=answer.bytes,
        skipped=listed[:_LISTED],
        skipped_count=packer.skipped_count + answer.skipped_count,
    )
    if answer.stop:
        reason = reasons_of(api.filesystem.ExtractStop).get(answer.stop, "Stopped")
        name = os.fsdecode(path)
        raise TransferIncomplete(
            f"cannot upload everything to {name!r}: {_printable(answer.message[:1000])}",
            transfer,
            reason=reason,
            subject=name,
        )
    return transfer


def _skipped(entries: Iterable[api.filesystem.SkippedEntry]) -> list[Skipped]:
    listed = zip(entries, range(_LISTED), strict=False)
    return [Skipped(os.fsdecode(entry.path[:4096]), _printable(entry.reason[:500])) for entry, _ in listed]


def _printable(text: str) -> str:
    """Replace characters that a terminal would act upon."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


async def download(link: Link, path: bytes, local: bytes, limit: int, on_progress: OnProgress | None) -> Transfer:
    """Copy the contents of a directory of the sandbox into a local directory."""
    request = api.filesystem.ArchiveRequest(path=path)

    async def attempt(connection: Connection) -> api.aio.UnaryStreamCall[api.filesystem.ArchiveRequest, Part]:
        stream = connection.filesystem.Archive(request, metadata=connection.metadata())
        # Errors arrive with the first message, before anything is created here.
        part: Part | None = await receive_within(link.rpc_timeout, stream)
        first.append(part)
        return stream

    first: list[Part | None] = []
    with call(*rpc(request.DESCRIPTOR)):
        stream = await link.run(attempt, resend=True)
        try:
            unpacker = await asyncio.to_thread(Unpacker, local, limit)
            try:
                return await _receive(stream, first[-1], unpacker, link.rpc_timeout, on_progress)
            finally:
                await asyncio.to_thread(unpacker.close)
        except api.aio.AioRpcError as error:
            raise to_error(error, "download the directory") from error
        finally:
            stream.cancel()


async def _receive(
    stream: api.aio.UnaryStreamCall[api.filesystem.ArchiveRequest, Part],
    part: Part | None,
    unpacker: Unpacker,
    patience: float,
    on_progress: OnProgress | None,
) -> Transfer:
    while part is not None:
        if part.WhichOneof("part") == "end":
            if not unpacker.ended:
                break
            return unpacker.transfer(_skipped(part.end.skipped), part.end.skipped_count)
        await _in_thread(unpacker, part.data)
        await tell(on_progress, unpacker.progress)
        part = await receive_within(patience, stream)
    raise ProtocolError("cannot read the executor's archive: it ends in the middle", reason="Truncated")


async def _in_thread(unpacker: Unpacker, data: bytes) -> None:
    """Feed the unpacker in a thread; wait for the thread even if cancelled, since the unpacker is closed next."""
    feeding = asyncio.ensure_future(asyncio.to_thread(unpacker.feed, data))
    try:
        await asyncio.shield(feeding)
    except asyncio.CancelledError:
        await asyncio.wait([feeding])
        raise


async def glob(link: Link, pattern: bytes, path: bytes, max_matches: int) -> Found[FileInfo]:
    """Find names."""
    request = api.filesystem.GlobRequest(pattern=pattern, path=path, max_matches=max_matches)
    answer = await link.unary(lambda c: c.filesystem.Glob, request, idempotent=True, timeout=SEARCH_PATIENCE)
    items = tuple(convert.file_info(info) for info in answer.matches[:max_matches])
    return Found(items, words_of(api.filesystem.SearchStop).get(answer.stop, "unknown") if answer.stop else "")


async def search(link: Link, request: api.filesystem.SearchRequest) -> Found[Match]:
    """Find text."""
    answer = await link.unary(lambda c: c.filesystem.Search, request, idempotent=True, timeout=SEARCH_PATIENCE)
    items = tuple(
        Match(os.fsdecode(match.path), match.line, match.column, match.text.decode("utf-8", "replace"))
        for match in answer.matches[: request.max_matches]
    )
    stopped = words_of(api.filesystem.SearchStop).get(answer.stop, "unknown") if answer.stop else ""
    return Found(items, stopped, answer.files_searched, answer.files_skipped)


async def unpack(link: Link, archive: bytes, path: str, *, compression: str, keep_existing: bool) -> None:
    """Unpack a tar archive that is there already into a directory of the sandbox.

    `compression` as the API names it. Raises InvalidArgument.
    """
    known: dict[str, Any] = dict(api.filesystem.Compression.items())
    number = known.get(compression, api.filesystem.COMPRESSION_UNSPECIFIED)
    header = api.filesystem.ExtractHeader(path=os.fsencode(path), compression=number, keep_existing=keep_existing)
    parts = [api.filesystem.ExtractRequest(header=header), api.filesystem.ExtractRequest(data=archive)]
    parts.append(api.filesystem.ExtractRequest(end=api.filesystem.ExtractEnd(size=len(archive))))

    async def attempt(connection: Connection) -> api.filesystem.ExtractResponse:
        stream = connection.filesystem.Extract(iter(parts), metadata=connection.metadata())
        return await within(patience_of(link, "ExtractRequest", link.rpc_timeout), stream)

    await link.run(attempt, resend=False)
