"""One sandbox's life: state and event → new state and actions. One function an event.

    Starting ─ready→ Warm ─assigned→ Claimed ─bound→ (a session) ─exited→ Recovering ─ready, bound→ Claimed
    (a session) ─suspended→ Suspending ─exited→ Suspended ─resumed→ Resuming ─ready, bound→ (a session)
    any ─ended→ Ended ─exited→ gone

A sandbox that is started for one claim goes from Starting to Claimed. A sandbox that has lost its process and gets no
replacement is gone: the step's sandbox is None. Events of an incarnation after its end change nothing. An event that is
impossible in a state raises ImpossibleEventError.
"""

from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.kube import NotCreated
from sandfleet_operator.api.reasons import ClaimReason, EndReason
from sandfleet_operator.api.values import ASLEEP, Claim, Exit, Hold, Mark, Sandbox, State
from sandfleet_operator.plan.scheduler.actions import (
    Action,
    Bind,
    DropWorkspace,
    Gone,
    Hindered,
    Lost,
    Outcome,
    Refused,
    Resume,
    SessionBegun,
    SessionResumed,
    Start,
    Stop,
    Suspend,
    Taken,
)
from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.sessions.recovery import EndSession, after_exit, start_problem

# Why the executor of a warm sandbox of an earlier leader is not one that can be used.
NOT_REACHED = frozenset(
    {
        ClaimReason.EXECUTOR_GONE.value,
        Reason.EXECUTOR_UNREACHABLE.value,
        Reason.EXECUTOR_IDENTITY_INVALID.value,
        Reason.RUNTIME_MISMATCH.value,
    }
)


class ImpossibleEventError(Exception):
    """The event cannot happen in this state: a bug of its reporter."""

    def __init__(self, event: str, sandbox: Sandbox) -> None:
        super().__init__(f"cannot take event {event!r} for sandbox {sandbox.sandbox_id}: it is {sandbox.state.value}")


@dataclass(frozen=True, slots=True)
class Step:
    sandbox: Sandbox | None
    actions: tuple[Action, ...] = ()
    # For the fleet's state, where the event concerns more than this sandbox.
    outcome: Outcome | None = None


def started(sandbox: Sandbox) -> Step:
    """A new sandbox."""
    return Step(sandbox, (Start(sandbox),))


def made(sandbox: Sandbox) -> Step:
    """The API server has what it needs: its start is on its way."""
    return Step(replace(sandbox, unmade=False))


def held(sandbox: Sandbox, hold: Hold, now: float) -> Step:
    """Its start stands for this reason, or goes on; either way its clock begins anew.

    What a start takes is learnt from the starts of a pool, without the time in which no node was to be had.
    """
    started = sandbox.started if sandbox.hold.has_node else now
    return Step(replace(sandbox, hold=hold, started=started, clock=now))


def misplaced(sandbox: Sandbox) -> Step:
    """No node has its start, which its pool does not want any more. A claim that it was for waits for another one."""
    claim = sandbox.claim
    return _ending(sandbox, EndReason.NOT_NEEDED.value, Taken(claim.key) if claim is not None else None)


def not_made(sandbox: Sandbox, why: NotCreated) -> Step:
    """The API server did not let it be made: nothing of it exists, or what exists is being removed."""
    match sandbox.state:
        case State.STARTING:
            return _gone(replace(sandbox, ended_reason=EndReason.NOT_MADE.value), Hindered(sandbox.claim, why))
        case State.ENDED:
            return _gone(sandbox)
        case _:
            raise ImpossibleEventError("not_made", sandbox)


def ready(sandbox: Sandbox, now: float, received: frozenset[Mark] = frozenset()) -> Step:
    """Its executor answers and is what was asked for. `received`: what it was filled with had received."""
    match sandbox.state:
        case State.STARTING if sandbox.claim is None:
            return Step(replace(sandbox, state=State.WARM, ready=now, unmade=False, hold=Hold.NONE, received=received))
        case State.STARTING:
            mine = replace(sandbox, ready=now, unmade=False, hold=Hold.NONE, received=received)
            return _claimed(mine, sandbox.claim, now)
        case State.WARM if sandbox.untried:
            return Step(replace(sandbox, untried=False))
        case State.RECOVERING if sandbox.running:
            return Step(sandbox, (Bind(sandbox),))
        case State.RESUMING:
            return _opened_again(sandbox, now)
        case State.RECOVERING | State.SUSPENDING | State.SUSPENDED | State.ENDED:
            return Step(sandbox)
        case _:
            raise ImpossibleEventError("ready", sandbox)


def assigned(sandbox: Sandbox, waiting: Waiting, now: float) -> Step:
    """A waiting claim gets this warm sandbox."""
    if sandbox.state is not State.WARM or sandbox.ready is None:
        raise ImpossibleEventError("assigned", sandbox)
    mine = replace(sandbox, warm=sandbox.ready <= waiting.asked, arrived=waiting.asked)
    return _claimed(mine, waiting.claim, now)


def bound(sandbox: Sandbox) -> Step:
    """Its executor is open for the claim."""
    match sandbox.state:
        case State.CLAIMED if not sandbox.bound:
            return Step(replace(sandbox, bound=True, untried=False), outcome=SessionBegun())
        case State.RECOVERING if sandbox.running:
            return Step(replace(sandbox, state=State.CLAIMED))
        case State.RESUMING:
            awake = replace(sandbox, state=State.CLAIMED, suspended_until=None, preempted=None, parked=False)
            return Step(awake, outcome=SessionResumed())
        case State.RECOVERING | State.SUSPENDING | State.SUSPENDED | State.ENDED:
            return Step(sandbox)
        case _:
            raise ImpossibleEventError("bound", sandbox)


def unfit(sandbox: Sandbox, problem: Problem) -> Step:
    """It did not become ready in time, is not what was asked for, or could not be opened."""
    match sandbox.state:
        case State.STARTING:
            return _ending(sandbox, problem.reason, Lost(sandbox.claim, problem))
        case State.WARM if sandbox.untried:
            return _ending(sandbox, problem.reason)
        case State.CLAIMED if sandbox.untried and sandbox.claim is not None and problem.reason in NOT_REACHED:
            # That says nothing about the claim, nor about what its pool starts: the claim gets another one.
            return _ending(sandbox, problem.reason, Taken(sandbox.claim.key))
        case State.CLAIMED if not sandbox.bound:
            return _ending(sandbox, problem.reason, Lost(sandbox.claim, problem))
        case State.RECOVERING if sandbox.running:
            # Its exit then counts as one more crash.
            return Step(sandbox, (Stop(sandbox),))
        case State.RESUMING:
            return _asleep_again(sandbox, Lost(sandbox.claim, problem))
        case State.RECOVERING | State.SUSPENDING | State.SUSPENDED | State.ENDED:
            return Step(sandbox)
        case _:
            raise ImpossibleEventError("unfit", sandbox)


def exited(sandbox: Sandbox, end: Exit, now: float, limits: FleetLimits) -> Step:
    """Its process is gone."""
    match sandbox.state:
        case State.ENDED:
            return _gone(sandbox)
        case State.CLAIMED | State.RECOVERING if sandbox.bound:
            return _session_lost_its_executor(sandbox, end, now, limits)
        case State.SUSPENDING if limits.confirms_suspensions and sandbox.claim is not None and sandbox.claim.queue:
            # Until then it uses its quota, and may be resumed without another admission.
            return Step(sandbox)
        case State.SUSPENDING | State.SUSPENDED:
            return fell_asleep(sandbox)
        case State.RESUMING if not limits.recovers:
            # The operator starts another one, and says when that is ready.
            return Step(sandbox)
        case State.RESUMING:
            mine = _put_to_sleep(sandbox, State.SUSPENDED, sandbox.suspended_until)
            return Step(mine, outcome=Lost(sandbox.claim, start_problem(end)))
        case _:
            problem = start_problem(end)
            return _gone(replace(sandbox, ended_reason=problem.reason), Lost(sandbox.claim, problem))


def taken(sandbox: Sandbox) -> Step:
    """Another fleet has taken it while it was warm, with all that belongs to it."""
    match sandbox.state:
        case State.STARTING | State.WARM:
            return Step(None)
        case State.CLAIMED if not sandbox.bound and sandbox.claim is not None:
            return Step(None, outcome=Taken(sandbox.claim.key))
        case State.ENDED:
            return Step(None)
        case _:
            raise ImpossibleEventError("taken", sandbox)


def refused(sandbox: Sandbox, problem: Problem, *, untouched: bool) -> Step:
    """Its claim is refused for good. `untouched`: another claim may have the sandbox."""
    claim = sandbox.claim
    match sandbox.state:
        case State.CLAIMED if not sandbox.bound and claim is not None and untouched and not claim.alone:
            free = replace(sandbox, state=State.WARM, claim=None, lease_expires=None, answered=True, arrived=None)
            return Step(replace(free, warm=False), outcome=Refused(claim.key, problem))
        case State.CLAIMED if not sandbox.bound and claim is not None:
            return _ending(sandbox, problem.reason, Refused(claim.key, problem))
        case State.ENDED:
            return Step(sandbox)
        case _:
            raise ImpossibleEventError("refused", sandbox)


def recovered(sandbox: Sandbox, sandbox_uid: str, now: float) -> Step:
    """The operator has started and opened its next incarnation."""
    fresh = replace(sandbox, sandbox_uid=sandbox_uid, started=now)
    match sandbox.state:
        case State.RECOVERING:
            return Step(replace(fresh, state=State.CLAIMED))
        case State.RESUMING:
            return _opened_again(fresh, now)
        case _:
            raise ImpossibleEventError("recovered", sandbox)


def suspending(sandbox: Sandbox, until: float | None, preempted: float | None = None, *, parked: bool = False) -> Step:
    """The session is put to sleep, until it is resumed or the time `until` has come. `preempted`: since when it is."""
    if sandbox.state is not State.CLAIMED or not sandbox.bound:
        raise ImpossibleEventError("suspending", sandbox)
    mine = replace(_put_to_sleep(sandbox, State.SUSPENDING, until), preempted=preempted, parked=parked)
    return Step(mine, (Suspend(mine),))


def suspended(sandbox: Sandbox, until: float | None, *, running: bool) -> Step:
    """Another writer has put the session to sleep. `running`: its process is still there."""
    match sandbox.state:
        case State.CLAIMED | State.RECOVERING if sandbox.bound:
            return Step(_put_to_sleep(sandbox, State.SUSPENDING if running else State.SUSPENDED, until))
        case State.RESUMING:
            why = "cannot resume the sandbox: it was suspended again meanwhile"
            mine = _put_to_sleep(sandbox, State.SUSPENDING if running else State.SUSPENDED, sandbox.suspended_until)
            return Step(mine, outcome=Lost(sandbox.claim, ClaimReason.SANDBOX_SUSPENDED.problem(why)))
        case _:
            raise ImpossibleEventError("suspended", sandbox)


def fell_asleep(sandbox: Sandbox) -> Step:
    """The suspended session has no process, and uses no quota any more."""
    if sandbox.state not in ASLEEP:
        raise ImpossibleEventError("fell_asleep", sandbox)
    return Step(replace(sandbox, state=State.SUSPENDED, running=False))


def resuming(sandbox: Sandbox, sandbox_uid: str, now: float, *, asked: bool = True) -> Step:
    """There is room for the suspended session. `asked`: the fleet starts it; else another writer has."""
    if sandbox.state not in ASLEEP or (asked and sandbox.running):
        raise ImpossibleEventError("resuming", sandbox)
    woken = replace(sandbox, state=State.RESUMING, sandbox_uid=sandbox_uid, running=True)
    fresh = replace(woken, started=now, hold=Hold.NONE)
    return Step(fresh, (Resume(fresh),) if asked else ())


def removed(sandbox: Sandbox, reason: str) -> Step:
    """Nothing is left of it, and nothing to be done for it."""
    last = replace(sandbox, state=State.ENDED, running=False, ended_reason=reason)
    claim = sandbox.claim if sandbox.state is State.CLAIMED and not sandbox.bound else None
    return Step(None, (Gone(last),), Taken(claim.key) if claim else None)


def replaced(sandbox: Sandbox, sandbox_uid: str, now: float) -> Step:
    """The back-off is over and there is room for a start."""
    if sandbox.state is not State.RECOVERING or sandbox.running:
        raise ImpossibleEventError("replaced", sandbox)
    fresh = replace(sandbox, sandbox_uid=sandbox_uid, started=now, running=True, replace_at=None)
    return Step(fresh, (Start(fresh),))


def undone(sandbox: Sandbox) -> Step:
    """Its caller has left before it was answered: a new sandbox ends, and a session that was resumed sleeps on."""
    if sandbox.state is State.RESUMING:
        return _asleep_again(sandbox)
    return Step(sandbox) if sandbox.state in ASLEEP else ended(sandbox, EndReason.CLAIM_UNDONE.value)


def ended(sandbox: Sandbox, reason: str) -> Step:
    """It has to end: a release, the end of the lease, a claim that was undone, or a pool that is too large."""
    if sandbox.state is State.ENDED:
        return Step(sandbox)
    if not sandbox.running:
        return _gone(replace(sandbox, ended_reason=reason))
    return _ending(sandbox, reason)


def _claimed(sandbox: Sandbox, claim: Claim | None, now: float) -> Step:
    assert claim is not None
    # The caller of a gang is answered when all of it is bound.
    answered = claim.gang is None
    claim = replace(claim, received=sandbox.received) if claim.received != sandbox.received else claim
    mine = replace(sandbox, state=State.CLAIMED, claim=claim, lease_expires=now + claim.lease, answered=answered)
    return Step(mine, (Bind(mine),))


def _put_to_sleep(sandbox: Sandbox, state: State, until: float | None) -> Sandbox:
    """Its lease rests, and what it has crashed before is forgotten."""
    rest = replace(sandbox, lease_expires=None, lease_known=True, lease_asked=None, crashes=0, replace_at=None)
    return replace(rest, state=state, running=state is State.SUSPENDING, suspended_until=until)


def _asleep_again(sandbox: Sandbox, outcome: Outcome | None = None) -> Step:
    mine = _put_to_sleep(sandbox, State.SUSPENDING, sandbox.suspended_until)
    return Step(mine, (Suspend(mine),), outcome)


def _opened_again(sandbox: Sandbox, now: float) -> Step:
    """A resumed session has a whole lease from now."""
    assert sandbox.claim is not None
    mine = replace(sandbox, lease_expires=now + sandbox.claim.lease)
    return Step(mine, (Bind(mine),))


def _ending(sandbox: Sandbox, reason: str, outcome: Outcome | None = None) -> Step:
    ending = replace(sandbox, state=State.ENDED, ended_reason=reason)
    return Step(ending, (Stop(ending),), outcome)


def _gone(sandbox: Sandbox, outcome: Outcome | None = None) -> Step:
    drop = () if sandbox.keeps_workspace else (DropWorkspace(sandbox.workspace_id),)
    return Step(None, (*drop, Gone(replace(sandbox, state=State.ENDED, running=False))), outcome)


def _session_lost_its_executor(sandbox: Sandbox, end: Exit, now: float, limits: FleetLimits) -> Step:
    decision = after_exit(sandbox, end, now, limits)
    if isinstance(decision, EndSession):
        return _gone(replace(sandbox, ended_reason=decision.reason))
    if not limits.recovers:
        # The operator reports the replacement; until then a process may run.
        restarts = sandbox.restarts + 1
        return Step(replace(sandbox, state=State.RECOVERING, restarts=restarts, last_restart_reason=decision.reason))
    return Step(
        replace(
            sandbox,
            state=State.RECOVERING,
            running=False,
            replace_at=decision.at,
            crashes=decision.crashes,
            restarts=sandbox.restarts + 1,
            last_restart_reason=decision.reason,
        )
    )
