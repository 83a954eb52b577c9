"""The fleet's decisions: what happened, then what is to be done."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.validate import MAX_LEASE
from sandfleet_operator.api.values import Exit, Isolation, State
from sandfleet_operator.plan.scheduler import cycle
from sandfleet_operator.plan.scheduler.actions import AskLease, Bind, DropWorkspace, Start, Stop
from support.fleet.builders import NOW, a_claim, a_pool, a_sandbox, a_scheduler, answers, of_kind

UNFIT = Problem(Code.INTERNAL, "SandboxUnfit", "cannot hand out a sandbox: it is another one")
KILLED = Exit(signal="SIGKILL")


def warm_up(scheduler, now=NOW):
    """Everything that is started gets ready, until nothing more is wanted."""
    scheduler.tick(now)
    while starting := scheduler.inventory.in_state(State.STARTING):
        for sandbox in starting:
            scheduler.ready(sandbox.sandbox_uid, now)
    return scheduler


def a_session(scheduler, request_id="r1", **changes):
    """A claim that was bound: its sandbox."""
    (bind,) = of_kind(scheduler.ask(a_claim(request_id, **changes), NOW), Bind)
    return answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW))[request_id]


def warm(scheduler):
    return [one.sandbox_id for one in scheduler.inventory.in_state(State.WARM)]


def test_an_idle_fleet_starts_its_pool_and_no_more():
    scheduler = a_scheduler(target_warm=2)
    assert len(of_kind(scheduler.tick(NOW), Start)) == 2
    assert scheduler.tick(NOW) == []


def test_a_claim_gets_the_sandbox_that_is_warm_the_longest_and_the_pool_is_refilled():
    scheduler = warm_up(a_scheduler())
    oldest = warm(scheduler)[0]
    actions = scheduler.ask(a_claim(), NOW)
    assert [one.sandbox.sandbox_id for one in of_kind(actions, Bind)] == [oldest]
    assert len(of_kind(actions, Start)) == 1
    assert answers(actions) == {}


def test_a_claim_is_answered_when_its_sandbox_is_open_and_not_before():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler)
    assert (session.state, session.bound, session.warm) == (State.CLAIMED, True, True)
    assert scheduler.session(session.sandbox_id, NOW) == session


def test_claims_on_an_empty_pool_are_served_in_their_order():
    scheduler = a_scheduler(target_warm=0, max_starting=1)
    starts = [start for number in (1, 2) for start in of_kind(scheduler.ask(a_claim(f"r{number}"), NOW), Start)]
    assert len(starts) == 1
    assert [scheduler.standings(NOW)[a_claim(f"r{number}").key].position for number in (1, 2)] == [1, 2]
    (bind,) = of_kind(scheduler.ready(starts[0].sandbox.sandbox_uid, NOW), Bind)
    assert bind.sandbox.claim.key.request_id == "r1"


def test_the_same_request_id_gives_the_same_sandbox_and_starts_nothing():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler)
    assert answers(scheduler.ask(a_claim(), NOW)) == {"r1": session}
    assert len(scheduler.inventory.in_state(State.CLAIMED)) == 1


def test_asking_again_while_waiting_does_not_queue_twice():
    scheduler = a_scheduler(target_warm=0)
    scheduler.ask(a_claim(), NOW)
    assert scheduler.ask(a_claim(), NOW) == []
    assert len(scheduler.inventory.waiting) == 1


def test_a_request_id_whose_sandbox_ended_is_told_so():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler)
    scheduler.release(session.sandbox_id, NOW)
    with pytest.raises(FleetError) as caught:
        scheduler.ask(a_claim(), NOW)
    assert (caught.value.problem.reason, caught.value.problem.code) == ("ClaimEnded", Code.FAILED_PRECONDITION)


def test_a_claim_that_is_left_before_its_binding_is_answered_ends_that_sandbox():
    scheduler = warm_up(a_scheduler())
    (bind,) = of_kind(scheduler.ask(a_claim(), NOW), Bind)
    actions = scheduler.leave(a_claim().key, NOW)
    assert [one.sandbox.sandbox_id for one in of_kind(actions, Stop)] == [bind.sandbox.sandbox_id]
    assert answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW)) == {}


def test_a_claim_that_is_left_while_it_waits_leaves_its_start_to_the_pool():
    scheduler = a_scheduler(target_warm=1, max_starting=1)
    scheduler.ask(a_claim(), NOW)
    assert of_kind(scheduler.leave(a_claim().key, NOW), Stop) == []
    warm_up(scheduler)
    assert len(warm(scheduler)) == 1


def test_leaving_a_claim_that_was_answered_changes_nothing():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler)
    scheduler.leave(a_claim().key, NOW)
    assert scheduler.session(session.sandbox_id, NOW) == session


def test_starts_of_abandoned_claims_end_above_the_target():
    scheduler = a_scheduler(target_warm=1, max_starting=4)
    for number in range(3):
        scheduler.ask(a_claim(f"r{number}"), NOW)
    starting = scheduler.inventory.in_state(State.STARTING)
    for number in range(3):
        scheduler.leave(a_claim(f"r{number}").key, NOW)
    stops = [stop for one in starting for stop in of_kind(scheduler.ready(one.sandbox_uid, NOW), Stop)]
    assert len(stops) == len(starting) - 1
    assert len(warm(scheduler)) == 1


def test_a_pool_that_shrinks_ends_so_many_sandboxes_in_a_cycle_stale_ones_first(monkeypatch):
    monkeypatch.setattr(cycle, "ENDED_AT_ONCE", 2)
    scheduler = a_scheduler(target_warm=5, max_starting=8)
    warm_up(scheduler)
    first, *_, last = sorted(warm(scheduler))
    stale = scheduler.inventory.get(last)
    scheduler.inventory.put(replace(stale, revision="old"))
    ended = [[one.sandbox.sandbox_id for one in of_kind(scheduler.set_pool(a_pool(target_warm=0), NOW), Stop)]]
    while stops := of_kind(scheduler.tick(NOW), Stop):
        ended.append([one.sandbox.sandbox_id for one in stops])
    assert ([len(some) for some in ended], ended[0]) == ([2, 2, 1], [last, first])


def test_a_sandbox_that_cannot_be_opened_is_ended_and_its_claim_gets_the_next():
    scheduler = warm_up(a_scheduler())
    (bind,) = of_kind(scheduler.ask(a_claim(), NOW), Bind)
    actions = scheduler.unfit(bind.sandbox.sandbox_uid, UNFIT, NOW)
    assert [one.sandbox.sandbox_uid for one in of_kind(actions, Stop)] == [bind.sandbox.sandbox_uid]
    (again,) = of_kind(actions, Bind)
    assert again.sandbox.sandbox_id != bind.sandbox.sandbox_id
    assert again.sandbox.claim == bind.sandbox.claim


def test_a_claim_is_told_after_three_sandboxes_that_came_to_nothing():
    scheduler = warm_up(a_scheduler(target_warm=3))
    (bind,) = of_kind(scheduler.ask(a_claim(), NOW), Bind)
    for _ in range(2):
        (bind,) = of_kind(scheduler.unfit(bind.sandbox.sandbox_uid, UNFIT, NOW), Bind)
    assert answers(scheduler.unfit(bind.sandbox.sandbox_uid, UNFIT, NOW)) == {"r1": UNFIT}
    assert scheduler.inventory.waiting == {}


def test_a_claim_that_no_sandbox_would_take_is_told_at_once_and_the_pool_is_not_blamed():
    scheduler = warm_up(a_scheduler())
    (bind,) = of_kind(scheduler.ask(a_claim(), NOW), Bind)
    refused = Problem(Code.INVALID_ARGUMENT, "InvalidClaim", "cannot open the sandbox: no such limit")
    actions = scheduler.unfit(bind.sandbox.sandbox_uid, refused, NOW)
    assert answers(actions) == {"r1": refused}
    assert of_kind(scheduler.ask(a_claim("r2"), NOW), Bind)


def test_lost_starts_wait_longer_each_time_and_then_the_claims_are_told():
    scheduler = a_scheduler(target_warm=0, max_starting=1)
    actions, now, waits = scheduler.ask(a_claim(), NOW), NOW, []
    for _ in range(3):
        (start,) = of_kind(actions, Start)
        lost = scheduler.exited(start.sandbox.sandbox_uid, Exit(code=1, message="boom"), now)
        began = now
        while "r1" not in answers(lost) and not of_kind(actions := scheduler.tick(now), Start):
            now += 0.25
        waits.append(now - began)
    assert waits == [0.5, 1.0, 0.0]
    assert answers(lost)["r1"].message == "cannot start a sandbox: boom"


def test_claims_fail_at_once_when_isolation_is_unavailable():
    scheduler = a_scheduler(target_warm=0)
    (start,) = of_kind(scheduler.ask(a_claim(), NOW), Start)
    problem = answers(scheduler.exited(start.sandbox.sandbox_uid, Exit(code=43, message="no bwrap"), NOW))["r1"]
    assert (problem.code, problem.reason) == (Code.FAILED_PRECONDITION, "IsolationUnavailable")


def test_a_warm_sandbox_that_crashes_is_replaced_by_a_fresh_one():
    scheduler = warm_up(a_scheduler())
    victim = scheduler.inventory.in_state(State.WARM)[0]
    scheduler.exited(victim.sandbox_uid, KILLED, NOW)
    (start,) = of_kind(scheduler.tick(NOW + 1), Start)
    assert start.sandbox.sandbox_id != victim.sandbox_id
    assert start.sandbox.workspace_id != victim.workspace_id


def test_a_session_that_crashes_comes_back_on_its_workspace_with_what_is_left_of_its_lease():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler, lease=100.0)
    (start,) = of_kind(scheduler.exited(session.sandbox_uid, KILLED, NOW + 10), Start)
    assert (start.sandbox.sandbox_id, start.sandbox.workspace_id) == (session.sandbox_id, session.workspace_id)
    assert start.sandbox.sandbox_uid != session.sandbox_uid
    assert scheduler.session(session.sandbox_id, NOW + 10).state is State.RECOVERING
    (bind,) = of_kind(scheduler.ready(start.sandbox.sandbox_uid, NOW + 11), Bind)
    assert bind.sandbox.lease_expires == NOW + 100
    assert answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW + 11)) == {}
    after = scheduler.session(session.sandbox_id, NOW + 11)
    assert (after.state, after.restarts, after.last_restart_reason) == (State.CLAIMED, 1, "Killed")


def test_a_session_that_crashes_in_a_loop_ends():
    scheduler = warm_up(a_scheduler(recovery_delays=(0.0, 0.5)))
    session = a_session(scheduler)
    uid, now = session.sandbox_uid, NOW
    for _ in range(2):
        starts = of_kind(scheduler.exited(uid, KILLED, now), Start) or of_kind(scheduler.tick(now + 0.5), Start)
        uid, now = starts[0].sandbox.sandbox_uid, now + 1
        scheduler.ready(uid, now)
        scheduler.bound(uid, now)
    scheduler.exited(uid, KILLED, now)
    with pytest.raises(FleetError, match="it ended: CrashLoop"):
        scheduler.session(session.sandbox_id, now)


def test_replacements_are_bounded_and_go_before_the_pool():
    scheduler = warm_up(a_scheduler(target_warm=3, max_starting=2))
    sessions = [a_session(scheduler, f"r{number}") for number in range(3)]
    busy = scheduler.inventory.in_state(State.STARTING)
    assert len(busy) == 2
    for one in sessions:
        assert of_kind(scheduler.exited(one.sandbox_uid, Exit(code=42), NOW), Start) == []
    actions = [action for one in busy for action in scheduler.ready(one.sandbox_uid, NOW)]
    assert [start.sandbox.sandbox_id for start in of_kind(actions, Start)] == [one.sandbox_id for one in sessions[:2]]


@pytest.mark.parametrize(("code", "reason"), [(0, "Closed"), (40, "LeaseExpired"), (41, "Idle")])
def test_a_session_whose_executor_ended_as_it_should_is_over(code, reason):
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler)
    actions = scheduler.exited(session.sandbox_uid, Exit(code=code), NOW)
    assert DropWorkspace(session.workspace_id) in actions
    with pytest.raises(FleetError, match=f"it ended: {reason}"):
        scheduler.session(session.sandbox_id, NOW)


def test_the_fleet_ends_a_session_whose_executor_outlives_its_lease():
    scheduler = warm_up(a_scheduler(lease_grace=5.0))
    session = a_session(scheduler, lease=10.0)
    warm_up(scheduler)
    assert of_kind(scheduler.tick(NOW + 14.9), Stop) == []
    with pytest.raises(FleetError, match="LeaseExpired"):
        scheduler.session(session.sandbox_id, NOW + 10)
    assert [one.sandbox.sandbox_id for one in of_kind(scheduler.tick(NOW + 15), Stop)] == [session.sandbox_id]


def test_a_renewed_lease_counts_from_the_renewal():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler, lease=10.0)
    warm_up(scheduler)
    scheduler.renew(session.sandbox_id, 100.0, NOW + 9)
    assert of_kind(scheduler.tick(NOW + 100), Stop) == []
    assert scheduler.session(session.sandbox_id, NOW + 108).lease_expires == NOW + 109


def an_adopted_session(lease=10.0, **limits):
    """A scheduler with nothing but a session of an earlier leader, which may have renewed its lease."""
    scheduler = a_scheduler(target_warm=0, **limits)
    session = a_sandbox(State.CLAIMED, lease_expires=NOW + lease, lease_known=False)
    scheduler.adopt(session, NOW)
    return scheduler, session


def test_the_executor_is_asked_once_before_a_session_of_an_earlier_leader_ends():
    scheduler, session = an_adopted_session(lease_grace=5.0)
    assert of_kind(scheduler.tick(NOW + 14.9), AskLease) == []
    (ask,) = of_kind(scheduler.tick(NOW + 15), AskLease)
    assert ask.sandbox.sandbox_id == session.sandbox_id
    assert of_kind(scheduler.tick(NOW + 16), AskLease) == of_kind(scheduler.tick(NOW + 16), Stop) == []
    # Until the answer is there it may go on.
    assert scheduler.session(session.sandbox_id, NOW + 16)
    scheduler.lease_told(session.sandbox_id, 3600.0, NOW + 17)
    assert scheduler.session(session.sandbox_id, NOW + 17).lease_expires == NOW + 3617
    assert of_kind(scheduler.tick(NOW + 3617), Stop) == []
    assert of_kind(scheduler.tick(NOW + 3622), Stop)


@pytest.mark.parametrize(
    ("left", "expires"),
    [(0.0, 20), (-1.0, 20), (None, 10), (5.0, 25), (MAX_LEASE, 20 + MAX_LEASE), (1e300, 20 + MAX_LEASE)],
)
def test_an_executors_word_counts_at_most_a_longest_lease(left, expires):
    scheduler, session = an_adopted_session()
    scheduler.lease_told(session.sandbox_id, left, NOW + 20)
    assert scheduler.inventory.get(session.sandbox_id).lease_expires == NOW + expires
    # Its first word counts.
    scheduler.lease_told(session.sandbox_id, 1e300, NOW + 20)
    assert scheduler.inventory.get(session.sandbox_id).lease_expires == NOW + expires


def test_an_executor_that_never_answers_has_its_session_ended():
    scheduler, _ = an_adopted_session(lease_grace=5.0, lease_patience=100.0)
    scheduler.tick(NOW + 15)
    assert of_kind(scheduler.tick(NOW + 114.9), Stop) == []
    assert of_kind(scheduler.tick(NOW + 115), Stop)


def test_an_adopted_session_that_is_renewed_is_known():
    scheduler, session = an_adopted_session(lease_grace=0.0)
    scheduler.renew(session.sandbox_id, 5.0, NOW)
    actions = scheduler.tick(NOW + 5)
    assert of_kind(actions, Stop)
    assert not of_kind(actions, AskLease)


def test_a_released_sandbox_counts_until_its_process_is_gone():
    scheduler = warm_up(a_scheduler(max_sandboxes=2))
    session = a_session(scheduler)
    assert of_kind(scheduler.release(session.sandbox_id, NOW), Start) == []
    assert len(of_kind(scheduler.exited(session.sandbox_uid, Exit(code=0), NOW), Start)) == 1


def test_a_claim_waits_no_longer_than_asked():
    scheduler = a_scheduler(target_warm=0)
    scheduler.ask(a_claim("patient", max_wait=60.0), NOW)
    scheduler.ask(a_claim("hasty", max_wait=1.0), NOW)
    assert answers(scheduler.tick(NOW + 0.9)) == {}
    assert [(name, one.code) for name, one in answers(scheduler.tick(NOW + 1)).items()] == [
        ("hasty", Code.DEADLINE_EXCEEDED)
    ]


def test_at_the_sandbox_limit_a_claim_that_waited_too_long_is_told_about_the_limit():
    scheduler = warm_up(a_scheduler(target_warm=1, max_sandboxes=1))
    a_session(scheduler)
    scheduler.ask(a_claim("r2", max_wait=1.0), NOW)
    assert scheduler.standings(NOW)[a_claim("r2").key].reason == "SandboxLimit"
    problem = answers(scheduler.tick(NOW + 1))["r2"]
    assert (problem.code, problem.reason) == (Code.RESOURCE_EXHAUSTED, "SandboxLimit")


def test_a_start_that_takes_too_long_is_ended():
    scheduler = a_scheduler(start_timeout=60.0, target_warm=1)
    (start,) = of_kind(scheduler.tick(NOW), Start)
    assert of_kind(scheduler.tick(NOW + 59), Stop) == []
    assert [one.sandbox.sandbox_uid for one in of_kind(scheduler.tick(NOW + 60), Stop)] == [start.sandbox.sandbox_uid]


def test_a_claim_whose_starts_all_take_too_long_is_refused_as_late_and_not_as_a_defect():
    scheduler = a_scheduler(start_timeout=60.0, target_warm=0, start_attempts=3)
    actions, now = scheduler.ask(a_claim(max_wait=3600.0), NOW), NOW
    for _ in range(3):
        assert answers(actions) == {}
        (start,) = of_kind(actions, Start)
        now += 60
        actions = [*scheduler.tick(now), *scheduler.exited(start.sandbox.sandbox_uid, Exit(signal="SIGKILL"), now)]
        now += 60
        actions += scheduler.tick(now) if not answers(actions) else []
    problem = answers(actions)["r1"]
    assert (problem.code, problem.reason, problem.retryable) == (Code.DEADLINE_EXCEEDED, "StartTimeout", True)


def refusal(scheduler, claim):
    with pytest.raises(FleetError) as caught:
        scheduler.ask(claim, NOW)
    return caught.value.problem.code, caught.value.problem.reason


def test_a_claim_that_can_never_be_served_is_refused_at_once():
    scheduler = a_scheduler(max_waiting=1, target_warm=0)
    assert refusal(scheduler, a_claim(pool="r")) == (Code.NOT_FOUND, "TemplateNotFound")
    with pytest.raises(FleetError, match="there is no template 'pyhton'; there are: "):
        scheduler.ask(a_claim(pool="pyhton"), 0.0)
    assert refusal(scheduler, a_claim("q", pool="team/r")) == (Code.NOT_FOUND, "PoolNotFound")
    assert refusal(scheduler, a_claim(lease=-1.0)) == (Code.INVALID_ARGUMENT, "InvalidDuration")
    assert refusal(scheduler, a_claim(workspace_id="w9")) == (Code.NOT_FOUND, "WorkspaceNotFound")
    assert refusal(scheduler, a_claim(workspace_id="../../etc")) == (Code.INVALID_ARGUMENT, "InvalidId")
    gvisor = a_claim(min_isolation=Isolation.GVISOR)
    assert refusal(scheduler, gvisor) == (Code.FAILED_PRECONDITION, "IsolationUnavailable")
    with pytest.raises(
        FleetError, match="'python' has the isolation 'namespace', and the claim asks for 'gvisor' at least"
    ):
        scheduler.ask(gvisor, NOW)
    scheduler.ask(a_claim("first"), NOW)
    assert refusal(scheduler, a_claim("second")) == (Code.RESOURCE_EXHAUSTED, "QueueFull")


# Workspaces that outlive their session.


def a_kept_workspace(scheduler):
    session = a_session(scheduler, "keeper", keep_workspace=True)
    scheduler.release(session.sandbox_id, NOW)
    assert of_kind(scheduler.exited(session.sandbox_uid, Exit(code=0), NOW), DropWorkspace) == []
    return session.workspace_id


def test_a_kept_workspace_is_bound_by_a_cold_start_of_its_own():
    scheduler = warm_up(a_scheduler())
    workspace = a_kept_workspace(scheduler)
    (start,) = [one for one in of_kind(scheduler.ask(a_claim(workspace_id=workspace), NOW), Start) if one.sandbox.claim]
    assert start.sandbox.workspace_id == workspace
    (bind,) = of_kind(scheduler.ready(start.sandbox.sandbox_uid, NOW), Bind)
    session = answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW))["r1"]
    assert (session.workspace_id, session.warm) == (workspace, False)


def test_a_workspace_has_one_holder():
    scheduler = warm_up(a_scheduler())
    workspace = a_kept_workspace(scheduler)
    scheduler.ask(a_claim("r1", workspace_id=workspace), NOW)
    assert refusal(scheduler, a_claim("r2", workspace_id=workspace)) == (Code.FAILED_PRECONDITION, "WorkspaceBusy")
    fresh = a_session(warm_up(scheduler), "r3")
    assert refusal(scheduler, a_claim("r4", workspace_id=fresh.workspace_id)) == (
        Code.FAILED_PRECONDITION,
        "WorkspaceBusy",
    )


def test_a_claim_on_a_workspace_that_is_being_released_waits_for_its_process_to_end():
    scheduler = warm_up(a_scheduler())
    session = a_session(scheduler, "keeper", keep_workspace=True)
    scheduler.release(session.sandbox_id, NOW)
    assert [
        one
        for one in of_kind(scheduler.ask(a_claim(workspace_id=session.workspace_id), NOW), Start)
        if one.sandbox.claim
    ] == []
    starts = of_kind(scheduler.exited(session.sandbox_uid, Exit(code=0), NOW), Start)
    assert session.workspace_id in {one.sandbox.workspace_id for one in starts}


def test_an_undone_claim_leaves_the_old_workspace_as_it_was():
    scheduler = warm_up(a_scheduler())
    workspace = a_kept_workspace(scheduler)
    (start,) = [one for one in of_kind(scheduler.ask(a_claim(workspace_id=workspace), NOW), Start) if one.sandbox.claim]
    assert of_kind(scheduler.leave(a_claim().key, NOW), Stop)
    assert of_kind(scheduler.exited(start.sandbox.sandbox_uid, KILLED, NOW), DropWorkspace) == []
    assert workspace in scheduler.inventory.kept_workspaces


def test_a_full_fleet_ends_a_warm_sandbox_for_a_claim_on_an_old_workspace():
    scheduler = warm_up(a_scheduler(max_sandboxes=2))
    workspace = a_kept_workspace(scheduler)
    warm_up(scheduler)
    (stop,) = of_kind(scheduler.ask(a_claim(workspace_id=workspace), NOW), Stop)
    (start,) = of_kind(scheduler.exited(stop.sandbox.sandbox_uid, Exit(code=0), NOW), Start)
    assert start.sandbox.workspace_id == workspace


def test_a_kept_volume_is_started_on_when_no_sandbox_has_it():
    scheduler = warm_up(a_scheduler(keeps_workspaces=False, max_kept_workspaces=1))
    a_kept_workspace(scheduler)
    assert not scheduler.inventory.kept_workspaces
    (start,) = [one for one in of_kind(scheduler.ask(a_claim(workspace_id="ns/w"), NOW), Start) if one.sandbox.claim]
    assert start.sandbox.workspace_id == "ns/w"
    assert refusal(scheduler, a_claim("r2", workspace_id="ns/w")) == (Code.FAILED_PRECONDITION, "WorkspaceBusy")


def test_a_start_on_a_workspace_that_fails_is_tried_again_and_is_not_the_pools_fault():
    scheduler = warm_up(a_scheduler(keeps_workspaces=False, start_attempts=2))
    scheduler.ask(a_claim("others", max_wait=100.0, workspace_id="ns/other"), NOW)
    actions = scheduler.ask(a_claim(workspace_id="ns/w"), NOW)
    for _ in range(2):
        (start,) = [one for one in of_kind(actions, Start) if one.sandbox.workspace_id == "ns/w"]
        actions = scheduler.exited(start.sandbox.sandbox_uid, Exit(message="cannot mount it"), NOW)
    assert answers(actions)["r1"].reason == "StartFailed"
    assert scheduler.knows(a_claim("others").key)
    assert not scheduler.knows(a_claim().key)
    assert scheduler.summary("python").reason == ""


def test_kept_workspaces_are_bounded():
    scheduler = warm_up(a_scheduler(max_kept_workspaces=1))
    a_kept_workspace(scheduler)
    assert refusal(scheduler, a_claim(keep_workspace=True)) == (Code.RESOURCE_EXHAUSTED, "TooManyWorkspaces")
