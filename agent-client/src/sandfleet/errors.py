"""Every error that the client raises, under one root.

SandfleetError                  .reason .retryable .message .subject
├── SandboxError                the platform could not do what was asked
│   ├── UnavailableError        fleet or executor is starting, stopping or gone
│   ├── SandboxEnded            there is no such sandbox, or no longer
│   ├── NotFoundError           no such context, command, template
│   ├── AlreadyExistsError      the id was used before
│   ├── AuthenticationError     no valid token
│   ├── AccessDenied            the token or the caller may not
│   ├── InvalidArgument         malformed request (also ValueError)
│   ├── PreconditionFailed      not in the present state
│   ├── LimitReached            as many as allowed are there
│   ├── RpcTimeout              the transport's time was over (also TimeoutError)
│   ├── ProtocolError           the other side broke the protocol
│   └── ClaimError              no sandbox could be had; .reason says why
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
│   └── TransferIncomplete      a tree was not copied to its end; .transfer says what was
├── ServiceNotReadyError        a service is not ready; .service says why, .log has the last lines that it wrote
└── CommandFailed               a command did not end with exit code 0, and `check=True`; .result

What the code in a sandbox does is never an error here: it is the `outcome` of an `Execution` or `CommandResult`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet.file_values import Transfer
    from sandfleet.service_values import Service
    from sandfleet.values import CommandResult


class SandfleetError(Exception):
    """Root of all errors of the client.

    reason     one word in CamelCase for programs; "" where nobody gave one.
    retryable  whether the same call may succeed later without any change.
    subject    what it is about: a path, an id; "" where nothing is to be named.
    """

    def __init__(self, message: str, *, reason: str = "", retryable: bool = False, subject: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.retryable = retryable
        self.subject = subject

    def __str__(self) -> str:
        return self.message


class SandboxError(SandfleetError):
    """The platform could not do what was asked."""


class UnavailableError(SandboxError):
    """Fleet or executor is starting, stopping or gone."""


class SandboxEnded(SandboxError):  # noqa: N818  a state, as StopIteration is one
    """There is no such sandbox, or no longer."""


class NotFoundError(SandboxError):
    """There is no such context, command or template."""


class AlreadyExistsError(SandboxError):
    """The id was used before."""


class AuthenticationError(SandboxError):
    """There is no valid token."""


class AccessDenied(SandboxError):  # noqa: N818  the name says what happened
    """The token or the caller may not do this."""


class InvalidArgument(SandboxError, ValueError):  # noqa: N818  as the status code is called
    """The request is malformed."""


class PreconditionFailed(SandboxError):  # noqa: N818  as the status code is called
    """Not possible in the present state."""


class LimitReached(SandboxError):  # noqa: N818  the name says what happened
    """As many as allowed are there already."""


class RpcTimeout(SandboxError, TimeoutError):  # noqa: N818  beside the builtin TimeoutError
    """The transport's time was over. Neither the lease nor the deadline of an execution ends in this."""


class ProtocolError(SandboxError):
    """The other side broke the protocol."""


class ClaimError(SandboxError):
    """No sandbox could be had; `reason` says why.

    Passing (`retryable`): SandboxLimit, PoolEmpty, ColdStart, PolicyMissing, StartsFail. Not: TemplateNotFound, TemplateInvalid,
    WorkspaceBusy, WorkspaceNotFound, WorkspaceEphemeral, IsolationUnavailable, ClaimEnded. The fleet may name others.
    """


class FileError(SandfleetError):
    """A file operation was not possible."""


class FileNotFound(FileError, FileNotFoundError):  # noqa: N818  beside the builtin of the same meaning
    """Nothing is there."""


class FileExists(FileError, FileExistsError):  # noqa: N818  beside the builtin of the same meaning
    """Something is there already."""


class IsADirectory(FileError, IsADirectoryError):  # noqa: N818  beside the builtin of the same meaning
    """It is a directory."""


class NotADirectory(FileError, NotADirectoryError):  # noqa: N818  beside the builtin of the same meaning
    """It, or a part of its path, is no directory."""


class FilePermission(FileError, PermissionError):  # noqa: N818  beside the builtin of the same meaning
    """The user of the sandbox may not."""


class InvalidPath(FileError, ValueError):  # noqa: N818  the reason's word
    """The path is malformed or leads outside of /workspace and /tmp."""


class DirectoryNotEmpty(FileError):  # noqa: N818  the reason's word
    """The directory is not empty."""


class NotARegularFile(FileError):  # noqa: N818  the reason's word
    """It is a pipe, socket or device."""


class TooManyLinks(FileError):  # noqa: N818  the reason's word
    """The symlinks of the path form a loop."""


class NoSpace(FileError):  # noqa: N818  the reason's word
    """No space is left."""


class TransferIncomplete(FileError):  # noqa: N818  the name says what happened
    """A tree was not copied to its end; `transfer` says what was. Reasons: NoSpace, TooLarge, TooManyEntries, …"""

    def __init__(self, message: str, transfer: Transfer, *, reason: str = "", subject: str = "") -> None:
        super().__init__(message, reason=reason, retryable=reason == "NoSpace", subject=subject)
        self.transfer = transfer
        # What pickle calls the class with.
        self.args = (message, transfer)


class CommandFailed(SandfleetError):  # noqa: N818  the name says what happened
    """A command did not end with exit code 0, and `check=True` was asked for."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message, reason=result.reason)
        self.result = result
        # What pickle calls the class with.
        self.args = (message, result)


class ServiceNotReadyError(SandfleetError):
    """A service is not ready, and either the time is over or waiting does not help.

    service  as it is now: its state, and why.
    log      the last lines that it wrote.
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
        # What pickle calls the class with.
        self.args = (service, log)
