"""What every adapter does alike: it names a framework that is missing, and tells failures of the platform apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sandfleet.errors import SandboxError
from sandfleet.values.execution import Blame, CommandResult, Execution, Outcome

P = ParamSpec("P")
R = TypeVar("R")
Ended = TypeVar("Ended", Execution, CommandResult)


@contextmanager
def needed(extra: str, *packages: str) -> Iterator[None]:
    """Import a framework in this block. Where it is not installed, the error names the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        command = f"pip install 'sandfleet[{extra}]'"
        raise ImportError(
            f"cannot use sandfleet.integrations.{extra}: {missing} is not installed: {command}", name=missing
        ) from error


@contextmanager
def mapped(error_of_framework: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what the platform cannot do as the framework's own error for infrastructure."""
    try:
        yield
    except SandboxError as error:
        raise error_of_framework(f"the sandbox failed, which is no fault of the code: {error}") from error


def mapping(
    error_of_framework: Callable[[str], Exception],
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Decorate a whole async call: its failures of the platform are `mapped`."""

    def decorate(call: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        @wraps(call)
        async def calling(*args: P.args, **options: P.kwargs) -> R:
            with mapped(error_of_framework):
                return await call(*args, **options)

        return calling

    return decorate


def not_lost(ended: Ended) -> Ended:
    """Return what ended by itself or by a limit.

    Raises SandboxError for what the platform has lost, and where a new executor lacks the variables of the one before:
    code that misses them did nothing wrong.
    """
    if ended.outcome is Outcome.LOST or ended.reason == "SandboxClosed":
        raise SandboxError(f"cannot tell how it ended: {ended.message}", reason=ended.reason)
    if {"variables", "tmp"} <= {*ended.lost} and ended.blame is not Blame.LIMIT:
        lost = ", ".join(ended.lost)
        raise SandboxError(f"its executor was replaced, and this is lost: {lost}", reason="ExecutorReplaced")
    return ended


def why_failed(execution: Execution) -> str:
    """Return the sentence that says how a cell ended, and its error with the traceback; "" if it ran well."""
    error, lines = execution.error, list[str]()
    # An error of the code speaks for itself; a limit shows as the exception by which it ended the code.
    if not execution.ok and (error is None or execution.outcome is not Outcome.ERROR):
        lines.append(execution.message)
    if error is not None:
        lines.append(f"{error.name}: {error.value}\n{error.traceback}")
    return "\n".join(lines)
