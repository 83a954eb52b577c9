"""Saved states as files of the executor, hidden from user code.

The store moves their bytes and never interprets them.
"""

import contextlib
import errno
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from sandfleet_executor.core.contexts import states
from sandfleet_executor.core.contexts.states import BadState, Manifest
from sandfleet_executor.core.errors import RpcError

NAMED, AUTOMATIC, SUSPENDED = "named", "automatic", "suspended"
# Of a snapshot that is being read, and of one that is being restored.
SNAPSHOT, RESTORING = "snapshot", "restoring"
SUFFIX, UNFINISHED = ".state", ".tmp"


class StateError(RpcError):
    """A save or restore is not possible in the present state."""


class NoStateDirError(StateError, code="FAILED_PRECONDITION", reason="NoStateDirectory"):
    """The sandbox has nowhere to keep states."""


class NothingToSaveError(StateError, code="FAILED_PRECONDITION", reason="NothingToSave"):
    """The context has no interpreter, or one whose variables cannot be saved."""


class StateMissingError(StateError, code="NOT_FOUND", reason="NoState"):
    """There is no state of that name."""


class StateDamagedError(StateError, code="DATA_LOSS", reason="StateDamaged"):
    """The saved state cannot be read."""


class StateReplacedError(StateError, code="FAILED_PRECONDITION", reason="ReviewChanged", retryable=True):
    """It is another state than was approved."""


class TooManyStatesError(StateError, code="RESOURCE_EXHAUSTED", reason="TooManyStates", retryable=True):
    """Their number or their size is at its limit."""


class NoSpaceError(StateError, code="RESOURCE_EXHAUSTED", reason="NoSpace", retryable=True):
    """The disk is full; the older state is whole."""


class BrokenOffError(StateError, code="ABORTED", reason="BrokenOff", retryable=True):
    """The interpreter ended before the save or restore was done."""


class StateStore:
    """All states of one sandbox. Its methods block."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder / "variables" if folder else None
        self._settling = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether there is anywhere to keep states."""
        return self._folder is not None

    def open(self) -> None:
        """Removes what an executor before left unfinished."""
        if self._folder is None:
            return
        # On a full disk the sandbox starts nevertheless, and the next save reports the problem.
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*/*{UNFINISHED}"):
                path.unlink()
            self.delete_all(SNAPSHOT)

    def begin(self, kind: str, name: str, most: int) -> "Draft":
        """A new state of at most so many bytes, less where there is less room. Raises StateError."""
        path = self._path(kind, name)
        room = self._room(path)
        if room <= 0:
            raise TooManyStatesError(
                f"cannot save state {name}: all take {states.MAX_ALL_BYTES} bytes, which is the most"
            )
        with no_space(name):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return Draft(path, min(most, room), self._settle)

    def _room(self, path: Path) -> int:
        """Bytes that the state of this path may have. Raises TooManyStatesError."""
        others = [each for each in self._files() if each != path]
        named = sum(each.parent.name == NAMED for each in others)
        if path.parent.name == NAMED and named >= states.MAX_STATES:
            name = path.name.removesuffix(SUFFIX)
            raise TooManyStatesError(f"cannot save state {name}: {named} are there, which is the most; delete one")
        return states.MAX_ALL_BYTES - sum(size_of(each) for each in others)

    def _settle(self, unfinished: Path, path: Path, size: int) -> None:
        """Gives the file its name, unless others that were saved meanwhile have left no room.

        Raises TooManyStatesError.
        """
        with self._settling:
            if size > self._room(path) + states.MAX_MANIFEST:
                raise TooManyStatesError(f"cannot save state {path.name.removesuffix(SUFFIX)}: others took the room")
            unfinished.rename(path)

    def read(self, kind: str, name: str) -> tuple[Manifest, int]:
        """What stands about it, and a descriptor at the beginning of its bytes. Raises StateError."""
        try:
            fd = os.open(self._path(kind, name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StateMissingError(f"cannot find state {name}: there is none of that name") from None
        try:
            return read_manifest(fd), fd
        except BadState as error:
            os.close(fd)
            raise StateDamagedError(f"{error} ({name})") from error

    def file(self, kind: str, name: str) -> int:
        """A descriptor of all bytes of a state. Raises OSError."""
        return os.open(self._path(kind, name), os.O_RDONLY | os.O_CLOEXEC)

    def move_all(self, kind: str, to: str) -> None:
        """Makes the states of one kind those of another, in the place of what that has. May be repeated."""
        if self._folder is None or not (self._folder / kind).is_dir():
            return
        (self._folder / to).mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._folder.glob(f"{kind}/*{SUFFIX}"):
            path.rename(self._folder / to / path.name)

    def list(self) -> Iterator[tuple[str, Manifest]]:
        """Name and manifest of those under a name, the damaged ones left out."""
        for path in sorted(self._files()):
            if path.parent.name == NAMED:
                name = path.name.removesuffix(SUFFIX)
                with contextlib.suppress(StateError):
                    manifest, fd = self.read(NAMED, name)
                    os.close(fd)
                    yield name, manifest

    def delete(self, kind: str, name: str) -> None:
        """A missing state is no error."""
        if self._folder is not None:
            self._path(kind, name).unlink(missing_ok=True)

    def delete_all(self, kind: str) -> None:
        """Every state of the kind."""
        for path in self._folder.glob(f"{kind}/*{SUFFIX}") if self._folder else ():
            path.unlink(missing_ok=True)

    def _files(self) -> Iterator[Path]:
        if self._folder is None:
            raise NoStateDirError("cannot keep states: this sandbox has no directory for them")
        return self._folder.glob(f"*/*{SUFFIX}")

    def _path(self, kind: str, name: str) -> Path:
        if self._folder is None:
            raise NoStateDirError("cannot keep states: this sandbox has no directory for them")
        return self._folder / kind / f"{name}{SUFFIX}"


class Draft:
    """A state that is being written. Ends with `commit` or `discard`."""

    def __init__(self, path: Path, room: int, settle: Callable[[Path, Path, int], None]) -> None:
        self._path = path
        self._settle = settle
        # A write may still run after its waiter was cancelled: the descriptor is not closed under it.
        self._using = threading.Lock()
        self._unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
        self._fd = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Bytes that it may have, without its manifest.
        self.room = room
        self.size = 0

    def write(self, data: bytes | bytearray) -> None:
        """Raises NoSpaceError."""
        with self._using, no_space(self._path.name), memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.write(self._fd, view[done:])
            self.size += done

    def truncate(self, size: int) -> None:
        with self._using, no_space(self._path.name):
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        self.size = size

    def commit(self, manifest: Manifest) -> None:
        """From here on it is the state of its name, also after a crash. Raises NoSpaceError."""
        self.write(manifest.encode())
        self._settle_down()

    def commit_whole(self) -> None:
        """The same, of a state that came with its manifest. Raises NoSpaceError, and StateDamagedError."""
        fd = os.open(self._unfinished, os.O_RDONLY | os.O_CLOEXEC)
        try:
            read_manifest(fd)
        except BadState as error:
            raise StateDamagedError(f"{error} ({self._path.name})") from error
        finally:
            os.close(fd)
        self._settle_down()

    def _settle_down(self) -> None:
        with self._using, no_space(self._path.name):
            os.fsync(self._fd)
            self._settle(self._unfinished, self._path, self.size)
            self._close()
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def discard(self) -> None:
        """Nothing of it stays; after `commit` it does nothing."""
        with self._using:
            if self._fd >= 0:
                self._unfinished.unlink(missing_ok=True)
                self._close()

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1


def read_manifest(fd: int) -> Manifest:
    """Raises BadState."""
    size = os.fstat(fd).st_size
    last = os.pread(fd, states.TAIL_BYTES, max(0, size - states.TAIL_BYTES))
    length, crc = states.tail(last, size)
    return states.check_manifest(os.pread(fd, length, size - states.TAIL_BYTES - length), crc, size)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextlib.contextmanager
def no_space(name: str) -> Iterator[None]:
    """Turns a full disk into NoSpaceError, and other errors of the disk into StateError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NoSpaceError(f"cannot save state {name}: no space is left; the older one is whole") from error
        raise StateDamagedError(f"cannot save state {name}: {error.strerror}") from error
