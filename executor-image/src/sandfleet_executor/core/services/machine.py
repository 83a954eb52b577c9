"""The state machine of one service: one function an event, which returns the next state and the action to take.

Times are seconds of a monotonic clock. The caller calls `due` at the time `ServiceRuntime.due`.
"""

from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from sandfleet_rules.backoff import Backoff

from sandfleet_executor.core.services.spec import Restart, ServiceSpec

# A service that was ready and ran for so long did not fail at its start.
STABLE_SECONDS = 10.0
# Without a probe a service is ready once it has run for so long: a command that does not exist has ended by then.
SETTLED_SECONDS = 0.5


class State(StrEnum):
    # Wanted, and waiting for the services that it comes after.
    WAITING = "waiting"
    STARTING = "starting"
    # The service runs and is not ready; without a probe it is at `due`.
    RUNNING = "running"
    READY = "ready"
    # Going down: for good, for a restart, or after failing its liveness.
    STOPPING = "stopping"
    RESTARTING = "restarting"
    FAILING = "failing"
    # Ended; starts again at `due`.
    BACK_OFF = "back-off"
    # Ended by itself and well.
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


UP = frozenset({State.RUNNING, State.READY})
GOING_DOWN = frozenset({State.STOPPING, State.RESTARTING, State.FAILING})
# A process exists, or will in a moment.
ALIVE = UP | GOING_DOWN | {State.STARTING}
# The service stays in this state until a caller asks for a change.
RESTING = frozenset({State.COMPLETED, State.FAILED, State.STOPPED})


class Action(Enum):
    NONE = "none"
    LAUNCH = "launch"
    # Its stop signal.
    TERMINATE = "terminate"
    # Kills all its processes at once.
    KILL = "kill"


@dataclass(frozen=True)
class Exit:
    """How a run ended. `code` as a shell gives it; `reason` is one word, see service.proto."""

    code: int
    reason: str
    message: str
    signal: str = ""
    leftover: int = 0
    # Seconds since the epoch.
    at: float = 0.0


@dataclass(frozen=True)
class ServiceRuntime:
    """The state of one service at a moment."""

    state: State = State.WAITING
    # Whether callers want it to run.
    wanted: bool = True
    due: float | None = None
    # Of the current run, or the last one.
    since: float = 0.0
    pid: int = 0
    was_ready: bool = False
    # Checks in a row.
    passed: int = 0
    missed: int = 0
    live_missed: int = 0
    # Runs since it was declared; ends in a row that count as failures at the start.
    runs: int = 0
    failures: int = 0
    reason: str = ""
    message: str = ""
    last: Exit | None = None

    @property
    def restarts(self) -> int:
        return max(0, self.runs - 1)


Next = tuple[ServiceRuntime, Action]


def want_running(runtime: ServiceRuntime) -> Next:
    """A caller wants the service to run."""
    wanted = replace(runtime, wanted=True)
    if runtime.state in RESTING:
        return _waiting(replace(wanted, failures=0)), Action.NONE
    if runtime.state is State.STOPPING:
        return replace(wanted, state=State.RESTARTING), Action.NONE
    return wanted, Action.NONE


def want_stopped(runtime: ServiceRuntime) -> Next:
    """A caller wants the service to stop. A running process is stopped when its turn comes."""
    unwanted = replace(runtime, wanted=False)
    if runtime.state in {State.WAITING, State.BACK_OFF, State.COMPLETED, State.FAILED}:
        return _stopped(unwanted), Action.NONE
    return unwanted, Action.NONE


def restart(runtime: ServiceRuntime, spec: ServiceSpec, now: float) -> Next:
    """A caller wants the service to be started anew."""
    runtime = replace(runtime, wanted=True, failures=0)
    if runtime.state in UP:
        return _going(runtime, State.RESTARTING, spec, now)
    if runtime.state in ALIVE:
        return replace(runtime, state=State.RESTARTING), Action.NONE
    return _waiting(runtime), Action.NONE


def start(runtime: ServiceRuntime) -> Next:
    """Every service that it comes after is ready or completed."""
    if runtime.state is not State.WAITING or not runtime.wanted:
        return runtime, Action.NONE
    fresh = replace(runtime, state=State.STARTING, pid=0, was_ready=False, passed=0, missed=0, live_missed=0)
    return _said(replace(fresh, runs=runtime.runs + 1)), Action.LAUNCH


def stop(runtime: ServiceRuntime, spec: ServiceSpec, now: float) -> Next:
    """Its turn to stop has come."""
    if runtime.state in UP:
        return _going(runtime, State.STOPPING, spec, now)
    if runtime.state in ALIVE:
        return replace(runtime, state=State.STOPPING), Action.NONE
    return runtime, Action.NONE


def launched(runtime: ServiceRuntime, spec: ServiceSpec, pid: int, now: float) -> Next:
    """Its program has started."""
    runtime = replace(runtime, pid=pid, since=now)
    if runtime.state in GOING_DOWN:
        return _going(runtime, runtime.state, spec, now)
    if runtime.state is not State.STARTING:
        return runtime, Action.NONE
    settled = now + SETTLED_SECONDS if spec.readiness is None else None
    return _said(replace(runtime, state=State.RUNNING, due=settled), "NotReady", "it has just started"), Action.NONE


def ended(runtime: ServiceRuntime, spec: ServiceSpec, how: Exit, now: float) -> Next:
    """Its program has ended, or could not be started; no process of it is left."""
    if runtime.state not in ALIVE:
        return runtime, Action.NONE
    if runtime.state is State.STOPPING or not runtime.wanted:
        return _stopped(replace(runtime, last=replace(how, reason="Stopped"))), Action.NONE
    if runtime.state is State.RESTARTING:
        return _waiting(replace(runtime, last=replace(how, reason="Stopped"))), Action.NONE
    if runtime.state is State.FAILING:
        how = replace(how, reason="Unhealthy", message=f"{runtime.message}; it was stopped")
    gone = replace(runtime, last=how, pid=0, due=None)
    failed = how.reason != "Completed"
    starts_again = spec.restart is Restart.ALWAYS or (failed and spec.restart is Restart.ON_FAILURE)
    if not starts_again:
        return _said(
            replace(gone, state=State.FAILED if failed else State.COMPLETED), how.reason, how.message
        ), Action.NONE
    stable = runtime.was_ready and runtime.pid > 0 and now - runtime.since >= STABLE_SECONDS
    failures = 1 if stable else runtime.failures + 1
    gone = replace(gone, failures=failures)
    if failures >= spec.max_failures:
        why = f"it ended {failures} times in a row soon after its start; the last time: {how.message}"
        return _said(replace(gone, state=State.FAILED), "CrashLoop", why), Action.NONE
    pause = Backoff(spec.backoff, spec.backoff_cap).after(failures)
    why = f"{how.message}; it is started again {pause:g} s after that"
    return _said(replace(gone, state=State.BACK_OFF, due=now + pause), how.reason, why), Action.NONE


def due(runtime: ServiceRuntime) -> Next:
    """The time `due` has come."""
    if runtime.state is State.BACK_OFF:
        return _waiting(runtime), Action.NONE
    if runtime.state is State.RUNNING and runtime.due is not None:
        return _said(replace(runtime, state=State.READY, was_ready=True, due=None)), Action.NONE
    if runtime.state in GOING_DOWN and runtime.due is not None:
        return replace(runtime, due=None), Action.KILL
    return runtime, Action.NONE


def readiness_checked(runtime: ServiceRuntime, spec: ServiceSpec, trouble: str) -> Next:
    """Its readiness was checked; an empty `trouble` means ready."""
    probe = spec.readiness
    if probe is None or runtime.state not in UP:
        return runtime, Action.NONE
    if not trouble:
        runtime = replace(runtime, passed=min(runtime.passed + 1, probe.successes), missed=0)
        if runtime.state is State.READY or runtime.passed < probe.successes:
            return runtime, Action.NONE
        return _said(replace(runtime, state=State.READY, was_ready=True)), Action.NONE
    runtime = replace(runtime, passed=0, missed=min(runtime.missed + 1, probe.failures))
    if runtime.state is State.READY and runtime.missed < probe.failures:
        return runtime, Action.NONE
    return _said(replace(runtime, state=State.RUNNING), "NotReady", trouble), Action.NONE


def liveness_checked(runtime: ServiceRuntime, spec: ServiceSpec, trouble: str, now: float) -> Next:
    """Its liveness was checked; an empty `trouble` means alive."""
    probe = spec.liveness
    if probe is None or runtime.state not in UP:
        return runtime, Action.NONE
    if not trouble:
        return replace(runtime, live_missed=0), Action.NONE
    runtime = replace(runtime, live_missed=runtime.live_missed + 1)
    if runtime.live_missed < probe.failures:
        return runtime, Action.NONE
    why = f"it failed its liveness {runtime.live_missed} times in a row: {trouble}"
    return _going(_said(runtime, "Unhealthy", why), State.FAILING, spec, now)


def _going(runtime: ServiceRuntime, state: State, spec: ServiceSpec, now: float) -> Next:
    return replace(runtime, state=state, due=now + spec.grace), Action.TERMINATE


def _waiting(runtime: ServiceRuntime) -> ServiceRuntime:
    return _said(replace(runtime, state=State.WAITING, due=None, pid=0))


def _stopped(runtime: ServiceRuntime) -> ServiceRuntime:
    return _said(replace(runtime, state=State.STOPPED, due=None, pid=0))


def _said(runtime: ServiceRuntime, reason: str = "", message: str = "") -> ServiceRuntime:
    return replace(runtime, reason=reason, message=message)
