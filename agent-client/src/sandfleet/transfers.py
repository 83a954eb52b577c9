"""Whole trees between this machine and a sandbox, and what is found in them."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet._pack import Packer
from sandfleet._status import to_error
from sandfleet._unpack import Unpacker
from sandfleet.errors import ProtocolError, TransferIncomplete
from sandfleet.file_values import Found, Match, OnProgress, Progress, Skipped, Transfer
from sandfleet.telemetry import call, rpc
from sandfleet.transport import receive_within, within
from sandfleet.uploading import unwanted

if TYPE_CHECKING:
    from sandfleet.transport import Connection, Link
    from sandfleet.values import FileInfo

    Part = api.filesystem.ArchiveResponse

_LISTED = 1000
# As the enums of the API number them.
_STOPS = {1: "matches", 2: "time", 3: "size"}
_EXTRACT_STOPS = {
    1: "InvalidArchive",
    2: "Truncated",
    3: "TooManyEntries",
    4: "TooLarge",
    5: "CompressionRatio",
    6: "NoSpace",
}
# A search ends by itself after 30 s; others may be before it.
SEARCH_PATIENCE = 90.0


async def tell(on_progress: OnProgress | None, progress: Progress) -> None:
    """Call a callback, of either kind."""
    if on_progress is not None:
        told = on_progress(progress)
        if inspect.isawaitable(told):
            await told


async def upload(link: Link, local: bytes, path: bytes, on_progress: OnProgress | None) -> Transfer:
    """Copy what is in a local directory into one of the sandbox."""
    header = api.filesystem.ExtractHeader(path=path)

    async def attempt(connection: Connection) -> Transfer:
        packer = Packer(local)
        stream = connection.filesystem.Extract(None, metadata=connection.metadata())
        try:
            await stream.write(api.filesystem.ExtractRequest(header=header))
            await _send(stream, packer, link.rpc_timeout, on_progress)
            await stream.done_writing()
        except (api.aio.UsageError, asyncio.InvalidStateError):
            # The server has turned it down already; its status says why.
            pass
        except BaseException:  # Cancelled, or the local tree cannot be read: the rest is never written.
            stream.cancel()
            raise
        return _uploaded(await within(link.rpc_timeout, stream), packer, path)

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
    async with unwanted(stream) as is_unwanted:
        while not is_unwanted() and (piece := await asyncio.to_thread(next, pieces, b"")):
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
        reason = _EXTRACT_STOPS.get(answer.stop, "Stopped")
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
    """Take out what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


async def download(link: Link, path: bytes, local: bytes, limit: int, on_progress: OnProgress | None) -> Transfer:
    """Copy what is in a directory of the sandbox into a local one."""
    request = api.filesystem.ArchiveRequest(path=path)

    async def attempt(connection: Connection) -> api.aio.UnaryStreamCall[api.filesystem.ArchiveRequest, Part]:
        stream = connection.filesystem.Archive(request, metadata=connection.metadata())
        # Errors show with the first message, before anything is made here.
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
    """Feed it; also after a cancellation the thread is waited for, since it is about to be closed."""
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
    return Found(items, _STOPS.get(answer.stop, "unknown") if answer.stop else "")


async def search(link: Link, request: api.filesystem.SearchRequest) -> Found[Match]:
    """Find text."""
    answer = await link.unary(lambda c: c.filesystem.Search, request, idempotent=True, timeout=SEARCH_PATIENCE)
    items = tuple(
        Match(os.fsdecode(match.path), match.line, match.column, match.text.decode("utf-8", "replace"))
        for match in answer.matches[: request.max_matches]
    )
    stopped = _STOPS.get(answer.stop, "unknown") if answer.stop else ""
    return Found(items, stopped, answer.files_searched, answer.files_skipped)
