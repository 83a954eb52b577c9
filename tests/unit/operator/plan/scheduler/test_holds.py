"""A start that cannot go on has another clock, takes no start slot of others, and ends if its pool changes."""

import pytest
from sandfleet_operator.api.values import Exit, Hold, State
from sandfleet_operator.plan.scheduler.actions import Bind, Start, Stop
from support.fleet.builders import NOW, a_claim, a_cluster, a_pool, answers, of_kind, starting, starts

TIMES = {Hold.SCHEDULING_GATED: 1200.0, Hold.UNSCHEDULABLE: 900.0, Hold.IMAGE_PULLING: 600.0}
WITHOUT_NODE = [Hold.SCHEDULING_GATED, Hold.UNSCHEDULABLE]


def a_held(hold, pool=None, **limits):
    """A scheduler whose only pool has one start, which stands from ten seconds after its beginning."""
    scheduler = a_cluster(pool or a_pool(name="team/a", target_warm=1), hold_timeouts=TIMES, **limits)
    (uid,) = starts(scheduler.tick(NOW))
    scheduler.held(uid, hold, NOW + 10)
    return scheduler, uid


def stops(actions):
    return [one.sandbox.sandbox_uid for one in of_kind(actions, Stop)]


@pytest.mark.parametrize("hold", list(TIMES))
def test_a_start_that_stands_has_the_time_of_its_hold_and_then_its_own_anew(hold):
    scheduler, uid = a_held(hold)
    assert stops(scheduler.tick(NOW + 10 + TIMES[hold] - 1)) == []
    later = NOW + 10 + TIMES[hold] - 1
    scheduler.held(uid, Hold.NONE, later)
    assert stops(scheduler.tick(later + 59)) == []
    assert stops(scheduler.tick(later + 60)) == [uid]


@pytest.mark.parametrize(
    ("hold", "said"),
    [
        (Hold.SCHEDULING_GATED, "its pod's scheduling gates were not removed within 1200 s"),
        (Hold.UNSCHEDULABLE, "no node had room for it within 900 s"),
        (Hold.IMAGE_PULLING, "its node has not pulled its image within 600 s"),
    ],
)
def test_a_hold_that_lasts_too_long_ends_the_start_and_its_claim_is_told(hold, said):
    scheduler = a_cluster(a_pool(name="team/a", target_warm=0), hold_timeouts=TIMES, start_attempts=1)
    (uid,) = starts(scheduler.ask(a_claim(pool="team/a", max_wait=3600.0), NOW))
    scheduler.held(uid, hold, NOW)
    actions = scheduler.tick(NOW + TIMES[hold])
    assert stops(actions) == [uid]
    actions += scheduler.exited(uid, Exit(signal="SIGKILL"), NOW + TIMES[hold])
    problem = answers(actions)["r1"]
    assert (problem.reason, said in problem.message) == ("StartTimeout", True)


def test_a_pool_larger_than_the_cluster_makes_no_churn():
    scheduler = a_cluster(a_pool(name="team/a", target_warm=3), hold_timeouts=TIMES)
    found = starts(scheduler.tick(NOW))
    for uid in found:
        scheduler.held(uid, Hold.UNSCHEDULABLE, NOW + 1)
    seen = [one for second in range(2, 900) for one in scheduler.tick(NOW + second)]
    assert (len(found), seen) == (3, [])


def test_a_pool_goes_on_to_its_target_while_its_first_starts_wait_for_a_node():
    scheduler = a_cluster(a_pool(name="team/a", target_warm=3), hold_timeouts=TIMES, confirms_starts=True)
    (first,) = starts(scheduler.tick(NOW))
    scheduler.held(first, Hold.UNSCHEDULABLE, NOW)
    more = starts([*scheduler.made(first, NOW), *scheduler.tick(NOW + 1)])
    assert (len(more), starting(scheduler, "team/a")) == (2, 3)


@pytest.mark.parametrize("hold", WITHOUT_NODE)
def test_starts_without_a_node_take_no_slot_of_other_pools_and_are_no_more_than_a_share(hold):
    scheduler = a_cluster(a_pool(name="team/stuck", target_warm=50), hold_timeouts=TIMES)
    for uid in starts(scheduler.tick(NOW)):
        scheduler.held(uid, hold, NOW)
    assert starting(scheduler, "team/stuck") == 10
    scheduler.tick(NOW + 1)
    assert starting(scheduler, "team/stuck") == 10
    scheduler.set_pool(a_pool(name="other/fast", target_warm=50), NOW + 1)
    scheduler.tick(NOW + 2)
    assert starting(scheduler, "other/fast") == 10


def test_a_pull_takes_its_slot():
    scheduler, _ = a_held(Hold.IMAGE_PULLING)
    assert scheduler.capacity.begun("team/a") == 1


@pytest.mark.parametrize("hold", WITHOUT_NODE)
def test_a_corrected_template_replaces_starts_that_no_node_has(hold):
    scheduler, uid = a_held(hold, a_pool(name="team/a", target_warm=1, revision="1"))
    actions = scheduler.set_pool(a_pool(name="team/a", target_warm=1, revision="2"), NOW + 20)
    assert stops(actions) == [uid]
    (start,) = of_kind([*actions, *scheduler.tick(NOW + 21)], Start)
    assert start.sandbox.revision == "2"


def test_a_corrected_template_replaces_the_start_of_a_claim_of_its_own_which_keeps_its_place():
    scheduler = a_cluster(a_pool(name="team/a", target_warm=0, revision="1"), hold_timeouts=TIMES)
    (uid,) = starts(scheduler.ask(a_claim(pool="team/a", pod_image="registry.example/a:1"), NOW))
    scheduler.held(uid, Hold.UNSCHEDULABLE, NOW)
    actions = scheduler.set_pool(a_pool(name="team/a", target_warm=0, revision="2"), NOW + 20)
    actions += scheduler.tick(NOW + 21)
    assert (stops(actions), answers(actions)) == ([uid], {})
    (again,) = starts(actions)
    (bind,) = of_kind(scheduler.ready(again, NOW + 30), Bind)
    assert answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW + 31))["r1"].revision == "2"


def test_a_pool_that_shrinks_ends_starts_that_no_node_has_and_no_other():
    scheduler = a_cluster(a_pool(name="team/a", target_warm=3), hold_timeouts=TIMES)
    first, second, third = starts(scheduler.tick(NOW))
    scheduler.held(second, Hold.UNSCHEDULABLE, NOW)
    scheduler.held(third, Hold.UNSCHEDULABLE, NOW)
    assert stops(scheduler.set_pool(a_pool(name="team/a", target_warm=2), NOW + 5)) == [second]
    assert set(stops(scheduler.set_pool(a_pool(name="team/a", target_warm=0), NOW + 6))) == {third}
    assert scheduler.inventory.get(first).state is State.STARTING


def test_what_a_start_takes_is_learnt_without_the_time_in_which_no_node_was_to_be_had():
    scheduler, uid = a_held(Hold.UNSCHEDULABLE)
    scheduler.held(uid, Hold.IMAGE_PULLING, NOW + 800)
    scheduler.held(uid, Hold.NONE, NOW + 810)
    scheduler.ready(uid, NOW + 814)
    assert scheduler.summary("team/a").start_seconds == 14
    assert scheduler.inventory.held() == 0


def test_news_of_a_hold_that_is_known_or_of_what_is_warm_changes_nothing():
    scheduler, uid = a_held(Hold.UNSCHEDULABLE)
    before = scheduler.inventory.get(uid)
    scheduler.held(uid, Hold.UNSCHEDULABLE, NOW + 500)
    assert scheduler.inventory.get(uid) == before
    scheduler.held(uid, Hold.NONE, NOW + 500)
    scheduler.ready(uid, NOW + 501)
    scheduler.held(uid, Hold.UNSCHEDULABLE, NOW + 502)
    assert scheduler.inventory.get(uid).hold is Hold.NONE
    assert scheduler.held("team/gone", Hold.UNSCHEDULABLE, NOW) == []
