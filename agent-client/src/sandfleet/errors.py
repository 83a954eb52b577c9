"""Every error that the client raises, under one root.

SandfleetError                  .reason .retryable .retry_after .message .subject
├── SandboxError                the platform could not do what was asked
│   ├── UnavailableError        the fleet or the executor is starting, stopping or gone
│   ├── SandboxEnded            the sandbox has ended, or never existed
│   ├── NotFoundError           no such context, command, template
│   ├── AlreadyExistsError      the id was used before
│   ├── AuthenticationError     no valid token
│   ├── AccessDenied            the token or the caller is not allowed to do this
│   ├── InvalidArgument         malformed request (also ValueError)
│   ├── PreconditionFailed      not possible in the current state
│   │   └── SandboxSuspended    the session is suspended; `Sandbox.resume` takes it on
│   │       └── SandboxPreempted  the owner of its quota needs it; it is resumed by itself
│   ├── LimitReached            a limit is reached
│   ├── RpcTimeout              a call over the network got no answer in time (also TimeoutError)
│   ├── ProtocolError           the other side broke the protocol
│   └── ClaimError              the fleet gave no sandbox; .reason says why, .queued what it waited for
├── FileError
│   ├── FileNotFound            also FileNotFoundError
│   ├── FileExists              also FileExistsError
│   ├── IsADirectory            also IsADirectoryError
│   ├── NotADirectory           also NotADirectoryError
│   ├── FilePermission          also PermissionError
│   ├── InvalidPath             also ValueError
│   ├── DirectoryNotEmpty
│   ├── NotARegularFile
│   ├── TooManyLinks
│   ├── NoSpace
│   └── TransferIncomplete      a tree was copied only in part; .transfer says which
├── ServiceNotReadyError        a service is not ready; .service says why, .log has its last lines of output
├── CommandFailed               a command with `check=True` ended with another exit code than 0; .result
└── ExecutionFailed             `raise_for_error` of an execution that did not end well; .execution

A failure of the code in a sandbox is an error here only on request (`check=True`, `raise_for_error`): otherwise it is
the `outcome` of an `Execution` or `CommandResult`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Those that a value raises by itself stand beside it.
from sandfleet.values.execution import CommandFailed as CommandFailed  # noqa: PLC0414  a name of this module
from sandfleet.values.execution import ExecutionFailed as ExecutionFailed  # noqa: PLC0414  a name of this module
from sandfleet.values.root import SandfleetError as SandfleetError  # noqa: PLC0414  a name of this module

if TYPE_CHECKING:
    from sandfleet.values.files import Transfer
    from sandfleet.values.fleet import Queued
    from sandfleet.values.services import Service


class SandboxError(SandfleetError):
    """The platform could not do what was asked."""


class UnavailableError(SandboxError):
    """The fleet or the executor is starting, stopping or gone."""


class SandboxEnded(SandboxError):
    """The sandbox has ended, or never existed."""


class NotFoundError(SandboxError):
    """There is no such context, command or template."""


class AlreadyExistsError(SandboxError):
    """The id was used before."""


class AuthenticationError(SandboxError):
    """There is no valid token."""


class AccessDenied(SandboxError):
    """The token or the caller is not allowed to do this."""


class InvalidArgument(SandboxError, ValueError):
    """The request is malformed."""


class PreconditionFailed(SandboxError):
    """The call is not possible in the current state."""


class SandboxSuspended(PreconditionFailed):
    """The session is suspended, by this client or another one; `Sandbox.resume(sandbox_id)` takes it on."""


class SandboxPreempted(SandboxSuspended):
    """The session waits in its queue, because the owner of its quota needs it; it is resumed when it is admitted."""


class LimitReached(SandboxError):
    """A limit is reached."""


class RpcTimeout(SandboxError, TimeoutError):
    """A call over the network got no answer in time. Leases and deadlines of executions have nothing to do with it."""


class ProtocolError(SandboxError):
    """The other side broke the protocol."""


class ClaimError(SandboxError):
    """The fleet gave no sandbox; `reason` says why.

    Retryable: NotBoundInTime, QueueFull, WaitTooLong, SandboxLimit, QuotaExceeded, PoolEmpty, ColdStart, PolicyMissing,
    StartsFail, ApiServerFailed, CreationForbidden. Not retryable: QueueNotFound, PriorityNotFound, QuotaTooSmall,
    TemplateNotFound, TemplateInvalid, WorkspaceBusy, WorkspaceNotFound, WorkspaceEphemeral, IsolationUnavailable,
    ClaimEnded. The fleet may give other reasons.

    queued  what the claim waited for at last: place, reason and explanation; None if it never waited.
    """

    queued: Queued | None = None


class FileError(SandfleetError):
    """A file operation failed."""


class FileNotFound(FileError, FileNotFoundError):
    """The file does not exist."""


class FileExists(FileError, FileExistsError):
    """The file exists already."""


class IsADirectory(FileError, IsADirectoryError):
    """The path is a directory."""


class NotADirectory(FileError, NotADirectoryError):
    """The path, or a part of it, is not a directory."""


class FilePermission(FileError, PermissionError):
    """The sandbox's user is not allowed to do this."""


class InvalidPath(FileError, ValueError):
    """The path is malformed, or leads to /, /proc, /sys or /dev."""


class DirectoryNotEmpty(FileError):
    """The directory is not empty."""


class NotARegularFile(FileError):
    """The path is a pipe, socket or device."""


class TooManyLinks(FileError):
    """The symlinks of the path form a loop."""


class NoSpace(FileError):
    """No space is left."""


class TransferIncomplete(FileError):
    """A tree was copied only in part; `transfer` says which. Reasons: NoSpace, TooLarge, TooManyEntries, …"""

    def __init__(self, message: str, transfer: Transfer, *, reason: str = "", subject: str = "") -> None:
        super().__init__(message, reason=reason, retryable=reason == "NoSpace", subject=subject)
        self.transfer = transfer
        # The arguments with which pickle calls the class.
        self.args = (message, transfer)


class ServiceNotReadyError(SandfleetError):
    """A service is not ready: the time is over, or waiting does not help.

    service  its current state, and why.
    log      its last lines of output.
    """

    def __init__(self, service: Service, log: str) -> None:
        why = service.message or f"it is {service.state}"
        last = f"\nthe last that it wrote:\n{log}" if log.strip() else "\nit wrote nothing"
        super().__init__(
            f"cannot use service {service.name}: it is not ready ({service.state}): {why}{last}",
            reason=service.reason or "ServiceNotReady",
            retryable=True,
            subject=service.name,
        )
        self.service = service
        self.log = log
        # The arguments with which pickle calls the class.
        self.args = (service, log)
