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


@contextlib.contextmanager
def translated(verb: str, path: bytes) -> Iterator[None]:
    """Makes an ApiError of what work on a path may raise."""
    try:
        yield
    except InvalidPattern as error:
        raise invalid("InvalidPattern", f"cannot {verb}: {error}") from error
    except SearchUnavailable as error:
        raise failure((Code.FAILED_PRECONDITION, "SearchUnavailable", False), verb, path, str(error)) from error
    except TooManyWatches as error:
        raise failure(
            (Code.RESOURCE_EXHAUSTED, "TooManyWatches", True), verb, path, "too many watches are there"
        ) from error
    except WatcherNotReady as error:
        raise failure(
            (Code.UNAVAILABLE, "WatcherNotReady", True), verb, path, "the workspace cannot be watched now"
        ) from error
    except InvalidPath as error:
        raise failure(_INVALID, verb, path, str(error)) from error
    except RootUnavailable as error:
        raise failure((Code.UNAVAILABLE, "RootUnavailable", True), verb, path, str(error)) from error
    except NotARegularFile as error:
        raise failure(_IRREGULAR, verb, path, "it is a pipe, a socket or a device") from error
    except TooManyEntries as error:
        raise failure(
            (Code.RESOURCE_EXHAUSTED, "TooManyEntries", False), verb, path, "the tree is too large"
        ) from error
    except OSError as error:
        if error.errno not in _STATUSES:
            raise
        raise failure(_STATUSES[error.errno], verb, path, (error.strerror or str(error)).lower()) from error


def failure(kind: tuple[Code, str, bool], verb: str, path: bytes, why: str) -> ApiError:
    status, reason, retryable = kind
    return ApiError(status, reason, f"cannot {verb} {show(path)}: {why}", retryable=retryable, subject=path)


def invalid(reason: str, message: str) -> ApiError:
    return ApiError(Code.INVALID_ARGUMENT, reason, message)
