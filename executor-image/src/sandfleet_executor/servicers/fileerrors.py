"""From what work on files may raise to statuses."""

import contextlib
import errno
from collections.abc import Iterator

import grpc

from sandfleet_executor.core.globs import InvalidPattern
from sandfleet_executor.core.paths import InvalidPath
from sandfleet_executor.effects.finding import SearchUnavailable
from sandfleet_executor.effects.trees import NotARegularFile, TooManyEntries
from sandfleet_executor.effects.walk import RootUnavailable
from sandfleet_executor.effects.watches import TooManyWatches, WatcherNotReady
from sandfleet_executor.servicers.errors import ApiError, show

Code = grpc.StatusCode

_PERMISSION = (Code.PERMISSION_DENIED, "FilePermission", False)
_NO_SPACE = (Code.RESOURCE_EXHAUSTED, "NoSpace", True)
_BUSY = (Code.UNAVAILABLE, "ExecutorBusy", True)
_INVALID = (Code.INVALID_ARGUMENT, "InvalidPath", False)
_IRREGULAR = (Code.FAILED_PRECONDITION, "NotARegularFile", False)
_STATUSES = {
    errno.ENOENT: (Code.NOT_FOUND, "FileNotFound", False),
    errno.EEXIST: (Code.ALREADY_EXISTS, "FileExists", False),
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: _PERMISSION,
    errno.EISDIR: (Code.FAILED_PRECONDITION, "IsADirectory", False),
    errno.ENOTDIR: (Code.FAILED_PRECONDITION, "NotADirectory", False),
    errno.ENOTEMPTY: (Code.FAILED_PRECONDITION, "DirectoryNotEmpty", False),
    errno.ELOOP: (Code.FAILED_PRECONDITION, "TooManyLinks", False),
    # Opening a socket, or a pipe that nobody reads.
    errno.ENXIO: _IRREGULAR,
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
    errno.EMFILE: _BUSY,
    errno.ENFILE: _BUSY,
    errno.ENOMEM: _BUSY,
    errno.ENAMETOOLONG: _INVALID,
    # A directory moved into itself.
    errno.EINVAL: _INVALID,
    # A mount point, or what changed while it was moved.
    errno.EBUSY: (Code.FAILED_PRECONDITION, "FileBusy", False),
}
# (status, why); its own words where that is empty.
_KINDS: dict[type[Exception], tuple[tuple[Code, str, bool], str]] = {
    SearchUnavailable: ((Code.FAILED_PRECONDITION, "SearchUnavailable", False), ""),
    TooManyWatches: ((Code.RESOURCE_EXHAUSTED, "TooManyWatches", True), "too many watches are there"),
    WatcherNotReady: ((Code.UNAVAILABLE, "WatcherNotReady", True), "the workspace cannot be watched now"),
    InvalidPath: (_INVALID, ""),
    RootUnavailable: ((Code.UNAVAILABLE, "RootUnavailable", True), ""),
    NotARegularFile: (_IRREGULAR, "it is a pipe, a socket or a device"),
    TooManyEntries: ((Code.RESOURCE_EXHAUSTED, "TooManyEntries", False), "the tree is too large"),
}


@contextlib.contextmanager
def translated(verb: str, path: bytes) -> Iterator[None]:
    """Makes an ApiError of what work on a path may raise."""
    try:
        yield
    except InvalidPattern as error:
        raise invalid("InvalidPattern", f"cannot {verb}: {error}") from error
    except tuple(_KINDS) as error:
        kind, why = next(each for known, each in _KINDS.items() if isinstance(error, known))
        raise failure(kind, verb, path, why or str(error)) from error
    except OSError as error:
        if error.errno not in _STATUSES:
            raise
        raise failure(_STATUSES[error.errno], verb, path, (error.strerror or str(error)).lower()) from error


def failure(kind: tuple[Code, str, bool], verb: str, path: bytes, why: str) -> ApiError:
    status, reason, retryable = kind
    return ApiError(status, reason, f"cannot {verb} {show(path)}: {why}", retryable=retryable, subject=path)


def invalid(reason: str, message: str) -> ApiError:
    return ApiError(Code.INVALID_ARGUMENT, reason, message)
