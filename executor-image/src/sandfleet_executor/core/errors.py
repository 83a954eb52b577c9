"""Errors that several rooms raise, and what all errors have that callers are told of."""

from typing import Literal

# The names of gRPC's status codes.
Code = Literal[
    "ABORTED",
    "ALREADY_EXISTS",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
]


class RpcError(Exception):
    """An RPC that raises it ends with a status. Its class says which, for what reason, and whether to try again.

    A subclass that does not say it fails as its base does. Classes whose instances differ set the three in `__init__`.
    """

    code: Code = "FAILED_PRECONDITION"
    reason: str = ""
    retryable: bool = False

    def __init_subclass__(cls, code: Code | None = None, reason: str = "", *, retryable: bool = False) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            cls.reason = reason
            cls.retryable = retryable


class BadRequest(RpcError, ValueError, code="INVALID_ARGUMENT", reason="InvalidArgument"):
    """The request cannot be right, whatever the state of the sandbox."""


class NotStartedError(BadRequest):
    """The interpreter of a context does not come to its first cell: what it is made of does not work."""


class ConfigError(RpcError, ValueError, code="INVALID_ARGUMENT", reason="InvalidLimits"):
    """The executor was given a configuration that it cannot follow."""


class NotFoundError(RpcError, LookupError, code="NOT_FOUND", reason="NotFound"):
    """There is no such context, or no such command is running."""


class ExistsError(RpcError, ValueError, code="ALREADY_EXISTS", reason="AlreadyExists"):
    """The id is taken."""


class BusyError(RpcError, RuntimeError, code="RESOURCE_EXHAUSTED", reason="TooMany", retryable=True):
    """A count is at its limit; the request may succeed later."""


class SuspendingError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="SandboxSuspended"):
    """The session is being suspended: nothing begins in it any more."""


class PreemptingError(SuspendingError, code="UNAVAILABLE", reason="SandboxPreempted", retryable=True):
    """The session is being suspended for the owner of its quota, and is resumed by itself."""


class RestoringError(RpcError, RuntimeError, code="UNAVAILABLE", reason="SandboxRestoring", retryable=True):
    """A snapshot is taking the place of the session's files: nothing begins before it has."""


class FullError(RpcError, RuntimeError, code="RESOURCE_EXHAUSTED", reason="WorkspaceFull", retryable=True):
    """The workspace is so far beyond its limit that nothing may run."""


class MismatchError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="SessionMismatch"):
    """The sandbox belongs to another session."""
