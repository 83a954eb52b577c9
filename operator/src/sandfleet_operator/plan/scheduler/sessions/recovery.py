"""What the end of an executor means for the session that it served."""

from dataclasses import dataclass

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.reasons import ClaimReason, EndReason
from sandfleet_operator.api.values import Exit, ExitCode, Sandbox
from sandfleet_operator.plan.scheduler.limits import FleetLimits

# Exit codes of the executor that end the session: it did what it was told to, or trying again cannot help.
SESSION_ENDS: dict[int, str] = {
    ExitCode.CLOSED: EndReason.CLOSED.value,
    ExitCode.LEASE: EndReason.LEASE_EXPIRED.value,
    ExitCode.IDLE: EndReason.IDLE.value,
    ExitCode.NO_ISOLATION: EndReason.ISOLATION_UNAVAILABLE.value,
    ExitCode.BAD_CONFIG: EndReason.BAD_CONFIGURATION.value,
}
# Exit codes and what else ends an executor through no decision of its own: it is replaced on the same workspace.
REPLACEMENTS: dict[int, str] = {ExitCode.OWNER_GONE: EndReason.OWNER_GONE.value, ExitCode.STUCK: EndReason.STUCK.value}


@dataclass(frozen=True, slots=True)
class EndSession:
    reason: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Start a new executor on the same workspace, not before `at`."""

    at: float
    crashes: int
    reason: str


def ends_session(end: Exit) -> bool:
    """Whether its executor has ended the session, as when its lease is over."""
    return end.code is not None and end.code in SESSION_ENDS


def after_exit(sandbox: Sandbox, end: Exit, now: float, limits: FleetLimits) -> EndSession | Replace:
    """What becomes of a session whose executor ended at `now`."""
    if end.code is not None and (reason := SESSION_ENDS.get(end.code)):
        return EndSession(reason)
    stable = sandbox.bound and now - sandbox.started >= limits.stable_after
    crashes = 1 if stable else sandbox.crashes + 1
    if crashes > len(limits.recovery_delays):
        return EndSession(EndReason.CRASH_LOOP.value)
    return Replace(now + limits.recovery_delays[crashes - 1], crashes, _replacement_reason(end))


def _replacement_reason(end: Exit) -> str:
    if end.out_of_memory:
        return EndReason.OUT_OF_MEMORY.value
    if end.code is not None:
        return REPLACEMENTS.get(end.code, EndReason.CRASHED.value)
    return EndReason.KILLED.value if end.signal else EndReason.START_FAILED.value


def start_problem(end: Exit) -> Problem:
    """Why a sandbox that ended before anyone had it could not be handed out."""
    how = end.message or (f"exit code {end.code}" if end.code is not None else f"signal {end.signal or 'unknown'}")
    message = f"cannot start a sandbox: {how}"
    if end.code is not None and SESSION_ENDS.get(end.code) == EndReason.ISOLATION_UNAVAILABLE.value:
        return ClaimReason.ISOLATION_UNAVAILABLE.problem(message)
    return ClaimReason.START_FAILED.problem(message)
