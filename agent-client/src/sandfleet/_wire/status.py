"""Failed RPCs as the errors of the client."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from sandfleet import errors
from sandfleet._wire import api
from sandfleet._wire.convert.common import seconds_of
from sandfleet._wire.lease import LEASE_EXPIRED, lease_was_over

if TYPE_CHECKING:
    from sandfleet.values.fleet import Queued

# Characters of a server's message that are shown to people.
_MESSAGE_LIMIT = 4096
_DETAIL = "sandfleet-error-bin"
_STANDARD_DETAIL = "grpc-status-details-bin"
# No server is believed to need longer, in seconds.
_LONGEST_PAUSE = 86_400.0

_BY_REASON: dict[str, tuple[type[errors.FileError], int]] = {
    "FileNotFound": (errors.FileNotFound, errno.ENOENT),
    "FileExists": (errors.FileExists, errno.EEXIST),
    "IsADirectory": (errors.IsADirectory, errno.EISDIR),
    "NotADirectory": (errors.NotADirectory, errno.ENOTDIR),
    "FilePermission": (errors.FilePermission, errno.EACCES),
    "InvalidPath": (errors.InvalidPath, errno.EINVAL),
    "DirectoryNotEmpty": (errors.DirectoryNotEmpty, errno.ENOTEMPTY),
    "NotARegularFile": (errors.NotARegularFile, errno.EINVAL),
    "TooManyLinks": (errors.TooManyLinks, errno.ELOOP),
    "NoSpace": (errors.NoSpace, errno.ENOSPC),
}
_BY_CODE: dict[str, type[errors.SandboxError]] = {
    "UNAVAILABLE": errors.UnavailableError,
    "NOT_FOUND": errors.NotFoundError,
    "ALREADY_EXISTS": errors.AlreadyExistsError,
    "UNAUTHENTICATED": errors.AuthenticationError,
    "PERMISSION_DENIED": errors.AccessDenied,
    "INVALID_ARGUMENT": errors.InvalidArgument,
    "OUT_OF_RANGE": errors.InvalidArgument,
    "FAILED_PRECONDITION": errors.PreconditionFailed,
    "RESOURCE_EXHAUSTED": errors.LimitReached,
    "DEADLINE_EXCEEDED": errors.RpcTimeout,
}
# Of a session without an executor: the fleet's word, the executor's, and those of its CodeSandbox.
_SUSPENDED = {"SandboxSuspended", "Suspended", "Suspending"}
_PREEMPTED = "SandboxPreempted"
# What a call may also name and not find.
_OTHERS_MISSING = {"ClaimNotFound", "PoolNotFound", "TemplateNotFound", "ReviewNotFound", "SnapshotNotFound"}
_CLAIM_CODES = {"NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL"}


def detail(error: api.aio.AioRpcError) -> api.common.ErrorDetail | None:
    """Return the server's own detail, or None if the transport failed or the detail is malformed."""
    # The stubs do not know that metadata are pairs.
    for key, value in cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ()):
        if key == _DETAIL and isinstance(value, bytes):
            try:
                return api.common.ErrorDetail.FromString(value)
            except api.message.DecodeError:
                return None
    return None


def code_of(error: errors.SandfleetError) -> str:
    """Return the code that a server has for an error which no call has raised."""
    if isinstance(error, errors.SandboxEnded):
        return "NOT_FOUND"
    return next((code for code, kind in _BY_CODE.items() if isinstance(error, kind)), "UNKNOWN")


def told_pause(error: api.aio.AioRpcError) -> float | None:
    """Return the seconds after which the server allows another attempt; None if it has not said any.

    It stands in our own detail, or as google.rpc.RetryInfo in the standard one, as proxies send it too.
    """
    said = detail(error)
    if said is not None and said.HasField("retry_after"):
        return _seconds(said.retry_after)
    for key, value in cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ()):
        if key == _STANDARD_DETAIL and isinstance(value, bytes):
            with suppress(api.message.DecodeError):
                return _retry_delay(value)
    return None


def _retry_delay(status: bytes) -> float | None:
    """Read `retry_delay` of the RetryInfo in a google.rpc.Status."""
    for one in api.common.RpcStatus.FromString(status).details:
        if one.type_url.endswith("/google.rpc.RetryInfo"):
            return _seconds(api.common.RetryInfo.FromString(one.value).retry_delay)
    return None


def _seconds(value: api.duration.Duration) -> float:
    return min(max(0.0, seconds_of(value)), _LONGEST_PAUSE)


def never_sent(error: api.aio.AioRpcError) -> bool:
    """Return whether the request certainly did not run: there was no connection, or the server refused it."""
    if error.code().name != "UNAVAILABLE":
        return False
    return detail(error) is not None or (error.details() or "").startswith("failed to connect")


def may_resend(error: api.aio.AioRpcError, *, resend: bool, wakes: bool) -> bool:
    """Return whether a call may be made again: it is a `resend`, or certainly did not run.

    `wakes`: also if the session was falling asleep, from which the next call wakes it.
    """
    if error.code().name == "UNAVAILABLE":
        return resend or never_sent(error)
    said = detail(error)
    return wakes and said is not None and said.reason in _SUSPENDED


def to_error(error: api.aio.AioRpcError, doing: str = "call the executor") -> errors.SandfleetError:
    """Build the typed error of a failed RPC; `doing` completes "cannot …" if the server sent no message."""
    built = _built(error, doing)
    built.retry_after = told_pause(error)
    return built


def _built(error: api.aio.AioRpcError, doing: str) -> errors.SandfleetError:
    code = error.code().name
    said = detail(error)
    reason = said.reason[:100] if said else ""
    message = said.message[:_MESSAGE_LIMIT] if said and said.message else ""
    message = message or f"cannot {doing}: {(error.details() or code)[:_MESSAGE_LIMIT]}"
    subject = os.fsdecode(said.subject[:_MESSAGE_LIMIT]) if said else ""
    retryable = said.retryable if said else code == "UNAVAILABLE"
    if reason in _BY_REASON:
        kind, number = _BY_REASON[reason]
        failed = kind(message, reason=reason, retryable=retryable, subject=subject)
        if isinstance(failed, OSError):
            failed.errno, failed.filename = number, subject
        return failed
    found = _BY_CODE.get(code, errors.SandboxError)
    if found is errors.PreconditionFailed and reason in _SUSPENDED:
        found = errors.SandboxSuspended
    if found is errors.PreconditionFailed and reason == _PREEMPTED:
        found = errors.SandboxPreempted
    return found(message, reason=reason or _camel(code), retryable=retryable, subject=subject)


def to_claim_error(error: api.aio.AioRpcError, queued: Queued | None = None) -> errors.SandfleetError:
    """Build the error of a failed claim; `queued` is what it waited for at last."""
    plain = to_error(error, "claim a sandbox")
    if error.code().name not in _CLAIM_CODES or isinstance(plain, errors.SandboxSuspended):
        return plain
    said = plain.message
    if queued is not None and queued.message and queued.message not in said:
        said = f"{said}; it waited: {queued.message}"
    failed = errors.ClaimError(said, reason=plain.reason, retryable=plain.retryable, subject=plain.subject)
    failed.retry_after, failed.queued = plain.retry_after, queued
    return failed


def to_resume_error(error: api.aio.AioRpcError, queued: Queued | None = None) -> errors.SandfleetError:
    """Build the error of a session that could not be resumed: it has ended, or there is no place for it."""
    return to_fleet_error(error) if error.code().name == "NOT_FOUND" else to_claim_error(error, queued)


def to_fleet_error(error: api.aio.AioRpcError) -> errors.SandfleetError:
    """Build the error of another call to the fleet, where NOT_FOUND mostly means that the sandbox has ended."""
    plain = to_error(error, "call the fleet")
    if error.code().name != "NOT_FOUND" or plain.reason in _OTHERS_MISSING:
        return plain
    if LEASE_EXPIRED in plain.message:
        message = f"{plain.message}. {lease_was_over(plain.subject)}"
        return errors.SandboxEnded(message, reason=LEASE_EXPIRED, subject=plain.subject)
    return errors.SandboxEnded(plain.message, reason=plain.reason, subject=plain.subject)


def _camel(code: str) -> str:
    return "".join(word.capitalize() for word in code.split("_"))
