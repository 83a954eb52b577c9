"""What the fleet says when it cannot do something."""

from dataclasses import dataclass
from enum import Enum


class Code(Enum):
    """The kinds of failure, named as gRPC names its status codes."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"
    UNIMPLEMENTED = "UNIMPLEMENTED"


RETRYABLE = frozenset({Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.INTERNAL})


@dataclass(frozen=True, slots=True)
class Problem:
    """One failure: a code, one CamelCase word for programs, and "cannot X: why" for people."""

    code: Code
    reason: str
    message: str
    subject: str = ""
    # What is in the way goes by itself, whatever the code says.
    passing: bool = False
    # Seconds after which it is worth trying again; None: not known.
    retry_after: float | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return self.passing or self.code in RETRYABLE


class FleetError(Exception):
    """Raised where a request cannot be served."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def invalid(reason: str, message: str, subject: str = "") -> FleetError:
    return FleetError(Problem(Code.INVALID_ARGUMENT, reason, message, subject))
