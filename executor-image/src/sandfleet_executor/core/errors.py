"""Errors that several rooms raise: a bad request of a caller, and a bad configuration of the executor."""


class BadRequest(ValueError):
    """The request cannot be right, whatever the state of the sandbox."""


class NotStartedError(BadRequest):
    """The interpreter of a context does not come to its first cell: what it is made of does not work."""


class ConfigError(ValueError):
    """The executor was given a configuration that it cannot follow."""


class NotFoundError(LookupError):
    """There is no such context, or no such command is running."""


class ExistsError(ValueError):
    """The id is taken."""


class BusyError(RuntimeError):
    """A count is at its limit; the request may succeed later."""


class SuspendingError(RuntimeError):
    """The session is being suspended: nothing begins in it any more."""


class PreemptingError(SuspendingError):
    """The session is being suspended for the owner of its quota, and is resumed by itself."""


class RestoringError(RuntimeError):
    """A snapshot is taking the place of the session's files: nothing begins before it has."""


class FullError(RuntimeError):
    """The workspace is so far beyond its limit that nothing may run."""


class MismatchError(RuntimeError):
    """The sandbox belongs to another session."""
