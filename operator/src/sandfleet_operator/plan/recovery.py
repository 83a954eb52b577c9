"""What the end of an executor means for the session that it served."""

from dataclasses import dataclass

from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.values import Exit, ExitCode, Sandbox
from sandfleet_operator.plan.policy import Policy

# Exit codes of the executor that end the session: it did what it was told to, or trying again cannot help.
SESSION_ENDS: dict[int, str] = {
    ExitCode.CLOSED: "Closed",
    ExitCode.LEASE: "LeaseExpired",
    ExitCode.IDLE: "Idle",
    ExitCode.NO_ISOLATION: "IsolationUnavailable",
    ExitCode.BAD_CONFIG: "BadConfiguration",
}
# Exit codes and what else ends an executor through no decision of its own: it is replaced on the same workspace.
REPLACEMENTS: dict[int, str] = {ExitCode.OWNER_GONE: "OwnerGone", ExitCode.STUCK: "Stuck"}


@dataclass(frozen=True, slots=True)
class EndSession:
    reason: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Start a new executor on the same workspace, not before `at`."""

    at: float
    crashes: int
    reason: str


def after_exit(sandbox: Sandbox, end: Exit, now: float, policy: Policy) -> EndSession | Replace:
    """What becomes of a session whose executor ended at `now`."""
    if end.code is not None and (reason := SESSION_ENDS.get(end.code)):
        return EndSession(reason)
    stable = sandbox.bound and now - sandbox.started >= policy.stable_after
    crashes = 1 if stable else sandbox.crashes + 1
    if crashes > len(policy.recovery_delays):
        return EndSession("CrashLoop")
    return Replace(now + policy.recovery_delays[crashes - 1], crashes, _replacement_reason(end))


def _replacement_reason(end: Exit) -> str:
    if end.code is not None:
        return REPLACEMENTS.get(end.code, "Crashed")
    return "Killed" if end.signal else "StartFailed"


def start_problem(end: Exit) -> Problem:
    """Why a sandbox that ended before anyone had it could not be handed out."""
    how = end.message or (f"exit code {end.code}" if end.code is not None else f"signal {end.signal or 'unknown'}")
    message = f"cannot start a sandbox: {how}"
    if end.code is not None and SESSION_ENDS.get(end.code) == "IsolationUnavailable":
        return Problem(Code.FAILED_PRECONDITION, "IsolationUnavailable", message)
    return Problem(Code.INTERNAL, "StartFailed", message)
