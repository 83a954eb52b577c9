"""Queues at work in the scheduler: who is admitted, who waits, and why."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.queue import PriorityClass, QueueSpec, Quota, StopPolicy
from sandfleet_operator.api.values import Amount, Exit, RequestKey, State
from sandfleet_operator.plan.scheduler.actions import Admit, Bind, Start, Stop
from support.fleet.builders import NOW, a_claim, a_pool, a_sandbox, a_scheduler, answers, of_kind

CLOSED = Exit(code=0)


def a_fleet(warm=4, **queues):
    """A scheduler with warm sandboxes and queues by name."""
    scheduler = a_scheduler(target_warm=warm, max_sandboxes=40, max_starting=20)
    for name, spec in queues.items():
        scheduler.queues.put(name, spec, NOW)
    scheduler.tick(NOW)
    fill(scheduler)
    return scheduler


def fill(scheduler, now=NOW):
    actions = []
    while starting := scheduler.inventory.in_state(State.STARTING):
        for sandbox in starting:
            actions += scheduler.ready(sandbox.sandbox_uid, now)
    return actions


def of_sandboxes(many, **changes):
    return QueueSpec(nominal=Quota(sandboxes=many), **changes)


def ask(scheduler, queue, *requests, now=NOW, holder="alice", **changes):
    """The requests that got a sandbox at once."""
    actions = []
    for request in requests:
        claim = a_claim(queue=queue, **changes)
        actions += scheduler.ask(replace(claim, key=RequestKey(holder, request, "python")), now)
    return bind_all(scheduler, actions, now)


def bind_all(scheduler, actions, now=NOW):
    served = []
    for bind in of_kind(actions, Bind):
        served += answers(scheduler.bound(bind.sandbox.sandbox_uid, now))
    return served


def release(scheduler, request, now=NOW):
    """The requests that got a sandbox by it."""
    sandbox = scheduler.inventory.of_session(RequestKey("alice", request, "python"))
    actions = scheduler.release(sandbox.sandbox_id, now)
    return bind_all(
        scheduler, [*actions, *scheduler.exited(sandbox.sandbox_uid, CLOSED, now), *fill(scheduler, now)], now
    )


def why(scheduler, request, holder="alice"):
    return scheduler.why_not(RequestKey(holder, request, "python"))


def test_a_queue_admits_up_to_its_quota_and_the_next_claim_when_one_is_released():
    scheduler = a_fleet(team=of_sandboxes(2))
    assert ask(scheduler, "team", "r1", "r2", "r3") == ["r1", "r2"]
    assert why(scheduler, "r3").reason == "QuotaReached"
    assert why(scheduler, "r3").message == "queue team uses 2 of 2 sandboxes of its quota"
    assert release(scheduler, "r1") == ["r3"]


def test_claims_without_a_queue_have_no_quota_and_pass_a_queue_that_is_full():
    scheduler = a_fleet(team=of_sandboxes(1))
    assert ask(scheduler, "team", "r1", "r2") == ["r1"]
    assert ask(scheduler, "", "r3", "r4") == ["r3", "r4"]


def test_the_cpu_and_memory_that_a_template_requests_count_against_the_quota():
    scheduler = a_fleet(team=QueueSpec(nominal=Quota(cpu=2500)))
    template = replace(a_pool().template, amount=Amount(sandboxes=1, cpu=1000, memory=1 << 30))
    scheduler.set_pool(a_pool(target_warm=4, template=template), NOW)
    assert ask(scheduler, "team", "r1", "r2", "r3") == ["r1", "r2"]
    assert why(scheduler, "r3").message == "queue team uses 2 of 2.5 CPU of its quota"
    assert scheduler.queues.summary("team", NOW).usage == Amount(sandboxes=2, cpu=2000, memory=2 << 30)


def test_a_cohort_lends_what_is_unused_and_gives_it_back_to_its_owner_first():
    spec = of_sandboxes(2, cohort="all")
    scheduler = a_fleet(warm=8, a=spec, b=spec)
    assert ask(scheduler, "a", "a1", "a2", "a3", "a4", "a5") == ["a1", "a2", "a3", "a4"]
    assert scheduler.queues.summary("a", NOW).borrowed == Amount(sandboxes=2)
    assert why(scheduler, "a5").reason == "CohortExhausted"
    assert ask(scheduler, "b", "b1") == []
    assert why(scheduler, "b1").message == "the quota of queue b is lent, and 4 of 4 sandboxes of cohort all are in use"
    assert release(scheduler, "a1") == ["b1"]
    assert ask(scheduler, "b", "b2") == []
    assert release(scheduler, "a2") == ["b2"]
    # It borrows no more.
    assert release(scheduler, "a3") == ["a5"]


def test_a_release_at_one_pool_serves_a_claim_of_the_same_cohort_at_another():
    spec = of_sandboxes(1, cohort="all")
    scheduler = a_fleet(a=spec, b=spec)
    scheduler.set_pool(replace(a_pool(), name="other"), NOW)
    fill(scheduler)
    assert ask(scheduler, "a", "a1", "a2") == ["a1", "a2"]
    claim = a_claim(queue="b", pool="other")
    assert bind_all(scheduler, scheduler.ask(replace(claim, key=RequestKey("bob", "b1", "other")), NOW)) == []
    assert release(scheduler, "a1") == ["b1"]


def test_an_owner_gets_a_large_sandbox_back_although_small_ones_are_asked_for_all_the_time():
    scheduler = a_fleet(
        warm=8,
        owner=QueueSpec(nominal=Quota(cpu=2000), cohort="all"),
        borrower=QueueSpec(nominal=Quota(cpu=0), cohort="all"),
    )
    small = replace(a_pool().template, amount=Amount(sandboxes=1, cpu=1000))
    large = replace(a_pool(), name="large", template=replace(small, name="large", amount=Amount(sandboxes=1, cpu=2000)))
    scheduler.set_pool(a_pool(target_warm=4, template=small), NOW)
    scheduler.set_pool(large, NOW)
    fill(scheduler)
    assert ask(scheduler, "borrower", "r1", "r2", "r3") == ["r1", "r2"]
    claim = replace(a_claim(queue="owner", pool="large"), key=RequestKey("bob", "big", "large"))
    assert bind_all(scheduler, scheduler.ask(claim, NOW)) == []
    assert release(scheduler, "r1") == []
    assert why(scheduler, "r3").reason == "CohortExhausted"
    assert release(scheduler, "r2") == ["big"]


def test_an_owner_keeps_the_sandbox_that_was_started_for_it_until_its_quota_comes_back():
    scheduler = a_fleet(warm=2, owner=of_sandboxes(1, cohort="all"), borrower=of_sandboxes(0, cohort="all"))
    assert ask(scheduler, "borrower", "r1") == ["r1"]
    scheduler.set_pool(replace(a_pool(target_warm=1), name="other"), NOW)
    fill(scheduler)
    claim = replace(a_claim(queue="owner", pool="other"), key=RequestKey("bob", "own", "other"))
    assert bind_all(scheduler, scheduler.ask(claim, NOW)) == []
    scheduler.set_pool(replace(a_pool(target_warm=0), name="other"), NOW)
    assert scheduler.inventory.count_of("other", State.WARM) == 1
    assert release(scheduler, "r1") == ["own"]


def test_lending_and_borrowing_limits_hold():
    lends = of_sandboxes(4, cohort="all", lending=Quota(sandboxes=1))
    borrows = of_sandboxes(1, cohort="all", borrowing=Quota(sandboxes=3))
    scheduler = a_fleet(warm=8, lends=lends, borrows=borrows)
    assert ask(scheduler, "borrows", "r1", "r2", "r3") == ["r1", "r2"]
    assert why(scheduler, "r3").reason == "CohortExhausted"
    scheduler.queues.put("lends", replace(lends, lending=Quota()), NOW)
    assert ask(scheduler, "borrows", "r4", "r5") == ["r4"]
    assert why(scheduler, "r5").reason == "QuotaReached"


def test_a_quota_that_is_lowered_below_its_use_ends_nothing_and_admits_nothing():
    scheduler = a_fleet(team=of_sandboxes(3))
    ask(scheduler, "team", "r1", "r2", "r3", "r4")
    assert scheduler.queues.put("team", of_sandboxes(1), NOW) == []
    assert [release(scheduler, one) for one in ("r1", "r2")] == [[], []]
    assert release(scheduler, "r3") == ["r4"]


def test_a_raised_quota_admits_at_once():
    scheduler = a_fleet(team=of_sandboxes(1))
    ask(scheduler, "team", "r1", "r2")
    assert bind_all(scheduler, scheduler.queues.put("team", of_sandboxes(2), NOW)) == ["r2"]


def test_no_sandbox_is_started_for_a_claim_without_quota():
    scheduler = a_fleet(warm=0, team=of_sandboxes(1))
    claims = [a_claim(f"r{number}", queue="team") for number in range(5)]
    assert [len(of_kind(scheduler.ask(claim, NOW), Start)) for claim in claims] == [1, 0, 0, 0, 0]


def test_a_claim_on_an_earlier_workspace_takes_its_quota_when_its_start_begins():
    scheduler = a_fleet(warm=0, team=of_sandboxes(1))
    scheduler.inventory.kept_workspaces |= {"w1", "w2"}
    starts = [of_kind(scheduler.ask(a_claim(one, queue="team", workspace_id=one), NOW), Start) for one in ("w1", "w2")]
    assert [len(one) for one in starts] == [1, 0]
    assert scheduler.queues.summary("team", NOW).admitted == 1


def test_claims_on_earlier_workspaces_that_are_let_go_at_once_take_no_more_than_the_quota():
    scheduler = a_fleet(warm=0, team=of_sandboxes(1, stop=StopPolicy.HOLD))
    scheduler.inventory.kept_workspaces |= {"w1", "w2"}
    scheduler.set_pool(a_pool(target_warm=0, most=0), NOW)
    for one in ("w1", "w2"):
        assert scheduler.ask(a_claim(one, queue="team", workspace_id=one), NOW) == []
    assert scheduler.ask(a_claim("new"), NOW) == []
    assert scheduler.queues.put("team", of_sandboxes(1), NOW) == []
    starts = of_kind(scheduler.set_pool(a_pool(target_warm=0), NOW), Start)
    assert [one.sandbox.claim and one.sandbox.claim.key.request_id for one in starts] == ["w1", None]


def test_a_queue_that_leaves_its_cohort_takes_what_it_had_borrowed_with_it():
    spec = of_sandboxes(2, cohort="all")
    scheduler = a_fleet(warm=8, a=spec, b=spec, c=of_sandboxes(1, cohort="all"))
    assert ask(scheduler, "a", "a1", "a2", "a3", "a4") == ["a1", "a2", "a3", "a4"]
    assert ask(scheduler, "b", "b1", "b2") == ["b1"]
    assert bind_all(scheduler, scheduler.queues.put("a", of_sandboxes(2), NOW)) == ["b2"]


def test_a_borrower_goes_on_when_the_owner_no_longer_asks():
    scheduler = a_fleet(
        warm=4,
        owner=QueueSpec(nominal=Quota(cpu=2000), cohort="all"),
        borrower=QueueSpec(nominal=Quota(cpu=0), cohort="all"),
    )
    template = replace(a_pool().template, amount=Amount(sandboxes=1, cpu=1000))
    large = replace(template, name="large", amount=Amount(sandboxes=1, cpu=2000))
    scheduler.set_pool(a_pool(target_warm=4, template=template), NOW)
    scheduler.set_pool(replace(a_pool(), name="large", template=large), NOW)
    fill(scheduler)
    assert ask(scheduler, "borrower", "r1") == ["r1"]
    claim = replace(a_claim(queue="owner", pool="large"), key=RequestKey("bob", "big", "large"))
    assert scheduler.ask(claim, NOW) == []
    assert ask(scheduler, "borrower", "r2") == []
    assert bind_all(scheduler, scheduler.leave(claim.key, NOW)) == ["r2"]


def test_a_held_queue_admits_nothing_and_a_drained_one_ends_its_sessions():
    scheduler = a_fleet(team=of_sandboxes(4), other=of_sandboxes(4))
    assert ask(scheduler, "team", "r1") == ["r1"]
    assert ask(scheduler, "other", "r2") == ["r2"]
    assert scheduler.queues.put("team", of_sandboxes(4, stop=StopPolicy.HOLD), NOW) == []
    assert ask(scheduler, "team", "r3") == []
    assert why(scheduler, "r3").reason == "QueueHeld"
    drained = scheduler.queues.put("team", of_sandboxes(4, stop=StopPolicy.HOLD_AND_DRAIN), NOW)
    assert [stop.sandbox.claim.key.request_id for stop in of_kind(drained, Stop)] == ["r1"]
    assert bind_all(scheduler, scheduler.queues.put("team", of_sandboxes(4), NOW)) == ["r3"]


CLASSES = (PriorityClass("high"), PriorityClass("low"))


def test_a_higher_class_is_served_first_until_a_claim_of_a_lower_one_has_aged():
    scheduler = a_fleet(team=of_sandboxes(1, priority_classes=CLASSES, ageing=60.0))
    ask(scheduler, "team", "r1")
    ask(scheduler, "team", "old", priority="low", max_wait=3600)
    ask(scheduler, "team", "low", now=NOW + 30, max_wait=3600)
    ask(scheduler, "team", "high", now=NOW + 31, priority="high", max_wait=3600)
    assert release(scheduler, "r1", NOW + 32) == ["high"]
    ask(scheduler, "team", "high2", now=NOW + 33, priority="high", max_wait=3600)
    assert release(scheduler, "high", NOW + 61) == ["old"]
    assert release(scheduler, "old", NOW + 61) == ["high2"]
    assert release(scheduler, "high2", NOW + 62) == ["low"]


def test_one_holder_with_many_claims_does_not_delay_another_holder_of_the_queue():
    scheduler = a_fleet(team=of_sandboxes(1))
    ask(scheduler, "team", "r0")
    ask(scheduler, "team", *(f"r{number}" for number in range(1, 6)))
    ask(scheduler, "team", "b", holder="bob")
    assert release(scheduler, "r0") == ["r1"]
    assert release(scheduler, "r1") == ["b"]


@pytest.mark.parametrize(
    ("spec", "changes", "reason"),
    [
        pytest.param(None, {}, "QueueNotFound", id="no such queue"),
        pytest.param(of_sandboxes(1), {"priority": "high"}, "PriorityNotFound", id="no such class"),
        pytest.param(of_sandboxes(0), {}, "QuotaTooSmall", id="more than the queue may ever use"),
        pytest.param(
            QueueSpec(nominal=Quota(sandboxes=0), cohort="poor"), {}, "QuotaTooSmall", id="its cohort lends nothing"
        ),
    ],
)
def test_a_claim_that_its_queue_cannot_take_is_refused_at_once(spec, changes, reason):
    scheduler = a_fleet(**({"team": spec} if spec else {}))
    with pytest.raises(FleetError) as caught:
        scheduler.ask(a_claim(queue="team", **changes), NOW)
    assert caught.value.problem.reason == reason


def test_a_removed_queue_refuses_its_claims_and_its_sessions_live_on():
    scheduler = a_fleet(team=of_sandboxes(1))
    ask(scheduler, "team", "r1", "r2")
    (problem,) = answers(scheduler.queues.remove("team", NOW)).values()
    assert problem.reason == "QueueNotFound"
    assert scheduler.inventory.of_session(RequestKey("alice", "r1", "python")).state is State.CLAIMED
    scheduler.queues.put("team", of_sandboxes(1), NOW)
    assert ask(scheduler, "team", "r3") == []


def test_sandboxes_of_an_earlier_leader_use_the_quota_that_their_record_says():
    scheduler = a_fleet(team=of_sandboxes(2))
    claim = a_claim("old", queue="team", amount=Amount(sandboxes=1))
    scheduler.adopt(a_sandbox(State.CLAIMED, sandbox_id="old", sandbox_uid="old", claim=claim), NOW)
    assert ask(scheduler, "team", "r1", "r2") == ["r1"]


def declare(scheduler, key, queue="team", now=NOW, **changes):
    return [one.key for one in of_kind(declaration(scheduler, key, queue, now, **changes), Admit)]


def declaration(scheduler, key, queue="team", now=NOW, amount=None, **changes):
    return scheduler.queues.declare(key, queue, amount or Amount(sandboxes=1), **{"asked": now, "now": now} | changes)


def test_a_declared_sandbox_is_admitted_within_the_quota_that_claims_use_too():
    scheduler = a_fleet(team=of_sandboxes(2))
    assert declare(scheduler, "one") == ["one"]
    assert declare(scheduler, "one") == []
    assert ask(scheduler, "team", "r1", "r2") == ["r1"]
    assert declare(scheduler, "two") == []
    assert scheduler.queues.why_declared("two").reason == "QuotaReached"
    assert bind_all(scheduler, scheduler.queues.withdraw("one", NOW)) == ["r2"]
    sandbox = scheduler.inventory.of_session(RequestKey("alice", "r1", "python"))
    # The quota is free when the process is gone, and no earlier.
    assert of_kind(scheduler.release(sandbox.sandbox_id, NOW), Admit) == []
    gone = scheduler.exited(sandbox.sandbox_uid, Exit(code=0), NOW)
    assert [one.key for one in of_kind(gone, Admit)] == ["two"]
    assert scheduler.queues.why_declared("two") is None


def test_a_declared_sandbox_that_was_admitted_before_uses_its_quota_again_without_asking():
    scheduler = a_fleet(team=of_sandboxes(1))
    assert declare(scheduler, "one", admitted=True) == []
    assert declare(scheduler, "two") == []


def test_a_declared_sandbox_waits_until_its_queue_is_there():
    scheduler = a_fleet()
    assert declare(scheduler, "one") == []
    assert scheduler.queues.why_declared("one").reason == "QueueNotFound"
    assert [one.key for one in of_kind(scheduler.queues.put("team", of_sandboxes(1), NOW), Admit)] == ["one"]


def test_declared_sandboxes_are_admitted_by_the_age_of_their_objects():
    scheduler = a_fleet(team=of_sandboxes(1))
    declare(scheduler, "running")
    declare(scheduler, "young", asked=NOW)
    declare(scheduler, "old", asked=NOW - 60)
    assert [one.key for one in of_kind(scheduler.queues.withdraw("running", NOW), Admit)] == ["old"]


def test_the_summary_says_what_is_used_what_waits_and_why():
    scheduler = a_fleet(a=of_sandboxes(1, cohort="all"), b=of_sandboxes(3, cohort="all"))
    ask(scheduler, "a", "r1", "r2", "r3", "r4")
    ask(scheduler, "a", "r5", "r6", now=NOW + 5)
    found = scheduler.queues.summary("a", NOW + 15)
    assert (found.pending, found.admitted, found.oldest_wait, found.share) == (2, 4, 10.0, 0.75)
    assert (found.borrowed, found.reason) == (Amount(sandboxes=3), "CohortExhausted")
    assert scheduler.queues.summary("b", NOW + 15).reason == ""
