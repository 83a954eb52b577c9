"""How an RPC fails: a status code, and an ErrorDetail in the trailing metadata for programs.

A servicer method raises `ApiError`; `guarded` turns it into the end of the RPC. Any other exception is a
fault of the executor: INTERNAL with the reason InternalError, and a line in the log.
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

from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.tables import NoTableError
from sandfleet_executor.core.errors import (
    BadRequest,
    BusyError,
    ConfigError,
    ExistsError,
    FullError,
    MismatchError,
    NotFoundError,
    PreemptingError,
    RestoringError,
    SuspendingError,
)
from sandfleet_executor.core.files.globs import InvalidPattern
from sandfleet_executor.core.files.paths import InvalidPath
from sandfleet_executor.core.packages.manifest import BadManifest
from sandfleet_executor.core.review.answers import AnswerError, AnswerReason
from sandfleet_executor.core.rpcs import Rpc
from sandfleet_executor.core.services.plan import TakenError, TooManyError
from sandfleet_executor.core.services.spec import CycleError, UnknownServiceError
from sandfleet_executor.core.snapshots.assembly import InvalidStream
from sandfleet_executor.core.snapshots.entries import InvalidEntry
from sandfleet_executor.core.snapshots.session import (
    NoSessionError,
    NotEmptyError,
    NotPreparableError,
    SessionOpenError,
    SnapshotRunningError,
)
from sandfleet_executor.core.suspension.record import InUseError, NotSavedError
from sandfleet_executor.effects.contexts import state_store
from sandfleet_executor.effects.contexts.copies import NotCopiedError
from sandfleet_executor.effects.contexts.looks import CannotLookError, ContextBusyError, NoAnswerError
from sandfleet_executor.effects.executions.execution import AheadError
from sandfleet_executor.effects.executions.inputs import InputNotAskedError
from sandfleet_executor.effects.executions.registry import ForgottenError, OtherRequestError, UnknownExecutionError
from sandfleet_executor.effects.executions.store.recorder import TooManyReadersError
from sandfleet_executor.effects.files.search import SearchUnavailable
from sandfleet_executor.effects.files.trees import NotARegularFile, TooManyEntries
from sandfleet_executor.effects.files.walk import RootUnavailable
from sandfleet_executor.effects.files.watch import TooManyWatches, WatcherNotReady
from sandfleet_executor.effects.journal.journal import AheadOfJournalError, NoJournalError
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.services.manager import UnknownNameError
from sandfleet_executor.effects.tools.broker import NotBrokeredError, ReplacedError
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
    return behaving(handler, guard(behaviour, rpc.name))


def _drain_after(behaviour: Behaviour) -> Callable[..., Awaitable[Any]]:
    async def drained(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(requests, context)
        except Exception:  # Whatever it was is raised again.
            await unwanted(context)
            await drain(requests)
            raise

    return drained


def _guard_coroutine(behaviour: Behaviour, name: str) -> Callable[..., Awaitable[Any]]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - the edge of the API: every failure has to become a typed status
            await _abort_with(context, error, name)

    return guarded


def _guard_generator(behaviour: Behaviour, name: str) -> Callable[..., AsyncIterator[Any]]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        # A client that goes away must not leave the method's `finally` to the garbage collector.
        async with contextlib.aclosing(behaviour(request, context)) as responses:
            try:
                async for response in responses:
                    yield response
            except Exception as error:  # noqa: BLE001 - the edge of the API: every failure has to become a typed status
                await _abort_with(context, error, name)

    return guarded


async def _abort_with(context: grpc.aio.ServicerContext[Any, Any], error: Exception, name: str) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, ApiError):
        await abort(context, error)
    _log.error("cannot finish %s: the executor has a fault", name, exc_info=error)
    message = f"cannot finish {name.rpartition('/')[2]}: the executor has a fault ({type(error).__name__})"
    await abort(context, ApiError(grpc.StatusCode.INTERNAL, "InternalError", message))


# From exceptions to statuses

# (exception, status, reason, retryable)
FAILURES: tuple[tuple[type[Exception], Code, str, bool], ...] = (
    (UnknownServiceError, Code.INVALID_ARGUMENT, "UnknownService", False),
    (CycleError, Code.INVALID_ARGUMENT, "ServiceCycle", False),
    (BadRequest, Code.INVALID_ARGUMENT, "InvalidArgument", False),
    (ConfigError, Code.INVALID_ARGUMENT, "InvalidLimits", False),
    (NotFoundError, Code.NOT_FOUND, "NotFound", False),
    (UnknownNameError, Code.NOT_FOUND, "ServiceNotFound", False),
    (TakenError, Code.ALREADY_EXISTS, "TemplateService", False),
    (TooManyError, Code.RESOURCE_EXHAUSTED, "TooManyServices", False),
    (ExistsError, Code.ALREADY_EXISTS, "AlreadyExists", False),
    (OtherRequestError, Code.ALREADY_EXISTS, "ExecutionMismatch", False),
    (ForgottenError, Code.ALREADY_EXISTS, "ResultForgotten", False),
    (InputNotAskedError, Code.NOT_FOUND, "InputNotAsked", False),
    (UnknownExecutionError, Code.NOT_FOUND, "ExecutionNotFound", False),
    (AheadError, Code.OUT_OF_RANGE, "AheadOfStream", False),
    (NoJournalError, Code.NOT_FOUND, "NoJournal", False),
    (AheadOfJournalError, Code.OUT_OF_RANGE, "AheadOfJournal", False),
    (TooManyReadersError, Code.RESOURCE_EXHAUSTED, "TooManyReaders", True),
    (BusyError, Code.RESOURCE_EXHAUSTED, "TooMany", True),
    (FullError, Code.RESOURCE_EXHAUSTED, "WorkspaceFull", True),
    (MismatchError, Code.FAILED_PRECONDITION, "SessionMismatch", False),
    # Nothing has begun: its client asks the fleet, and calls again when the session is there again.
    (PreemptingError, Code.UNAVAILABLE, "SandboxPreempted", True),
    (RestoringError, Code.UNAVAILABLE, "SandboxRestoring", True),
    (SnapshotRunningError, Code.FAILED_PRECONDITION, "SnapshotRunning", True),
    (NotEmptyError, Code.FAILED_PRECONDITION, "WorkspaceNotEmpty", False),
    (NoSessionError, Code.FAILED_PRECONDITION, "NoSession", True),
    (SessionOpenError, Code.FAILED_PRECONDITION, "SessionOpen", False),
    (NotPreparableError, Code.FAILED_PRECONDITION, "NotPreparable", False),
    (InvalidEntry, Code.INVALID_ARGUMENT, "InvalidEntry", False),
    (InvalidStream, Code.INVALID_ARGUMENT, "InvalidStream", False),
    (NotBrokeredError, Code.FAILED_PRECONDITION, "ContractNotBrokered", False),
    (ReplacedError, Code.ABORTED, "Replaced", False),
    (SuspendingError, Code.FAILED_PRECONDITION, "SandboxSuspended", False),
    (NotSavedError, Code.FAILED_PRECONDITION, "StateNotSaved", False),
    (state_store.NoSpaceError, Code.RESOURCE_EXHAUSTED, "NoSpace", True),
    (state_store.TooManyStatesError, Code.RESOURCE_EXHAUSTED, "TooManyStates", True),
    (state_store.StateMissingError, Code.NOT_FOUND, "NoState", False),
    (state_store.StateReplacedError, Code.FAILED_PRECONDITION, "ReviewChanged", True),
    (state_store.StateDamagedError, Code.DATA_LOSS, "StateDamaged", False),
    (state_store.BrokenOffError, Code.ABORTED, "BrokenOff", True),
    (state_store.NoStateDirError, Code.FAILED_PRECONDITION, "NoStateDirectory", False),
    (state_store.NothingToSaveError, Code.FAILED_PRECONDITION, "NothingToSave", False),
    (ContextBusyError, Code.FAILED_PRECONDITION, "ContextBusy", True),
    (CannotLookError, Code.FAILED_PRECONDITION, "LanguageCannot", False),
    (NoAnswerError, Code.ABORTED, "NoAnswer", True),
    (BadFrame, Code.ABORTED, "NoAnswer", True),
    (BadManifest, Code.FAILED_PRECONDITION, "EnvironmentUnreadable", False),
    (NamespaceError, Code.UNAVAILABLE, "SessionUnavailable", True),
)
# Why a context is not forked: (status, retryable) of the reasons that are no state of the context.
REFUSALS = {
    "ForkFailed": (Code.RESOURCE_EXHAUSTED, True),
    "CopyBroken": (Code.UNAVAILABLE, True),
}

# Why a table is not moved.
TABLES = {
    "NoTable": Code.NOT_FOUND,
    "NotATable": Code.FAILED_PRECONDITION,
    "UnsupportedColumn": Code.FAILED_PRECONDITION,
    "NotTaken": Code.FAILED_PRECONDITION,
    "OutOfMemory": Code.RESOURCE_EXHAUSTED,
    "LibraryMissing": Code.FAILED_PRECONDITION,
    "TooLarge": Code.RESOURCE_EXHAUSTED,
    "NotArrow": Code.INVALID_ARGUMENT,
}

ANSWERS = {
    AnswerReason.INVALID: Code.PERMISSION_DENIED,
    AnswerReason.NOT_FOUND: Code.NOT_FOUND,
    AnswerReason.CHANGED: Code.FAILED_PRECONDITION,
    AnswerReason.NOT_EDITABLE: Code.FAILED_PRECONDITION,
}


@contextlib.contextmanager
def typed_failures(subject: str = "") -> Iterator[None]:
    """Turns the failures that the API knows into ApiError."""
    try:
        yield
    except tuple(kind for kind, *_ in FAILURES) as error:
        status, reason, retryable = next(row[1:] for row in FAILURES if isinstance(error, row[0]))
        raise ApiError(status, reason, str(error), retryable=retryable, subject=subject.encode()) from error
    except NoTableError as error:
        raise ApiError(TABLES[error.reason], error.reason, str(error), subject=subject.encode()) from error
    except AnswerError as error:
        raise ApiError(ANSWERS[error.reason], error.reason.value, str(error)) from error
    except InUseError as error:
        raise ApiError(Code.FAILED_PRECONDITION, error.reason, str(error), retryable=True) from error
    except NotCopiedError as error:
        status, retryable = REFUSALS.get(error.why.reason, (Code.FAILED_PRECONDITION, False))
        message = f"cannot fork the context because {error}"
        raise ApiError(status, error.why.reason, message, retryable=retryable, subject=subject.encode()) from error


# The same for work on files

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
