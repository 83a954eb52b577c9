"""Files without `await`: see `sandfleet.sync`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Literal, cast, overload

from sandfleet._background import Relay, iterate, mirrors, run
from sandfleet.files import DEFAULT_DOWNLOAD_LIMIT, DEFAULT_READ_LIMIT, AsyncFiles, Data, Format, PathLike

if TYPE_CHECKING:
    from sandfleet.file_values import FileEvent, Found, Match, OnProgress, Transfer
    from sandfleet.file_watch import AsyncFileWatch
    from sandfleet.values import FileInfo


class FileWatch:
    """What changes below a directory, from the moment that `watch_dir` has returned. Iterate it; `stop` it in the end.

    When the connection breaks it is made again, and an OVERFLOW event says that there may have been others.
    """

    def __init__(self, watch: AsyncFileWatch) -> None:
        self._async = watch

    @property
    def path(self) -> str:
        """The directory, absolute, its links resolved."""
        return self._async.path

    def __iter__(self) -> Iterator[FileEvent]:
        return iterate(self._async)

    def stop(self) -> None:
        """End it; whoever iterates comes to the end."""
        run(self._async.stop())


@mirrors(AsyncFiles)
class Files:
    def __init__(self, files: AsyncFiles) -> None:
        self._async = files

    @overload
    def read(
        self,
        path: PathLike,
        *,
        format: Literal["text"] = "text",
        offset: int = 0,
        length: int | None = None,
        limit: int = ...,
    ) -> str: ...
    @overload
    def read(
        self, path: PathLike, *, format: Literal["bytes"], offset: int = 0, length: int | None = None, limit: int = ...
    ) -> bytes: ...
    @overload
    def read(
        self, path: PathLike, *, format: Literal["stream"], offset: int = 0, length: int | None = None, limit: int = ...
    ) -> Iterator[bytes]: ...
    def read(
        self,
        path: PathLike,
        *,
        format: Format = "text",  # noqa: A002  the name that users of other sandboxes know
        offset: int = 0,
        length: int | None = None,
        limit: int = DEFAULT_READ_LIMIT,
    ) -> str | bytes | Iterator[bytes]:
        data = run(self._async.read(path, format=format, offset=offset, length=length, limit=limit))
        return data if isinstance(data, (str, bytes)) else iterate(cast("AsyncIterator[bytes]", data))

    def write(self, path: PathLike, data: Data, *, mode: int = 0) -> FileInfo:
        return run(self._async.write(path, data, mode=mode))

    def list(self, path: PathLike = ".", *, depth: int = 1) -> tuple[FileInfo, ...]:
        return run(self._async.list(path, depth=depth))

    def exists(self, path: PathLike) -> bool:
        return run(self._async.exists(path))

    def get_info(self, path: PathLike) -> FileInfo:
        return run(self._async.get_info(path))

    def make_dir(self, path: PathLike) -> bool:
        return run(self._async.make_dir(path))

    def rename(self, source: PathLike, target: PathLike, *, overwrite: bool = False) -> FileInfo:
        return run(self._async.rename(source, target, overwrite=overwrite))

    def remove(self, path: PathLike, *, recursive: bool = False) -> None:
        return run(self._async.remove(path, recursive=recursive))

    def upload(
        self, local: PathLike, path: PathLike, *, mode: int = 0, on_progress: OnProgress | None = None
    ) -> Transfer:
        relay = Relay()
        told = cast("OnProgress | None", relay.wrap(on_progress))
        return run(self._async.upload(local, path, mode=mode, on_progress=told), relay)

    def download(
        self,
        path: PathLike,
        local: PathLike,
        *,
        limit: int = DEFAULT_DOWNLOAD_LIMIT,
        on_progress: OnProgress | None = None,
    ) -> Transfer:
        relay = Relay()
        told = cast("OnProgress | None", relay.wrap(on_progress))
        return run(self._async.download(path, local, limit=limit, on_progress=told), relay)

    def glob(self, pattern: str | bytes, path: PathLike = ".", *, max_matches: int = 1000) -> Found[FileInfo]:
        return run(self._async.glob(pattern, path, max_matches=max_matches))

    def search(
        self,
        pattern: str | bytes,
        path: PathLike = ".",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        include: str | bytes = "**",
        max_matches: int = 1000,
    ) -> Found[Match]:
        return run(
            self._async.search(
                pattern, path, regex=regex, ignore_case=ignore_case, include=include, max_matches=max_matches
            )
        )

    def watch_dir(self, path: PathLike = ".", *, recursive: bool = False) -> FileWatch:
        return FileWatch(run(self._async.watch_dir(path, recursive=recursive)))
