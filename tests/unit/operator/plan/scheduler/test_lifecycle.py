"""One sandbox: state in, event, state out."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.values import Exit, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import (
    Bind,
    DropWorkspace,
    Gone,
    Lost,
    Resume,
    SessionBegun,
    SessionResumed,
    Start,
    Stop,
    Suspend,
    Taken,
)
from sandfleet_operator.plan.scheduler.lifecycle import ImpossibleEventError
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from support.fleet.builders import NOW, a_claim, a_sandbox, a_waiting

POLICY = FleetLimits()
PROBLEM = Problem(Code.INTERNAL, "SandboxUnfit", "cannot hand out a sandbox: it is another one")
MINE = a_claim()

STARTING = a_sandbox(State.STARTING)
DEDICATED = a_sandbox(State.STARTING, claim=MINE)
WARM = a_sandbox(State.WARM)
BINDING = a_sandbox(State.CLAIMED, bound=False)
SESSION = a_sandbox(State.CLAIMED)
BACKING_OFF = a_sandbox(State.RECOVERING)
SUSPENDING = a_sandbox(State.SUSPENDING)
SUSPENDED = a_sandbox(State.SUSPENDED)
RESUMING = a_sandbox(State.RESUMING)
REPLACING = a_sandbox(State.RECOVERING, running=True, replace_at=None)
ENDED = a_sandbox(State.ENDED, ended_reason="Released")
EVERY = {
    "starting": STARTING,
    "dedicated": DEDICATED,
    "warm": WARM,
    "binding": BINDING,
    "session": SESSION,
    "backing off": BACKING_OFF,
    "replacing": REPLACING,
    "suspending": SUSPENDING,
    "suspended": SUSPENDED,
    "resuming": RESUMING,
    "ended": ENDED,
}

EVENTS = {
    "ready": lambda s: lifecycle.ready(s, NOW),
    "assigned": lambda s: lifecycle.assigned(s, a_waiting(claim=MINE), NOW),
    "bound": lifecycle.bound,
    "unfit": lambda s: lifecycle.unfit(s, PROBLEM),
    "crashed": lambda s: lifecycle.exited(s, Exit(signal="SIGKILL"), NOW, POLICY),
    "replaced": lambda s: lifecycle.replaced(s, "u2", NOW),
    "ended": lambda s: lifecycle.ended(s, "Released"),
    "suspend": lambda s: lifecycle.suspending(s, NOW + 60),
    "suspended by another": lambda s: lifecycle.suspended(s, NOW + 60, running=True),
    "resume": lambda s: lifecycle.resuming(s, "u2", NOW),
    "resumed by another": lambda s: lifecycle.resuming(s, s.sandbox_uid, NOW, asked=False),
    "undone": lifecycle.undone,
}

# state → event → (next state or "gone" or "impossible", kinds of actions, kind of outcome)
TABLE = {
    "starting": {
        "ready": ("Warm", [], None),
        "unfit": ("Ended", [Stop], Lost),
        "crashed": ("gone", [DropWorkspace, Gone], Lost),
        "ended": ("Ended", [Stop], None),
        "undone": ("Ended", [Stop], None),
    },
    "dedicated": {
        "ready": ("Claimed", [Bind], None),
        "unfit": ("Ended", [Stop], Lost),
        "crashed": ("gone", [DropWorkspace, Gone], Lost),
        "ended": ("Ended", [Stop], None),
        "undone": ("Ended", [Stop], None),
    },
    "warm": {
        "assigned": ("Claimed", [Bind], None),
        "crashed": ("gone", [DropWorkspace, Gone], Lost),
        "ended": ("Ended", [Stop], None),
        "undone": ("Ended", [Stop], None),
    },
    "binding": {
        "bound": ("Claimed", [], SessionBegun),
        "unfit": ("Ended", [Stop], Lost),
        "crashed": ("gone", [DropWorkspace, Gone], Lost),
        "ended": ("Ended", [Stop], None),
        "undone": ("Ended", [Stop], None),
    },
    "session": {
        "crashed": ("Recovering", [], None),
        "ended": ("Ended", [Stop], None),
        "undone": ("Ended", [Stop], None),
        "suspend": ("Suspending", [Suspend], None),
        "suspended by another": ("Suspending", [], None),
    },
    "backing off": {
        "ready": ("Recovering", [], None),
        "bound": ("Recovering", [], None),
        "unfit": ("Recovering", [], None),
        "crashed": ("Recovering", [], None),
        "replaced": ("Recovering", [Start], None),
        "ended": ("gone", [DropWorkspace, Gone], None),
        "undone": ("gone", [DropWorkspace, Gone], None),
        "suspended by another": ("Suspending", [], None),
    },
    "replacing": {
        "ready": ("Recovering", [Bind], None),
        "bound": ("Claimed", [], None),
        "unfit": ("Recovering", [Stop], None),
        "crashed": ("Recovering", [], None),
        "ended": ("Ended", [Stop], None),
        "undone": ("Ended", [Stop], None),
        "suspended by another": ("Suspending", [], None),
    },
    "suspending": {
        "ready": ("Suspending", [], None),
        "bound": ("Suspending", [], None),
        "unfit": ("Suspending", [], None),
        "crashed": ("Suspended", [], None),
        "ended": ("Ended", [Stop], None),
        "undone": ("Suspending", [], None),
        "resumed by another": ("Resuming", [], None),
    },
    "suspended": {
        "ready": ("Suspended", [], None),
        "bound": ("Suspended", [], None),
        "unfit": ("Suspended", [], None),
        "crashed": ("Suspended", [], None),
        "ended": ("gone", [DropWorkspace, Gone], None),
        "undone": ("Suspended", [], None),
        "resume": ("Resuming", [Resume], None),
        "resumed by another": ("Resuming", [], None),
    },
    "resuming": {
        "ready": ("Resuming", [Bind], None),
        "bound": ("Claimed", [], SessionResumed),
        "unfit": ("Suspending", [Suspend], Lost),
        "crashed": ("Suspended", [], Lost),
        "ended": ("Ended", [Stop], None),
        # The session is not lost with a caller who leaves.
        "undone": ("Suspending", [Suspend], None),
        "suspended by another": ("Suspending", [], Lost),
    },
    "ended": {
        "ready": ("Ended", [], None),
        "bound": ("Ended", [], None),
        "unfit": ("Ended", [], None),
        "crashed": ("gone", [DropWorkspace, Gone], None),
        "ended": ("Ended", [], None),
        "undone": ("Ended", [], None),
    },
}
CELLS = [(state, event, TABLE[state].get(event, "impossible")) for state in EVERY for event in EVENTS]


@pytest.mark.parametrize(("state", "event", "expected"), CELLS, ids=[f"{s}-{e}" for s, e, _ in CELLS])
def test_every_event_in_every_state_does_what_the_table_says(state, event, expected):
    if expected == "impossible":
        with pytest.raises(ImpossibleEventError, match="cannot take event"):
            EVENTS[event](EVERY[state])
        return
    step = EVENTS[event](EVERY[state])
    after = step.sandbox.state.value if step.sandbox else "gone"
    assert (after, [type(one) for one in step.actions], type(step.outcome) if step.outcome else None) == expected


def test_a_lost_start_says_which_claim_waits_again_and_why():
    step = lifecycle.exited(DEDICATED, Exit(code=44, message="cannot read the keys"), NOW, POLICY)
    assert step.outcome == Lost(
        MINE, Problem(Code.INTERNAL, "StartFailed", "cannot start a sandbox: cannot read the keys")
    )


def test_a_start_without_isolation_is_a_failed_precondition():
    step = lifecycle.exited(STARTING, Exit(code=43, message="no user namespaces"), NOW, POLICY)
    assert step.outcome.problem.code is Code.FAILED_PRECONDITION
    assert step.outcome.problem.reason == "IsolationUnavailable"


def test_the_lease_begins_with_the_binding():
    step = lifecycle.assigned(WARM, a_waiting(claim=a_claim(lease=7.0)), NOW)
    assert step.sandbox.lease_expires == NOW + 7.0


@pytest.mark.parametrize(("asked", "warm"), [(NOW - 9, True), (NOW - 9.5, False)])
def test_a_sandbox_is_warm_for_those_who_came_after_it_was_ready(asked, warm):
    assert lifecycle.assigned(WARM, a_waiting(asked=asked), NOW).sandbox.warm is warm


def test_a_suspended_session_has_no_lease_and_a_resumed_one_a_whole_one():
    asleep = lifecycle.suspending(replace(SESSION, crashes=3, claim=a_claim(lease=7.0)), NOW + 60).sandbox
    assert (asleep.lease_expires, asleep.suspended_until, asleep.crashes) == (None, NOW + 60, 0)
    gone = lifecycle.exited(asleep, Exit(code=0), NOW, POLICY).sandbox
    assert (gone.running, gone.restarts) == (False, 0)
    again = lifecycle.ready(lifecycle.resuming(gone, "u2", NOW).sandbox, NOW + 5).sandbox
    assert (again.sandbox_uid, again.workspace_id, again.lease_expires) == ("u2", "w1", NOW + 12)
    assert lifecycle.bound(again).sandbox.suspended_until is None
    assert lifecycle.exited(again, Exit(code=1), NOW, POLICY).sandbox.lease_expires is None


def test_on_kubernetes_a_resumed_pod_that_ends_is_replaced_by_the_operator():
    step = lifecycle.exited(RESUMING, Exit(code=1), NOW, FleetLimits(recovers=False))
    assert (step.sandbox, step.outcome) == (RESUMING, None)


def test_a_replacement_is_a_new_incarnation_on_the_same_workspace():
    fresh = lifecycle.replaced(BACKING_OFF, "u2", NOW).sandbox
    assert (fresh.sandbox_id, fresh.sandbox_uid, fresh.workspace_id) == ("s1", "u2", "w1")
    assert (fresh.running, fresh.started, fresh.claim) == (True, NOW, BACKING_OFF.claim)


@pytest.mark.parametrize(
    ("sandbox", "kept"),
    [
        (ENDED, False),
        (replace(ENDED, claim=MINE, bound=True), False),
        (replace(ENDED, claim=a_claim(keep_workspace=True), bound=True), True),
        (replace(ENDED, claim=a_claim(workspace_id="w1"), bound=True), False),
        # Undone before anybody had it: the older session's workspace is as it was.
        (replace(ENDED, claim=a_claim(workspace_id="w1")), True),
        (replace(ENDED, claim=a_claim(keep_workspace=True)), False),
    ],
)
def test_a_workspace_is_dropped_unless_its_session_keeps_it(sandbox, kept):
    step = lifecycle.exited(sandbox, Exit(code=0), NOW, POLICY)
    assert (DropWorkspace("w1") not in step.actions) is kept


@pytest.mark.parametrize("reason", sorted(lifecycle.NOT_REACHED))
def test_a_warm_one_of_an_earlier_leader_that_cannot_be_reached_costs_its_claim_nothing(reason):
    problem = replace(PROBLEM, reason=reason)
    step = lifecycle.unfit(replace(BINDING, untried=True), problem)
    assert (step.sandbox.state, step.outcome) == (State.ENDED, Taken(MINE.key))
    # The controls: one that this leader has verified, and a claim that no executor would take.
    assert isinstance(lifecycle.unfit(BINDING, problem).outcome, Lost)
    assert isinstance(lifecycle.unfit(replace(BINDING, untried=True), PROBLEM).outcome, Lost)


def test_a_warm_one_of_an_earlier_leader_is_tried_once():
    untried = replace(WARM, untried=True)
    assert lifecycle.ready(untried, NOW).sandbox == WARM
    step = lifecycle.unfit(untried, PROBLEM)
    assert (step.sandbox.state, step.actions, step.outcome) == (State.ENDED, (Stop(step.sandbox),), None)
    assert not lifecycle.bound(replace(BINDING, untried=True)).sandbox.untried
