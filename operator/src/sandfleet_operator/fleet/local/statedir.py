"""Where a fleet on one machine keeps its files: a directory for each owner, removed with it or by the next owner.

A directory belongs to the process that holds the lock on its file `lock`. The kernel frees the lock when that process
ends, however it ends.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

PREFIX = "f-"
LOCK = "lock"
FLEET_SOCKET = "fleet.sock"
EGRESS_SOCKET = "egress.sock"
KEYS = "keys.json"
# sockaddr_un takes 108 bytes with the NUL at the end.
MAX_SOCKET_PATH = 107
# The text of the lock file, by which a sweep tells a fleet's directory from any other.
MARK = b"sandfleet\n"
# An empty directory is an owner's that has just begun, or was killed right there.
EMPTY_AGE = 60.0


class StateDirError(Exception):
    """Its message is "cannot X: why"."""


def base_dir(environ: Mapping[str, str], user_id: int) -> Path:
    """Below which all fleets of this user have their directories."""
    if environ.get("SANDFLEET_STATE"):
        return Path(environ["SANDFLEET_STATE"]).absolute()
    if environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["XDG_RUNTIME_DIR"]).absolute() / "sandfleet"
    if user_id == 0:
        return Path("/run/sandfleet")
    return Path(environ.get("HOME") or "~").expanduser().absolute() / ".local" / "state" / "sandfleet"


def runtimes_dir(environ: Mapping[str, str]) -> Path:
    """Where sandboxes with another root find their Python: it outlives all fleets of this user."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".cache"
    return Path(cache).absolute() / "sandfleet" / "runtimes"


def new_owner_dir(base: Path) -> Path:
    """An unused name below `base`."""
    return base / f"{PREFIX}{secrets.token_hex(3)}"


class OwnerDir:
    """A fleet's directory: made, locked, private to the user. Closing removes it with all that is in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _make_private(path)
        self._lock = _lock(path)

    @property
    def fleet_socket(self) -> Path:
        return self.path / FLEET_SOCKET

    @property
    def egress_socket(self) -> Path:
        """Where executors connect for connections that lead out of their sessions."""
        return self.path / EGRESS_SOCKET

    @property
    def keys_file(self) -> Path:
        return self.path / KEYS

    def socket_dir(self, sandbox_uid: str) -> Path:
        return self.path / "s" / sandbox_uid

    def socket(self, sandbox_uid: str) -> Path:
        """Raises StateDirError where the system could not bind a path of that length."""
        path = self.socket_dir(sandbox_uid) / "x.sock"
        size = len(os.fsencode(path))
        if size > MAX_SOCKET_PATH:
            why = f"a socket in it would have a path of {size} bytes, {MAX_SOCKET_PATH} are possible"
            raise StateDirError(f"cannot use the state directory {self.path}: {why}")
        return path

    def workspace(self, workspace_id: str) -> Path:
        return self.path / "workspaces" / workspace_id

    def state(self, workspace_id: str) -> Path:
        """What the executors of a workspace keep beside it, out of user code's sight."""
        return self.path / "states" / workspace_id

    def close(self) -> None:
        remove_tree(self.path)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sweep(base: Path, *, now: float) -> list[Path]:
    """Removes what dead owners left below `base`, and says what. `now` is the wall clock's."""
    swept = []
    for path in sorted(base.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            if _is_own_directory(path) and _sweep_one(path, now):
                swept.append(path)
    return swept


def _sweep_one(path: Path, now: float) -> bool:
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if now - path.stat().st_mtime < EMPTY_AGE:
            return False
        path.rmdir()
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(lock, len(MARK)) != MARK:
            return False
    except BlockingIOError:
        return False
    else:
        remove_tree(path)
        return True
    finally:
        os.close(lock)


def _is_own_directory(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _make_private(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        if not _is_own_directory(path):
            raise StateDirError(f"cannot use the state directory {path}: it is not a directory of this user")
        path.chmod(0o700)
    except OSError as error:
        raise StateDirError(f"cannot make the state directory {path}: {error.strerror}") from error


def _lock(path: Path) -> int:
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateDirError(f"cannot lock the state directory {path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A sweeper may have removed the directory between our making it and our lock.
        if os.fstat(lock).st_ino == (path / LOCK).stat().st_ino:
            os.pwrite(lock, MARK, 0)
            return lock
        why = "it was swept away just now"
    except BlockingIOError:
        why = "another fleet has it"
    except FileNotFoundError:
        why = "it was swept away just now"
    os.close(lock)
    raise StateDirError(f"cannot lock the state directory {path}: {why}")


def remove_tree(path: Path) -> None:
    """Removes a directory whatever user code left in it: no permissions, more levels than Python has stack frames."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOTDIR:
            raise
        _remove_by_force(path)


def _remove_by_force(path: Path) -> None:
    for command in (["chmod", "-R", "--", "u+rwX", str(path)], ["rm", "-rf", "--one-file-system", "--", str(path)]):
        subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    if path.exists():
        raise StateDirError(f"cannot remove {path}: something in it cannot be removed")
