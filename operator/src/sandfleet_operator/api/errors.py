"""What the fleet says when it cannot do something."""

from dataclasses import dataclass
from enum import Enum
from typing import Self


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


class CallReason(Enum):
    """Why a call fails: the status code, the meaning, and what the caller can do."""

    value: str
    code: Code
    meaning: str
    remedy: str

    def __new__(cls, word: str, code: Code, meaning: str, remedy: str) -> Self:
        one = object.__new__(cls)
        one._value_, one.code, one.meaning, one.remedy = word, code, meaning, remedy
        return one

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return self.code in RETRYABLE

    def problem(
        self,
        message: str,
        subject: str = "",
        *,
        code: Code | None = None,
        passing: bool = False,
        retry_after: float | None = None,
    ) -> Problem:
        """`message` is "cannot X: why". `code` replaces the usual one; `passing`: what is in the way goes by itself.

        `retry_after`: seconds after which it is worth trying again.
        """
        return Problem(code or self.code, self.value, message, subject, passing=passing, retry_after=retry_after)

    def error(
        self,
        message: str,
        subject: str = "",
        *,
        code: Code | None = None,
        passing: bool = False,
        retry_after: float | None = None,
    ) -> FleetError:
        return FleetError(self.problem(message, subject, code=code, passing=passing, retry_after=retry_after))
