"""Objects in a folder: written under a temporary name, synced, then named."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.snapshots.backends import Found

# What was being written when its process ended. A key never begins with a dot.
_TEMPORARY = ".part-"
_REASONS = {
    errno.ENOSPC: Reason.FULL,
    errno.EDQUOT: Reason.FULL,
    errno.EFBIG: Reason.FULL,
    errno.EACCES: Reason.DENIED,
    errno.EPERM: Reason.DENIED,
    errno.EROFS: Reason.DENIED,
}


class DirectoryObjects:
    def __init__(self, root: Path) -> None:
        self._root = root
        with _told(f"use the store {root}"):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, key: str, data: bytes, *, new: bool = False) -> None:
        path = self._root / key
        temporary = path.parent / f"{_TEMPORARY}{secrets.token_hex(8)}"
        with _told(f"write {key}"):
            self._make_folder(path.parent)
            try:
                _write(temporary, data)
                if new:
                    os.link(temporary, path)
                    temporary.unlink()
                else:
                    temporary.replace(path)
                _sync(path.parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with _told(f"read {key}"), (self._root / key).open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileNotFoundError(errno.ENOENT, "it is no file")
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with _told(f"remove {key}"), contextlib.suppress(FileNotFoundError):
                (self._root / key).unlink()
        for folder in {(self._root / key).parent for key in keys}:
            with _told(f"remove from {folder.name}"), contextlib.suppress(FileNotFoundError):
                _sync(folder)
                if folder != self._root:
                    _remove_empty(folder)

    def list(self, prefix: str) -> Iterator[Found]:
        """A prefix that ends with "/" names a folder."""
        folder, _, beginning = prefix.rpartition("/")
        with _told(f"list {prefix}"):
            yield from self._below(self._root / folder, beginning)

    def close(self) -> None:
        pass

    def _below(self, folder: Path, beginning: str) -> Iterator[Found]:
        try:
            with os.scandir(folder) as scanned:
                found = [entry for entry in scanned if entry.name.startswith(beginning)]
        except (FileNotFoundError, NotADirectoryError):
            return
        # As keys are compared: a folder's has its slash.
        for entry in sorted(found, key=lambda entry: entry.name + "/" * entry.is_dir(follow_symlinks=False)):
            if entry.name.startswith(_TEMPORARY):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._below(Path(entry.path), "")
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    key = str(Path(entry.path).relative_to(self._root))
                    yield Found(key, status.st_size, status.st_mtime)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync(folder.parent)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise SnapshotError(Reason.EXISTS, f"cannot {what}: it is there already") from error
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise SnapshotError(Reason.NOT_FOUND, f"cannot {what}: it is not there") from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, Reason.UNAVAILABLE)
        raise SnapshotError(reason, f"cannot {what}: {error.strerror or error}") from error
