"""A change of leader: claims that show their tickets have their places again, whatever order they come back in."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.queue import PriorityClass, QueueSpec, Quota
from sandfleet_operator.api.values import Exit, RequestKey, State
from sandfleet_operator.plan.scheduler.actions import Bind
from support.examples import examples
from support.fleet.builders import NOW, a_claim, a_scheduler, answers, of_kind

CLOSED = Exit(code=0)
QUEUES = ("red", "blue")
SPEC = QueueSpec(nominal=Quota(sandboxes=2), priority_classes=(PriorityClass("high"), PriorityClass("low")))


def a_leader(now):
    scheduler = a_scheduler(target_warm=4, max_sandboxes=40, max_starting=20)
    for queue in QUEUES:
        scheduler.queues.put(queue, SPEC, now)
    settle(scheduler, scheduler.tick(now), now)
    return scheduler


def settle(scheduler, actions, now):
    """The requests that got a sandbox."""
    served = [name for name, result in answers(actions).items() if hasattr(result, "sandbox_id")]
    for bind in of_kind(actions, Bind):
        served += settle(scheduler, scheduler.bound(bind.sandbox.sandbox_uid, now), now)
    while starting := scheduler.inventory.in_state(State.STARTING):
        served += settle(scheduler, scheduler.ready(starting[0].sandbox_uid, now), now)
    return served


def release_one(scheduler, now):
    sandbox = min((one for one in scheduler.inventory.all() if one.bound), key=lambda one: one.sandbox_id)
    actions = scheduler.release(sandbox.sandbox_id, now)
    return settle(scheduler, [*actions, *scheduler.exited(sandbox.sandbox_uid, CLOSED, now)], now)


claims = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.sampled_from("abc"), st.sampled_from(["high", "low"])),
    min_size=6, max_size=24,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(claims, st.integers(0, 6), st.randoms(use_true_random=False))
def test_claims_that_come_back_have_their_positions_and_are_served_in_the_same_order(wanted, served, chance):
    old, now, asked = a_leader(NOW), NOW, {}
    for number, (queue, holder, priority) in enumerate(wanted):
        now += 1.0
        claim = replace(a_claim(queue=queue, priority=priority), key=RequestKey(holder, f"r{number:02}", "python"))
        asked[claim.key] = replace(claim, max_wait=3600.0)
        settle(old, old.ask(asked[claim.key], now), now)
    for _ in range(served):
        release_one(old, now)
    places = {key: old.standing.place(key) for key in old.inventory.waiting}

    new, back = a_leader(now), list(places)
    # What runs at the old leader runs on at the new one.
    for sandbox in [one for one in old.inventory.all() if one.bound]:
        new.adopt(
            replace(sandbox, sandbox_id=f"old-{sandbox.sandbox_id}", sandbox_uid=f"old-{sandbox.sandbox_uid}"), now
        )
    chance.shuffle(back)
    for key in back:
        assert settle(new, new.ask(asked[key], now + 5.0, places[key]), now + 5.0) == []
    before, after = (
        {key: queued.position for key, queued in one.standings(now).items()} for one in (old, new)
    )  # fmt: skip
    assert after == before
    for queue in QUEUES:
        mine = {key.request_id for key in places if asked[key].queue == queue}
        orders = [[name for _ in wanted for name in end(one, queue, now) if name in mine] for one in (old, new)]
        assert orders[0] == orders[1]


def end(scheduler, queue, now):
    """Ends the session of the queue that is there longest, where there is one."""
    mine = [one for one in scheduler.inventory.all() if one.bound and one.claim.queue == queue]
    if not mine:
        return []
    sandbox = min(mine, key=lambda one: one.claim.key.request_id)
    actions = scheduler.release(sandbox.sandbox_id, now)
    return settle(scheduler, [*actions, *scheduler.exited(sandbox.sandbox_uid, CLOSED, now)], now)


def test_a_claim_without_a_ticket_waits_behind_those_that_had_a_place():
    scheduler = a_leader(NOW)
    held = [replace(a_claim(f"h{number}", queue="red"), max_wait=3600.0) for number in range(2)]
    for claim in held:
        settle(scheduler, scheduler.ask(claim, NOW), NOW)
    first = replace(a_claim("r1", queue="red"), max_wait=3600.0)
    settle(scheduler, scheduler.ask(first, NOW + 1), NOW + 1)
    place = scheduler.standing.place(first.key)

    late = a_leader(NOW + 10)
    for claim in held:
        settle(late, late.ask(claim, NOW + 10), NOW + 10)
    newcomer = replace(a_claim("r2", queue="red"), max_wait=3600.0)
    settle(late, late.ask(newcomer, NOW + 10), NOW + 10)
    settle(late, late.ask(first, NOW + 20, place), NOW + 20)
    assert late.standings(NOW + 20)[first.key].position == 1
    assert late.standings(NOW + 20)[newcomer.key].position == 2


@pytest.mark.parametrize("limit", [{"max_length": 1}, {"max_wait": 30.0}])
def test_a_claim_that_had_its_place_is_not_refused_for_newcomers(limit):
    scheduler = a_leader(NOW)
    for number in range(2):
        settle(scheduler, scheduler.ask(a_claim(f"h{number}", queue="red"), NOW), NOW)
    first = replace(a_claim("r1", queue="red"), max_wait=3600.0)
    settle(scheduler, scheduler.ask(first, NOW), NOW)
    place = scheduler.standing.place(first.key)

    late = a_leader(NOW)
    late.queues.put("red", replace(SPEC, **limit), NOW)
    for number in range(3):
        settle(late, late.ask(a_claim(f"n{number}", queue="red"), NOW + 5), NOW + 5)
    settle(late, late.ask(first, NOW + 6, place), NOW + 6)
    assert late.standings(NOW + 6)[first.key].position == 1
