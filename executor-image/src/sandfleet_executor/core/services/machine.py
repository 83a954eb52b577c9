"""What becomes of one service: a state, and one function an event. Each gives what follows and what is to be done now.

Times are seconds of a clock that only goes forward; whoever runs this calls `due` when `Life.due` has come.
"""

from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from sandfleet_executor.core.services.spec import Restart, ServiceSpec

# Who ran for so long, and was ready, has not failed at once.
STABLE_SECONDS = 10.0


class State(StrEnum):
    # It is to run, and waits for what it comes after.
    WAITING = "waiting"
    STARTING = "starting"
    # It runs and is not ready.
    RUNNING = "running"
    READY = "ready"
    # Going down: for good, to be started again, because it failed its liveness.
    STOPPING = "stopping"
    RESTARTING = "restarting"
    FAILING = "failing"
    # Ended, and started again at `due`.
    BACK_OFF = "back-off"
    # Ended by itself and well.
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


UP = frozenset({State.RUNNING, State.READY})
GOING_DOWN = frozenset({State.STOPPING, State.RESTARTING, State.FAILING})
# There is, or will be in a moment, a process.
ALIVE = UP | GOING_DOWN | {State.STARTING}
# Nothing happens any more unless somebody asks for it.
RESTING = frozenset({State.COMPLETED, State.FAILED, State.STOPPED})


class Action(Enum):
    NONE = "none"
    LAUNCH = "launch"
    # Its stop signal.
    TERMINATE = "terminate"
    # Everything of it, at once.
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
class Life:
    """One service at a moment."""

    state: State = State.WAITING
    # Whether it is to run, as far as anybody asked.
    wanted: bool = True
    due: float | None = None
    # Of the run that there is, or was last.
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


Next = tuple[Life, Action]


def go(life: Life) -> Next:
    """Somebody wants it to run."""
    wanted = replace(life, wanted=True)
    if life.state in RESTING:
        return _waiting(replace(wanted, failures=0)), Action.NONE
    if life.state is State.STOPPING:
        return replace(wanted, state=State.RESTARTING), Action.NONE
    return wanted, Action.NONE


def rest(life: Life) -> Next:
    """Somebody wants it to stop. What has a process is halted when its turn comes."""
    unwanted = replace(life, wanted=False)
    if life.state in {State.WAITING, State.BACK_OFF, State.COMPLETED, State.FAILED}:
        return _stopped(unwanted), Action.NONE
    return unwanted, Action.NONE


def again(life: Life, spec: ServiceSpec, now: float) -> Next:
    """Somebody wants it to be started anew."""
    life = replace(life, wanted=True, failures=0)
    if life.state in UP:
        return _going(life, State.RESTARTING, spec, now)
    if life.state in ALIVE:
        return replace(life, state=State.RESTARTING), Action.NONE
    return _waiting(life), Action.NONE


def begin(life: Life) -> Next:
    """Everything that it comes after is there."""
    if life.state is not State.WAITING or not life.wanted:
        return life, Action.NONE
    fresh = replace(life, state=State.STARTING, pid=0, was_ready=False, passed=0, missed=0, live_missed=0)
    return _said(replace(fresh, runs=life.runs + 1)), Action.LAUNCH


def halt(life: Life, spec: ServiceSpec, now: float) -> Next:
    """Its turn to be stopped has come."""
    if life.state in UP:
        return _going(life, State.STOPPING, spec, now)
    if life.state in ALIVE:
        return replace(life, state=State.STOPPING), Action.NONE
    return life, Action.NONE


def launched(life: Life, spec: ServiceSpec, pid: int, now: float) -> Next:
    """Its program runs."""
    life = replace(life, pid=pid, since=now)
    if life.state in GOING_DOWN:
        return _going(life, life.state, spec, now)
    if life.state is not State.STARTING:
        return life, Action.NONE
    if spec.readiness is None:
        return _said(replace(life, state=State.READY, was_ready=True)), Action.NONE
    return _said(replace(life, state=State.RUNNING), "NotReady", "it has just started"), Action.NONE


def ended(life: Life, spec: ServiceSpec, how: Exit, now: float) -> Next:
    """Its program has ended, or could not be started; nothing of it is left."""
    if life.state not in ALIVE:
        return life, Action.NONE
    if life.state is State.STOPPING or not life.wanted:
        return _stopped(replace(life, last=replace(how, reason="Stopped"))), Action.NONE
    if life.state is State.RESTARTING:
        return _waiting(replace(life, last=replace(how, reason="Stopped"))), Action.NONE
    if life.state is State.FAILING:
        how = replace(how, reason="Unhealthy", message=f"{life.message}; it was stopped")
    gone = replace(life, last=how, pid=0, due=None)
    failed = how.reason != "Completed"
    again = spec.restart is Restart.ALWAYS or (failed and spec.restart is Restart.ON_FAILURE)
    if not again:
        return _said(
            replace(gone, state=State.FAILED if failed else State.COMPLETED), how.reason, how.message
        ), Action.NONE
    stable = life.was_ready and life.pid > 0 and now - life.since >= STABLE_SECONDS
    failures = 1 if stable else life.failures + 1
    gone = replace(gone, failures=failures)
    if failures >= spec.max_failures:
        why = f"it ended {failures} times in a row soon after its start; the last time: {how.message}"
        return _said(replace(gone, state=State.FAILED), "CrashLoop", why), Action.NONE
    pause = back_off(spec, failures)
    why = f"{how.message}; it is started again {pause:g} s after that"
    return _said(replace(gone, state=State.BACK_OFF, due=now + pause), how.reason, why), Action.NONE


def due(life: Life) -> Next:
    """The time has come that it waited for."""
    if life.state is State.BACK_OFF:
        return _waiting(life), Action.NONE
    if life.state in GOING_DOWN and life.due is not None:
        return replace(life, due=None), Action.KILL
    return life, Action.NONE


def checked(life: Life, spec: ServiceSpec, trouble: str) -> Next:
    """Its readiness was looked at; an empty `trouble` is that it is ready."""
    probe = spec.readiness
    if probe is None or life.state not in UP:
        return life, Action.NONE
    if not trouble:
        life = replace(life, passed=min(life.passed + 1, probe.successes), missed=0)
        if life.state is State.READY or life.passed < probe.successes:
            return life, Action.NONE
        return _said(replace(life, state=State.READY, was_ready=True)), Action.NONE
    life = replace(life, passed=0, missed=min(life.missed + 1, probe.failures))
    if life.state is State.READY and life.missed < probe.failures:
        return life, Action.NONE
    return _said(replace(life, state=State.RUNNING), "NotReady", trouble), Action.NONE


def lives(life: Life, spec: ServiceSpec, trouble: str, now: float) -> Next:
    """Its liveness was looked at."""
    probe = spec.liveness
    if probe is None or life.state not in UP:
        return life, Action.NONE
    if not trouble:
        return replace(life, live_missed=0), Action.NONE
    life = replace(life, live_missed=life.live_missed + 1)
    if life.live_missed < probe.failures:
        return life, Action.NONE
    why = f"it failed its liveness {life.live_missed} times in a row: {trouble}"
    return _going(_said(life, "Unhealthy", why), State.FAILING, spec, now)


def back_off(spec: ServiceSpec, failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    # The exponent is bounded, not only the pause: 2 ** 1000 is no float.
    return float(min(spec.backoff * 2 ** min(failures - 1, 30), spec.backoff_cap))


def _going(life: Life, state: State, spec: ServiceSpec, now: float) -> Next:
    return replace(life, state=state, due=now + spec.grace), Action.TERMINATE


def _waiting(life: Life) -> Life:
    return _said(replace(life, state=State.WAITING, due=None, pid=0))


def _stopped(life: Life) -> Life:
    return _said(replace(life, state=State.STOPPED, due=None, pid=0))


def _said(life: Life, reason: str = "", message: str = "") -> Life:
    return replace(life, reason=reason, message=message)
