"""The folder of the store and its files, by descriptors: a process that can write beside it cannot redirect them."""

import contextlib
import errno
import os
from pathlib import Path

WORDS = {errno.ENOSPC: "DiskFull", errno.EDQUOT: "DiskFull", errno.EROFS: "ReadOnly"}
NO_STORE = "NoStore"


class StoreError(Exception):
    """The execution could not be stored; `reason` is one word."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot store the execution: {reason}")
        self.reason = reason


def store_error(error: OSError) -> StoreError:
    return StoreError(WORDS.get(error.errno or 0, "DiskFailed"))


class Folder:
    """The folder of the store, by a descriptor."""

    def __init__(self, path: str) -> None:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        # Others may be able to look into the volume, but not into this folder.
        os.fchmod(self._fd, 0o700)

    def names(self) -> list[tuple[str, tuple[int, ...]]]:
        """(prefix, numbers) of the store's files, in order of their numbers; other files are left out."""
        found = []
        for name in self.listed():
            prefix, *numbers = name.split("-")
            if prefix in {"ids", "log", "big"} and numbers and all(part.isdecimal() for part in numbers):
                found.append((prefix, tuple(map(int, numbers))))
        return sorted(found, key=lambda each: each[1])

    def listed(self) -> list[str]:
        """All names in the folder."""
        return os.listdir(self._fd)  # noqa: PTH208 - by the descriptor

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)

    def read(self, name: str) -> bytes:
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._fd).st_size

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def close(self) -> None:
        os.close(self._fd)


class File:
    """A file that is only appended to. The next record overwrites one that was cut short."""

    def __init__(self, folder: Folder, name: str, end: int = 0) -> None:
        self.name = name
        self.end = end
        self._fd = folder.open(name, os.O_RDWR | os.O_CREAT)

    def append(self, data: bytes) -> int:
        """Appends and returns the offset. Raises OSError; the file then ends where it did before."""
        offset, view = self.end, memoryview(data)
        written = 0
        while written < len(data):
            count = os.pwrite(self._fd, view[written:], offset + written)
            if not count:
                raise OSError(errno.ENOSPC, "nothing was written")
            written += count
        self.end = offset + len(data)
        return offset

    def reserve(self, size: int) -> None:
        """Takes room in advance, where the file system can."""
        with contextlib.suppress(OSError):
            os.posix_fallocate(self._fd, self.end, size)

    def close(self) -> None:
        os.close(self._fd)
