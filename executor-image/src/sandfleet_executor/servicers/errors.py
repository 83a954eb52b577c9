"""How an RPC fails: a status code, and an ErrorDetail in the trailing metadata for programs.

A servicer method raises `ApiError`, or what it calls an `RpcError`; `guarded` turns them into the end of the RPC. Any
other exception is a fault of the executor: INTERNAL with the reason InternalError, and a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NoReturn

import grpc
import grpc.aio
from sandfleet_api.executor.v1 import common_pb2

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.files.globs import InvalidPattern
from sandfleet_executor.core.files.paths import InvalidPath
from sandfleet_executor.core.rpcs import Rpc
from sandfleet_executor.effects.files.search import SearchUnavailable
from sandfleet_executor.effects.files.trees import NotARegularFile, TooManyEntries
from sandfleet_executor.effects.files.walk import RootUnavailable
from sandfleet_executor.effects.files.watch import TooManyWatches, WatcherNotReady
from sandfleet_executor.servicers.handlers import Behaviour, Handler, behaving, behaviour_of, is_upload

Code = grpc.StatusCode

ERROR_DETAIL_KEY = "sandfleet-error-bin"
UNWANTED_KEY = "sandfleet-unwanted"

# gRPC refuses metadata above 8 KiB, and a message is sent twice: percent-encoded (three bytes for one) and in the
# detail.
MAX_MESSAGE_BYTES = 600
MAX_SUBJECT_BYTES = 2048
DRAIN_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ApiError(Exception):
    """An RPC's failure as its proto comment describes it."""

    def __init__(
        self, status: grpc.StatusCode, reason: str, message: str, *, retryable: bool = False, subject: bytes = b""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = _cut_text(message)
        self.retryable = retryable
        self.subject = subject[:MAX_SUBJECT_BYTES]

    def detail(self) -> common_pb2.ErrorDetail:
        return common_pb2.ErrorDetail(
            reason=self.reason, message=self.message, retryable=self.retryable, subject=self.subject
        )


def _cut_text(message: str) -> str:
    encoded = message.encode("utf-8", "backslashreplace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"


def show(name: bytes | str) -> str:
    """A path or an id as one short line of ASCII, to be put into a message."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    shown = text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= 200 else f"{shown[:120]}…{shown[-70:]}"


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ApiError) -> NoReturn:
    """Ends the RPC with the error. Always raises."""
    metadata = ((ERROR_DETAIL_KEY, error.detail().SerializeToString()),)
    await context.abort(error.status, error.message, metadata)


async def unwanted(context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Tells a client that is still uploading that there is no use in the rest; it may end its side then, and is
    answered.
    """
    # The client was told before, or has gone. gRPC has no common class for that.
    with contextlib.suppress(Exception):
        await context.send_initial_metadata(((UNWANTED_KEY, "1"),))


async def drain(requests: AsyncIterator[Any], most: int | None = None) -> None:
    """Reads the rest of an upload that is refused, for a second at most; of a conversation the `most` messages of its
    beginning.

    A client of grpc.aio that is still sending when the status comes takes the failure of its send for the status
    ("Internal error from Core", one time in ten), and never sees why it was refused.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            number = 0
            async for _ in requests:
                number += 1
                if number == most:
                    return


def guarded(handler: Handler, rpc: Rpc) -> Handler:
    """Lets the methods of a handler raise ApiError."""
    behaviour = behaviour_of(handler)
    guard = _guard_generator if inspect.isasyncgenfunction(behaviour) else _guard_coroutine
    if is_upload(handler):
        behaviour = _drain_after(behaviour)
    return behaving(handler, guard(behaviour, rpc))


def _drain_after(behaviour: Behaviour) -> Callable[..., Awaitable[Any]]:
    async def drained(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(requests, context)
        except Exception:  # Whatever it was is raised again.
            await unwanted(context)
            await drain(requests)
            raise

    return drained


def _guard_coroutine(behaviour: Behaviour, rpc: Rpc) -> Callable[..., Awaitable[Any]]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - the edge of the API: every failure has to become a typed status
            await _abort_with(context, error, rpc, request)

    return guarded


def _guard_generator(behaviour: Behaviour, rpc: Rpc) -> Callable[..., AsyncIterator[Any]]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        # A client that goes away must not leave the method's `finally` to the garbage collector.
        async with contextlib.aclosing(behaviour(request, context)) as responses:
            try:
                async for response in responses:
                    yield response
            except Exception as error:  # noqa: BLE001 - the edge of the API: every failure has to become a typed status
                await _abort_with(context, error, rpc, request)

    return guarded


async def _abort_with(
    context: grpc.aio.ServicerContext[Any, Any], error: Exception, rpc: Rpc, request: Any
) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, RpcError):
        error = typed(error, getattr(request, rpc.subject) if rpc.subject else "")
    if isinstance(error, ApiError):
        await abort(context, error)
    _log.error("cannot finish %s: the executor has a fault", rpc.name, exc_info=error)
    message = f"cannot finish {rpc.name.rpartition('/')[2]}: the executor has a fault ({type(error).__name__})"
    await abort(context, ApiError(grpc.StatusCode.INTERNAL, "InternalError", message))


@contextlib.contextmanager
def about(subject: str) -> Iterator[None]:
    """Names what a failure is about, where the table of RPCs has no field of the request for it."""
    try:
        yield
    except RpcError as error:
        raise typed(error, subject) from error


def typed(error: RpcError, subject: str = "", message: str = "") -> ApiError:
    """The status of an error. `message` in place of its own."""
    status = grpc.StatusCode[error.code]
    told = message or str(error)
    return ApiError(status, error.reason, told, retryable=error.retryable, subject=subject.encode())


# Failures of work on files

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
    # Opening a socket, or a pipe without a reader.
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
