"""Files of a sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.heads import hear
from sandfleet._wire.link import patience_of, receive_within, within
from sandfleet._wire.status import to_error
from sandfleet.errors import FileError, FileNotFound, InvalidArgument, IsADirectory, LimitReached, ProtocolError
from sandfleet.observe import tracing
from sandfleet.resources.files import tables, transfer
from sandfleet.resources.files.blocks import Data, blocks
from sandfleet.resources.files.transfer import sending, server_rejected_upload
from sandfleet.resources.files.watch import AsyncFileWatch
from sandfleet.values.files import Progress, Transfer
from sandfleet.values.options import FileText

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link
    from sandfleet.values.files import FileInfo, Found, Match, OnProgress

PathLike = FileText | bytes | os.PathLike[str]
Format = Literal["text", "bytes", "stream"]
Library = Literal["pandas", "polars", "pyarrow"]

_ENTRIES_LIMIT = 100_000
_PAGE = 10_000
# As many as Linux follows.
_LINKS_LIMIT = 40
DEFAULT_READ_LIMIT = 256 * 1024 * 1024
DEFAULT_DOWNLOAD_LIMIT = 64 * 1024 * 1024 * 1024
MAX_MATCHES = 10_000


class AsyncFiles:
    """Files of one sandbox. Paths are relative to /workspace, or absolute: below /workspace, /tmp and the sandbox's
    mounts for everything, elsewhere (as in /etc and /usr) to read what the sandbox's user may read.

    Errors are FileError's: FileNotFound, IsADirectory, NotADirectory, FilePermission, InvalidPath, NoSpace, …
    """

    def __init__(self, link: Link) -> None:
        """Use `sandbox.files`."""
        self._link = link

    @overload
    async def read(
        self,
        path: PathLike,
        *,
        format: Literal["text"] = "text",
        offset: int = 0,
        length: int | None = None,
        limit: int = ...,
    ) -> str: ...
    @overload
    async def read(
        self, path: PathLike, *, format: Literal["bytes"], offset: int = 0, length: int | None = None, limit: int = ...
    ) -> bytes: ...
    @overload
    async def read(
        self, path: PathLike, *, format: Literal["stream"], offset: int = 0, length: int | None = None, limit: int = ...
    ) -> AsyncIterator[bytes]: ...
    @overload
    async def read(
        self, path: PathLike, *, format: Format, offset: int = 0, length: int | None = None, limit: int = ...
    ) -> str | bytes | AsyncIterator[bytes]: ...
    @checked
    async def read(
        self,
        path: PathLike,
        *,
        format: Format = "text",  # noqa: A002  the name that users of other sandboxes know
        offset: int = 0,
        length: int | None = None,
        limit: int = DEFAULT_READ_LIMIT,
    ) -> str | bytes | AsyncIterator[bytes]:
        """Read a regular file: as "text" (UTF-8), as "bytes", or as a "stream" of chunks (for large files).

        offset, length  in bytes; length None means to the end.
        limit           largest size of text and bytes.

        Raises FileNotFound, IsADirectory, …; FileError (reason NotText) for text that is no UTF-8; LimitReached.
        """
        chunks = await self._open_read(path, offset, length)
        if format == "stream":
            return chunks
        data = await _join(chunks, path, limit)
        return data if format == "bytes" else _decode(data, path)

    @checked
    async def write(
        self, path: PathLike, data: Data, *, mode: int = 0, on_progress: OnProgress | None = None
    ) -> FileInfo:
        """Write a whole file: it replaces the old one when it is complete. Missing parent directories are created.

        data         text (as UTF-8), bytes, a file object of either, or an iterable of pieces of either.
        mode         permission bits; 0 means 0644 for a new file, else the old file's.
        on_progress  called with the bytes that were sent.
        """
        progress = _Counting(on_progress)
        header = api.filesystem.WriteHeader(path=os.fsencode(path), mode=mode)

        async def attempt(connection: Connection) -> api.filesystem.WriteResponse:
            call = connection.filesystem.Write(None, metadata=connection.metadata())
            progress.bytes = 0
            patience = self._link.rpc_timeout
            async with sending(call):
                await call.write(api.filesystem.WriteRequest(header=header))
                await _send(call, progress.count(blocks(data)), patience)
            answer = await within(patience_of(self._link, "WriteRequest", patience), call)
            await hear(self._link.heads, connection.uid, call)
            return answer

        again = isinstance(data, (str, bytes, bytearray, memoryview))
        with tracing.call(*tracing.rpc(api.filesystem.WriteRequest.DESCRIPTOR)):
            written = await self._link.run(attempt, resend=again)
        await progress.end()
        return convert.file_info(written.info)

    @checked
    async def read_table(self, path: PathLike, *, library: Library = "pandas", limit: int = DEFAULT_READ_LIMIT) -> Any:
        """Read a file of Arrow (.arrow, uncompressed) or CSV (.csv) as a table.

        library  "pandas", "polars" or "pyarrow"; one that is not installed here gives a table of pyarrow.
        limit    largest size of the file, in bytes.

        Parquet is read in the sandbox: `sandbox.tables.get` brings what its code has made of it. Raises as `read`, and
        InvalidArgument for another kind of file, FileError (reason NotATable) for one that holds no table.
        """
        tables.check_readable(path)
        return await tables.read(path, self.read(path, format="bytes", limit=limit), library)

    @checked
    async def write_table(self, path: PathLike, table: Any) -> FileInfo:
        """Write a frame of pandas or polars, or a table of Arrow, as a file: .arrow, .csv or .parquet.

        Raises as `write`, and InvalidArgument for what is no table, or another kind of file.
        """
        return await self.write(path, await tables.contents(path, table))

    @checked
    async def list(self, path: PathLike = ".", *, depth: int = 1) -> tuple[FileInfo, ...]:
        """List a directory by name, down to `depth` levels. Raises LimitReached above 100,000 entries."""
        entries: list[FileInfo] = []
        token = b""
        while True:
            request = api.filesystem.ListDirectoryRequest(
                path=os.fsencode(path), depth=depth, page_size=_PAGE, page_token=token
            )
            page = await self._link.unary(lambda c: c.filesystem.ListDirectory, request, idempotent=True)
            entries += map(convert.file_info, page.entries)
            if len(entries) > _ENTRIES_LIMIT:
                raise LimitReached(f"cannot list {os.fsdecode(path)!r}: more than {_ENTRIES_LIMIT} entries")
            if not (token := page.next_page_token) or not page.entries:
                return tuple(entries)

    @checked
    async def exists(self, path: PathLike) -> bool:
        """Return whether a path exists. A dangling symlink exists."""
        try:
            await self.get_info(path)
        except FileNotFound:
            return False
        return True

    @checked
    async def get_info(self, path: PathLike, *, follow_links: bool = False) -> FileInfo:
        """Describe a file, directory or symlink: the symlink at the end of a path, or with `follow_links` its target.

        Raises FileNotFound, also for a symlink to nothing, and FileError (reason TooManyLinks).
        """
        raw = os.fsencode(path)
        for _ in range(_LINKS_LIMIT):
            answer = await self._link.unary(
                lambda c: c.filesystem.Stat, api.filesystem.StatRequest(path=raw), idempotent=True
            )
            target = answer.info.symlink_target
            if not follow_links or not target:
                return convert.file_info(answer.info)
            raw = os.path.join(os.path.dirname(answer.info.path), target)  # noqa: PTH118, PTH120 - bytes of the sandbox
        why = f"more than {_LINKS_LIMIT} symlinks lead on from it"
        raise FileError(f"cannot describe {os.fsdecode(path)!r}: {why}", reason="TooManyLinks")

    @checked
    async def make_dir(self, path: PathLike) -> bool:
        """Create a directory and its parents. Returns whether it is new."""
        request = api.filesystem.MakeDirRequest(path=os.fsencode(path))
        return (await self._link.unary(lambda c: c.filesystem.MakeDir, request, idempotent=True)).created

    @checked
    async def rename(self, source: PathLike, target: PathLike, *, overwrite: bool = False) -> FileInfo:
        """Move a file or directory; the target's parents are created. Raises FileExists unless `overwrite`."""
        request = api.filesystem.MoveRequest(
            source=os.fsencode(source), target=os.fsencode(target), overwrite=overwrite
        )
        return convert.file_info((await self._link.unary(lambda c: c.filesystem.Move, request)).info)

    @checked
    async def remove(self, path: PathLike, *, recursive: bool = False) -> None:
        """Remove a file, a symlink or a directory. Raises DirectoryNotEmpty unless `recursive`."""
        request = api.filesystem.RemoveRequest(path=os.fsencode(path), recursive=recursive)
        await self._link.unary(lambda c: c.filesystem.Remove, request)

    @checked
    async def upload(
        self, local: PathLike, path: PathLike, *, mode: int = 0, on_progress: OnProgress | None = None
    ) -> Transfer:
        """Copy a local file into the sandbox, or the contents of a local directory into the directory `path`.

        mode         permission bits of a file; 0 as for `write`.
        on_progress  called with the files and bytes that were sent.

        Each file is copied whole or not at all. Symlinks stay symlinks. Symlinks that lead outside, pipes and devices
        are skipped and listed in the result. Raises OSError for the local file; TransferIncomplete when the sandbox's
        disk is full.
        """
        source = os.fsencode(local)
        if await asyncio.to_thread(os.path.isdir, source):
            return await transfer.upload(self._link, source, os.fsencode(path), on_progress)
        with await asyncio.to_thread(Path(os.fsdecode(local)).open, "rb") as file:
            info = await self.write(path, file, mode=mode, on_progress=on_progress)
        return Transfer(files=1, bytes=info.size)

    @checked
    async def download(
        self,
        path: PathLike,
        local: PathLike,
        *,
        limit: int = DEFAULT_DOWNLOAD_LIMIT,
        on_progress: OnProgress | None = None,
    ) -> Transfer:
        """Copy a file of the sandbox to this machine, or the contents of a directory into the directory `local`.

        limit        largest number of bytes.
        on_progress  called with the files and bytes that were received.

        Each local file is replaced when its copy is complete, and untouched when its copy fails. Nothing is written
        outside of `local`, no matter what the sandbox sends; links that may lead outside are skipped and listed in the
        result. Raises LimitReached, OSError for local files.
        """
        progress = _Counting(on_progress)
        try:
            chunks = await self._open_read(path, 0, None)
        except IsADirectory:
            return await transfer.download(self._link, os.fsencode(path), os.fsencode(local), limit, on_progress)
        target = Path(os.fsdecode(local))
        partial = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}")
        try:
            with await asyncio.to_thread(partial.open, "xb") as out:
                async for chunk in progress.count(chunks):
                    if progress.bytes > limit:
                        raise LimitReached(f"cannot download {os.fsdecode(path)!r}: it has more than {limit} bytes")
                    await asyncio.to_thread(out.write, chunk)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        await progress.end()
        return Transfer(files=1, bytes=progress.bytes)

    @checked
    async def glob(
        self, pattern: FileText | bytes, path: PathLike = ".", *, max_matches: int = 1000
    ) -> Found[FileInfo]:
        """Find files by a pattern of their names: `*`, `?` and `[…]` within a name, `**` for any number of directories.

        Relative to `path`. Hidden names match only if the pattern has the dot; symlinks are not followed. The search is
        bounded: `stopped` of the result says when it ended early. Raises InvalidArgument for a malformed pattern.
        """
        _check_matches(max_matches)
        return await transfer.glob(self._link, os.fsencode(pattern), os.fsencode(path), max_matches)

    @checked
    async def search(
        self,
        pattern: FileText | bytes,
        path: PathLike = ".",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        include: FileText | bytes = "**",
        max_matches: int = 1000,
    ) -> Found[Match]:
        """Find lines of files that contain a text, or match a regular expression (RE2's: no look-around).

        path     a file or a directory.
        include  pattern of the files to search, as for `glob`.

        Binary files are skipped. The search is bounded: `stopped` says when it ended early. Raises InvalidArgument.
        """
        _check_matches(max_matches)
        request = api.filesystem.SearchRequest(
            pattern=os.fsencode(pattern),
            regex=regex,
            ignore_case=ignore_case,
            path=os.fsencode(path),
            include=os.fsencode(include),
            max_matches=max_matches,
        )
        return await transfer.search(self._link, request)

    @checked
    async def watch_dir(self, path: PathLike = ".", *, recursive: bool = False) -> AsyncFileWatch:
        """Watch a directory of /workspace: changes after this call are events, until the watch is stopped.

        recursive  watch its subdirectories too, also those that are created later.
        """
        watch = AsyncFileWatch(self._link, os.fsencode(path), recursive=recursive)
        await watch.begin()
        return watch

    async def _open_read(self, path: PathLike, offset: int, length: int | None) -> AsyncIterator[bytes]:
        if offset < 0 or (length is not None and length <= 0):
            raise InvalidArgument(f"cannot read {length} bytes at {offset}: an offset is 0 or more, a length above 0")
        request = api.filesystem.ReadRequest(path=os.fsencode(path), offset=offset, length=length or 0)

        async def attempt(connection: Connection) -> AsyncIterator[bytes]:
            call = connection.filesystem.Read(request, metadata=connection.metadata())
            # The first message comes before any data: errors show here, not in the middle of a loop.
            first = await receive_within(self._link.rpc_timeout, call)
            if first is None or first.WhichOneof("part") != "info":
                raise ProtocolError(
                    f"cannot read {os.fsdecode(path)!r}: the executor did not begin with its description"
                )
            return _data(call, self._link.rpc_timeout)

        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            return await self._link.run(attempt, resend=True)


class _Counting:
    """Reports the progress of copying one file."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self.bytes = 0

    async def count(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            self.bytes += len(chunk)
            yield chunk
            await self._tell(0)

    async def end(self) -> None:
        await self._tell(1)

    async def _tell(self, files: int) -> None:
        await transfer.tell(self._on_progress, Progress(files, self.bytes))


def _check_matches(count: int) -> None:
    if not 1 <= count <= MAX_MATCHES:
        raise InvalidArgument(f"cannot look for {count} matches: 1 to {MAX_MATCHES} are found")


async def _data(
    call: api.aio.UnaryStreamCall[api.filesystem.ReadRequest, api.filesystem.ReadResponse], patience: float
) -> AsyncIterator[bytes]:
    try:
        while True:
            part = await receive_within(patience, call)
            if part is None:
                return
            yield part.data
    except api.aio.AioRpcError as error:
        raise to_error(error, "read the file") from error
    finally:
        call.cancel()


async def _join(chunks: AsyncIterator[bytes], path: PathLike, limit: int) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > limit:
            raise LimitReached(
                f"cannot read {os.fsdecode(path)!r}: it has more than {limit} bytes; use format='stream' or download()"
            )
    return bytes(data)


def _decode(data: bytes, path: PathLike) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        name = os.fsdecode(path)
        raise FileError(
            f"cannot read {name!r} as text: no UTF-8 at byte {error.start}; use format='bytes'",
            reason="NotText",
            subject=name,
        ) from None


async def _send(
    call: api.aio.StreamUnaryCall[api.filesystem.WriteRequest, api.filesystem.WriteResponse],
    chunks: AsyncIterator[bytes],
    patience: float,
) -> None:
    """Send all data and then the end, which stores the file; send no end if the server rejected the upload."""
    size = 0
    async with server_rejected_upload(call) as rejected:
        async for chunk in chunks:
            size += len(chunk)
            await within(patience, call.write(api.filesystem.WriteRequest(data=chunk)))
            if rejected():
                return
        await call.write(api.filesystem.WriteRequest(end=api.filesystem.WriteEnd(size=size)))
