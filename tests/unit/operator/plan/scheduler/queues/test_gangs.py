"""Gangs: all claims are admitted, bound and answered together, or none of them."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kinds.queue import PriorityClass, QueueSpec, Quota
from sandfleet_operator.api.values import Amount, Exit, Gang, RequestKey, State
from sandfleet_operator.plan.scheduler.actions import Bind, Start, Stop
from sandfleet_operator.plan.scheduler.queues.gangs import GRACE, PATIENCE
from support.fleet.builders import NOW, a_claim, a_pool, a_sandbox, a_scheduler, answers, of_kind

UNFIT = Problem(Code.INTERNAL, "SandboxUnfit", "cannot hand out a sandbox: it is another one")


def a_fleet(warm=4, most=40, quota=None, **queue):
    scheduler = a_scheduler(target_warm=warm, max_sandboxes=most, max_starting=20)
    scheduler.queues.put("team", QueueSpec(nominal=Quota(sandboxes=quota), **queue), NOW)
    ready(scheduler, scheduler.tick(NOW))
    return scheduler


def ready(scheduler, actions, now=NOW):
    """Everything that is started becomes ready; what follows."""
    starts, found = of_kind(actions, Start), list(actions)
    while starts:
        following = [one for start in starts for one in scheduler.ready(start.sandbox.sandbox_uid, now)]
        starts, found = of_kind(following, Start), found + following
    return found


def stopped(scheduler, actions, now=NOW):
    """What is to be stopped is gone; what follows."""
    stops = of_kind(actions, Stop)
    return [one for stop in stops for one in scheduler.exited(stop.sandbox.sandbox_uid, Exit(code=0), now)]


def member(number, size=3, gang="g", holder="alice", **changes):
    claim = a_claim(queue="team", gang=Gang(gang, size), **changes)
    return replace(claim, key=RequestKey(holder, f"{gang}{number}", "python"))


def ask(scheduler, *claims, now=NOW):
    return [action for claim in claims for action in scheduler.ask(claim, now)]


def bind(scheduler, actions, now=NOW):
    """The requests that are answered when all that is to be bound is."""
    found = {}
    for one in of_kind(actions, Bind):
        found |= answers(scheduler.bound(one.sandbox.sandbox_uid, now))
    return found


def test_a_gang_waits_until_all_its_claims_are_there_and_is_answered_when_all_are_bound():
    scheduler = a_fleet()
    assert of_kind(ask(scheduler, member(1), member(2)), Bind) == []
    why = scheduler.why_not(member(1).key)
    assert (why.reason, why.message) == ("GangIncomplete", "2 of the 3 claims of its gang are there")
    binds = of_kind(ask(scheduler, member(3)), Bind)
    assert len(binds) == 3
    assert bind(scheduler, binds[:2]) == {}
    assert sorted(bind(scheduler, binds[2:])) == ["g1", "g2", "g3"]
    assert all(one.answered for one in scheduler.inventory.in_state(State.CLAIMED))


def test_a_gang_is_admitted_whole_or_not_at_all():
    scheduler = a_fleet(quota=4)
    assert len(of_kind(ask(scheduler, *(member(number, gang="a") for number in (1, 2, 3))), Bind)) == 3
    assert of_kind(ask(scheduler, *(member(number, gang="b") for number in (1, 2, 3))), Bind) == []
    why = scheduler.why_not(member(1, gang="b").key)
    assert (why.reason, why.message) == ("QuotaReached", "queue team uses 3 of 4 sandboxes of its quota")


def test_claims_behind_a_gang_without_quota_wait_in_their_queue_and_others_pass():
    scheduler = a_fleet(quota=2)
    scheduler.queues.put("other", QueueSpec(), NOW)
    assert len(of_kind(ask(scheduler, a_claim("single", queue="team")), Bind)) == 1
    assert of_kind(ask(scheduler, member(1, 2), member(2, 2), a_claim("behind", queue="team")), Bind) == []
    assert len(of_kind(ask(scheduler, a_claim("other", queue="other")), Bind)) == 1


def test_a_gang_larger_than_the_warm_sandboxes_takes_these_and_is_owed_the_rest():
    scheduler = a_fleet(warm=2, quota=5)
    actions = ask(scheduler, *(member(number, 5) for number in range(5)))
    assert len(of_kind(actions, Bind)) == 2
    # It holds quota for all.
    assert scheduler.queues.summary("team", NOW).admitted == 5
    # What is started goes to the gang before all others.
    assert of_kind(ask(scheduler, a_claim("later")), Bind) == []
    actions = ready(scheduler, actions)
    assert [one.sandbox.claim.gang for one in of_kind(actions, Bind)[:5]] == [Gang("g", 5)] * 5
    assert sorted(bind(scheduler, actions)) == ["g0", "g1", "g2", "g3", "g4", "later"]


def test_a_failed_binding_is_replaced_and_the_quota_is_kept_meanwhile():
    scheduler = a_fleet(quota=3)
    first, *others = of_kind(ask(scheduler, member(1), member(2), member(3)), Bind)
    assert bind(scheduler, others) == {}
    scheduler.ask(a_claim("behind", queue="team"), NOW)
    stops = scheduler.unfit(first.sandbox.sandbox_uid, UNFIT, NOW)
    # What was lost uses its quota until it is gone, and its claim has it then.
    assert of_kind(stops, Bind) == []
    assert scheduler.queues.summary("team", NOW).admitted == 3
    again = stopped(scheduler, stops)
    assert scheduler.queues.summary("team", NOW).admitted == 3
    assert sorted(bind(scheduler, again)) == ["g1", "g2", "g3"]


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_when_one_claim_is_left_all_are_undone_whatever_is_bound(bound):
    scheduler = a_fleet(quota=3)
    binds = of_kind(ask(scheduler, member(1), member(2), member(3)), Bind)
    bind(scheduler, binds[:bound])
    actions = scheduler.leave(member(2).key, NOW)
    assert {key: problem.reason for key, problem in answers(actions).items()} == {
        "g1": "GangBroken",
        "g3": "GangBroken",
    }
    assert len(of_kind(actions, Stop)) == 3
    assert scheduler.queues.summary("team", NOW).admitted == 3
    stopped(scheduler, actions)
    assert scheduler.queues.summary("team", NOW).admitted == 0
    assert not scheduler.inventory.waiting
    # The same requests may come again.
    assert len(of_kind(ask(scheduler, member(1), member(2), member(3)), Bind)) >= 1


def test_at_its_deadline_everything_of_a_gang_is_released():
    scheduler = a_fleet(warm=2, quota=3)
    binds = of_kind(ask(scheduler, member(1, max_wait=5), member(2, max_wait=5), member(3, max_wait=5)), Bind)
    assert bind(scheduler, binds) == {}
    actions = scheduler.tick(NOW + 6)
    assert {problem.reason for problem in answers(actions).values()} == {"NotBoundInTime"}
    assert len(answers(actions)) == 3
    stopped(scheduler, actions)
    assert scheduler.queues.summary("team", NOW + 6).admitted == 0


def test_a_gang_whose_sandbox_ends_before_the_answer_is_refused():
    scheduler = a_fleet(quota=3)
    binds = of_kind(ask(scheduler, member(1), member(2), member(3)), Bind)
    bind(scheduler, binds[:1])
    actions = scheduler.release(binds[0].sandbox.sandbox_id, NOW)
    assert {problem.reason for problem in answers(actions).values()} == {"GangBroken"}
    assert not scheduler.inventory.waiting


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        pytest.param([member(1, 0)], "InvalidGang", id="no size"),
        pytest.param([member(1, 50)], "GangTooLarge", id="more than the fleet may have"),
        pytest.param([member(1, 5)], "GangTooLarge", id="more than the queue may use"),
        pytest.param([member(1, 2), member(2, 3)], "InvalidGang", id="two sizes"),
        pytest.param([member(1, 2), member(2, 2, priority="high")], "InvalidGang", id="two priorities"),
        pytest.param([member(1, 1), member(2, 1)], "InvalidGang", id="one claim too many"),
        pytest.param([member(1, 2, workspace_id="w1")], "InvalidGang", id="an earlier workspace"),
    ],
)
def test_a_gang_that_can_never_be_served_is_refused_at_once(claims, reason):
    scheduler = a_fleet(quota=4, priority_classes=(PriorityClass("high"), PriorityClass("low")))
    scheduler.inventory.kept_workspaces.add("w1")
    ask(scheduler, *claims[:-1])
    with pytest.raises(FleetError) as caught:
        scheduler.ask(claims[-1], NOW)
    assert caught.value.problem.reason == reason


def test_a_gang_that_lacks_sandboxes_lets_other_queues_pass_for_a_while_only():
    scheduler = a_fleet(warm=2, most=4)
    scheduler.set_pool(a_pool(target_warm=2, most=4), NOW)
    bind(scheduler, ready(scheduler, ask(scheduler, a_claim("r1"), a_claim("r2"))))
    assert of_kind(ask(scheduler, *(member(number) for number in (1, 2, 3))), Bind) == []
    assert scheduler.why_not(member(1).key).reason == "SandboxLimit"
    # Two are warm, and the gang needs three.
    assert len(of_kind(ask(scheduler, a_claim("passes")), Bind)) == 1
    later = NOW + PATIENCE
    assert of_kind(scheduler.ask(a_claim("waits"), later), Bind) == []


# After a change of leader.


def adopted(scheduler, number, size=3):
    claim = replace(member(number, size), amount=Amount(sandboxes=1))
    sandbox = a_sandbox(
        State.CLAIMED, sandbox_id=f"old{number}", sandbox_uid=f"old{number}", workspace_id=f"old{number}", claim=claim
    )
    return scheduler.adopt(replace(sandbox, answered=False), NOW)


def test_a_gang_that_an_earlier_leader_had_bound_in_part_is_completed_when_its_callers_come_back():
    scheduler = a_fleet()
    assert adopted(scheduler, 1) == []
    actions = ask(scheduler, member(3), member(1))
    assert (of_kind(actions, Bind), answers(actions)) == ([], {})
    actions = ask(scheduler, member(2))
    assert len(of_kind(actions, Bind)) == 2
    found = bind(scheduler, actions)
    assert sorted(found) == ["g1", "g2", "g3"]
    assert found["g1"].sandbox_id == "old1"


def test_a_gang_that_was_bound_whole_counts_as_answered_and_its_callers_get_their_sandboxes():
    scheduler = a_fleet()
    assert answers([action for number in (1, 2) for action in adopted(scheduler, number)]) == {}
    assert sorted(answers(adopted(scheduler, 3))) == ["g1", "g2", "g3"]
    assert list(answers(ask(scheduler, member(1)))) == ["g1"]
    assert of_kind(scheduler.tick(NOW + 2 * GRACE), Stop) == []


@pytest.mark.parametrize("back", [0, 2])
def test_a_part_of_a_gang_whose_rest_does_not_come_back_ends_after_a_grace_period(back):
    scheduler = a_fleet()
    adopted(scheduler, 1)
    ask(scheduler, *(member(number, max_wait=600) for number in range(1, 1 + back)))
    assert of_kind(scheduler.tick(NOW + GRACE - 1), Stop) == []
    actions = scheduler.tick(NOW + GRACE)
    assert [one.sandbox.sandbox_id for one in of_kind(actions, Stop)] == ["old1"]
    assert {problem.reason for problem in answers(actions).values()} == ({"GangBroken"} if back else set())
    assert not scheduler.inventory.waiting
    assert of_kind(scheduler.tick(NOW + 3 * GRACE), Stop) == []


def test_a_part_of_a_gang_ends_after_a_grace_period_where_others_have_taken_the_quota_of_the_rest():
    scheduler = a_fleet(quota=3)
    adopted(scheduler, 1)
    assert list(bind(scheduler, ask(scheduler, a_claim("other", queue="team")))) == ["other"]
    assert of_kind(ask(scheduler, *(member(number, max_wait=600) for number in (1, 2, 3))), Bind) == []
    actions = scheduler.tick(NOW + GRACE)
    assert "old1" in [one.sandbox.sandbox_id for one in of_kind(actions, Stop)]
    assert {key: problem.reason for key, problem in answers(actions).items()} == dict.fromkeys(
        ["g1", "g2", "g3"], "GangBroken"
    )
    assert not scheduler.inventory.waiting


def test_a_gang_that_was_answered_before_the_change_of_leader_is_left_alone():
    scheduler = a_fleet()
    scheduler.adopt(a_sandbox(State.CLAIMED, claim=member(1)), NOW)
    assert of_kind(scheduler.tick(NOW + 2 * GRACE), Stop) == []
    assert list(answers(scheduler.ask(member(1), NOW))) == ["g1"]
