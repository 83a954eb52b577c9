"""What is asked of a context and of its cells, and what is known at the end of one."""

from dataclasses import dataclass

from sandfleet_executor.core.contextframes import BadFrame, Done
from sandfleet_executor.core.outcomes import Cause, Facts, Verdict
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.core.states import Bounds
from sandfleet_executor.core.tracing import TraceParent
from sandfleet_executor.effects.accounting import signal_name
from sandfleet_executor.effects.children import Exit, NamespaceError
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.interpreter import Cell


@dataclass(frozen=True)
class Keeps:
    """What of a context outlives its interpreter: the bounds of automatic saves, and whether it goes on from the newest."""

    autosave: Bounds | None = None
    resume: bool = False


NOTHING = Keeps()


@dataclass(frozen=True)
class CellRequest:
    code: str
    # Seconds.
    timeout: float
    envs: dict[str, str]
    traceparent: TraceParent | None
    # Bytes; only to say it when it was reached.
    memory_limit: int
    disk_limit: int
    # Whether a cell that raises is rolled back as one that is killed.
    rolls_back: bool = False
    # Of the context, where this makes it.
    keeps: Keeps = NOTHING


def cell_facts(execution: Execution, cell: Cell, end: Done | Exit | BadFrame, request: CellRequest) -> Facts:
    """What is known at the end of a cell."""
    cause, status, code, number = execution.cause, None, 0, 0
    match end:
        case Done():
            status, code = end.status, end.exit_code
        case BadFrame() if cause is Cause.NONE:
            cause = Cause.PROTOCOL
        case Exit():
            code, number = end.code, end.signal
            if end.memory and cause is Cause.NONE:
                cause = Cause.MEMORY
    return Facts(
        cause=cause,
        status=status,
        error_name=cell.error_name,
        exit_code=code,
        signal=signal_name(number),
        timeout=request.timeout,
        memory_limit=request.memory_limit,
        disk_limit=request.disk_limit,
    )


def verdict_on(error: NamespaceError | BadRequest) -> Verdict:
    """Why there is no interpreter: the platform cannot start one, or its working directory was removed meanwhile."""
    if isinstance(error, BadRequest):
        return Verdict("error", "code", "WorkingDirectoryGone", str(error))
    return Verdict("lost", "platform", "InterpreterNotStarted", str(error))
