"""Rounds of failed starts, trouble of the API server, and the slow start of batches."""

import itertools
import math

import pytest
from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.kube import Cause, NotCreated
from sandfleet_operator.api.values import Exit, State
from sandfleet_operator.plan.scheduler.actions import Bind, Start
from sandfleet_operator.plan.scheduler.limits import START_BACKOFF, FleetLimits
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from sandfleet_operator.plan.scheduler.starts.health import LONGEST_PAUSE, MOST_UNMADE, after_refusal
from support.fleet.builders import NOW, a_claim, a_pool, a_scheduler, answers, of_kind

BUSY = NotCreated(Cause.BUSY, "cannot create it: too many requests, please try again later", 7.0)
QUOTA = NotCreated(Cause.QUOTA, "cannot create it: pods is forbidden: exceeded quota: team")
FORBIDDEN = NotCreated(Cause.FORBIDDEN, "cannot create it: admission webhook denied it")
INVALID = NotCreated(Cause.INVALID, "cannot create it: spec.containers is invalid")


def a_confirming_scheduler(target=0, **limits):
    numbers = itertools.count(1)
    settings = {"max_sandboxes": 1000, "max_starting": 300, "recovers": False, "keeps_workspaces": False} | limits
    pool = a_pool(target_warm=target)
    return Scheduler([pool], FleetLimits(confirms_starts=True, **settings), new_id=lambda _: f"id{next(numbers)}")


def starts(actions):
    return [one.sandbox.sandbox_uid for one in of_kind(actions, Start)]


def all_made(scheduler, uids, now=NOW):
    return [uid for made in uids for uid in starts(scheduler.made(made, now))]


def until_start(scheduler, now):
    """The starts of the next round, and how long it took."""
    began = now
    while not (found := starts(scheduler.tick(now))):
        now += 0.25
    return found, now - began


def test_a_batch_that_fails_at_once_counts_as_one_round():
    scheduler = a_scheduler(target_warm=3, max_starting=3)
    (first, *others) = of_kind(scheduler.ask(a_claim(), NOW), Start)
    lost = [scheduler.exited(one.sandbox.sandbox_uid, Exit(code=1, message="boom"), NOW) for one in (first, *others)]
    assert len(lost) == 3
    assert [answers(one) for one in lost] == [{}, {}, {}]
    assert a_claim().key in scheduler.inventory.waiting


def test_a_start_that_outlives_the_pause_of_its_round_still_belongs_to_it():
    scheduler = a_scheduler(target_warm=0, max_starting=3, start_attempts=2)
    batch = [uid for number in range(3) for uid in starts(scheduler.ask(a_claim(f"r{number}", max_wait=600.0), NOW))]
    for later, uid in enumerate(batch):
        assert answers(scheduler.exited(uid, Exit(code=1, message="boom"), NOW + later)) == {}


@pytest.mark.parametrize(
    ("why", "reason", "code"),
    [
        (BUSY, "ApiServerFailed", Code.UNAVAILABLE),
        (QUOTA, "QuotaExceeded", Code.RESOURCE_EXHAUSTED),
        (FORBIDDEN, "CreationForbidden", Code.UNAVAILABLE),
    ],
)
def test_claims_wait_out_trouble_of_the_api_server_and_say_its_reason(why, reason, code):
    scheduler = a_confirming_scheduler()
    actions, now = scheduler.ask(a_claim(max_wait=60.0), NOW), NOW
    for _ in range(6):
        (uid,) = starts(actions)
        actions = scheduler.not_made(uid, why, now)
        assert answers(actions) == {}
        assert scheduler.why_not(a_claim().key).reason == reason
        assert why.message in scheduler.why_not(a_claim().key).message
        assert scheduler.standings(now)[a_claim().key].eta is None
        assert (scheduler.summary("python").reason, scheduler.summary("python").message) == (reason, why.message)
        while now < NOW + 59 and not starts(actions := scheduler.tick(now)):
            now += 0.25
    problem = answers(scheduler.tick(NOW + 60))["r1"]
    assert (problem.reason, problem.code, problem.retryable) == (reason, code, True)


def test_a_claim_is_served_when_the_api_server_takes_starts_again():
    scheduler = a_confirming_scheduler()
    (uid,) = starts(scheduler.ask(a_claim(), NOW))
    scheduler.not_made(uid, BUSY, NOW)
    (uid,), _ = until_start(scheduler, NOW)
    scheduler.made(uid, NOW + 8)
    assert scheduler.why_not(a_claim().key).reason == "PoolEmpty"
    assert scheduler.summary("python").reason == "Filling"
    (bind,) = of_kind(scheduler.ready(uid, NOW + 9), Bind)
    assert answers(scheduler.bound(bind.sandbox.sandbox_uid, NOW + 9))["r1"].claim == a_claim()


def test_pauses_grow_from_round_to_round_and_follow_what_the_api_server_asks_for():
    scheduler, now, waits = a_confirming_scheduler(target=1), NOW, []
    (uid,) = starts(scheduler.tick(now))
    for _ in range(4):
        scheduler.not_made(uid, QUOTA, now)
        (uid,), waited = until_start(scheduler, now)
        now += waited
        waits.append(waited)
    scheduler.not_made(uid, BUSY, now)
    assert waits == [0.5, 1.0, 2.0, 4.0]
    assert until_start(scheduler, now)[1] == 8.0
    fresh = a_confirming_scheduler(target=1)
    (uid,) = starts(fresh.tick(NOW))
    fresh.not_made(uid, BUSY, NOW)
    assert until_start(fresh, NOW)[1] == BUSY.retry_after


@pytest.mark.parametrize("asked", [None, -5.0, 0.0, 1e9, math.inf])
def test_no_answer_of_the_api_server_makes_a_pause_endless(asked):
    trouble = after_refusal(
        None, NotCreated(Cause.BUSY, "x" * 10_000, asked), began=NOW, now=NOW, backoff=START_BACKOFF
    )
    assert 0.5 <= trouble.retry_at - NOW <= LONGEST_PAUSE
    assert len(trouble.message) == 500


def test_an_invalid_pod_fails_its_claims_after_three_rounds_as_any_start_that_fails():
    scheduler = a_confirming_scheduler()
    (uid,) = starts(scheduler.ask(a_claim(), NOW))
    now = NOW
    for _ in range(2):
        assert answers(scheduler.not_made(uid, INVALID, now)) == {}
        (uid,), waited = until_start(scheduler, now)
        now += waited
    assert answers(scheduler.not_made(uid, INVALID, now))["r1"].reason == "StartFailed"


def test_batches_double_while_the_api_server_takes_them():
    scheduler, sizes = a_confirming_scheduler(target=300), []
    going = starts(scheduler.tick(NOW))
    while going:
        sizes.append(len(going))
        going = all_made(scheduler, going)
    assert sizes[:6] == [1, 2, 4, 8, 16, 32]
    assert max(sizes) == MOST_UNMADE
    assert sum(sizes) == 300


def test_a_full_quota_draws_one_create_for_each_round():
    scheduler, created, now = a_confirming_scheduler(target=300), 0, NOW
    while now < NOW + 25:
        for uid in starts(scheduler.tick(now)):
            created += 1
            scheduler.not_made(uid, QUOTA, now)
        now += 0.25
    assert created == 6


def test_a_refusal_in_a_later_batch_begins_again_with_one_start():
    scheduler = a_confirming_scheduler(target=300)
    going = all_made(scheduler, all_made(scheduler, starts(scheduler.tick(NOW))))
    assert len(going) == 4
    assert [starts(scheduler.not_made(uid, QUOTA, NOW)) for uid in going] == [[]] * 4
    assert len(until_start(scheduler, NOW)[0]) == 1


def test_the_next_burst_begins_slowly_again():
    scheduler = a_confirming_scheduler(target=20)
    going, made = starts(scheduler.tick(NOW)), []
    while going:
        made += going
        going = all_made(scheduler, going)
    for uid in made:
        scheduler.ready(uid, NOW)
    assert scheduler.inventory.count(State.WARM) == 20
    assert len(starts(scheduler.set_pool(a_pool(target_warm=60), NOW))) == 1


def test_a_sandbox_that_is_ready_before_its_start_is_confirmed_counts_as_made():
    scheduler = a_confirming_scheduler(target=10)
    (uid,) = starts(scheduler.tick(NOW))
    assert len(starts(scheduler.ready(uid, NOW))) == 2
    assert scheduler.made(uid, NOW) == []


def test_a_start_that_was_undone_before_its_refusal_leaves_nothing():
    scheduler = a_confirming_scheduler()
    (uid,) = starts(scheduler.ask(a_claim(workspace_id="ns/w"), NOW))
    scheduler.leave(a_claim().key, NOW)
    scheduler.not_made(uid, BUSY, NOW)
    assert len(scheduler.inventory) == 0


def test_a_claim_waits_while_the_api_server_does_not_take_bindings():
    scheduler = a_scheduler(target_warm=4)
    for uid in starts(scheduler.tick(NOW)):
        scheduler.ready(uid, NOW)
    (bind,) = of_kind(scheduler.ask(a_claim(), NOW), Bind)
    problem = Problem(Code.UNAVAILABLE, "ApiServerFailed", "cannot claim: the API server does not answer")
    now = NOW
    for _ in range(3):
        actions = scheduler.unfit(bind.sandbox.sandbox_uid, problem, now)
        assert answers(actions) == {}
        assert of_kind(actions, Bind) == []
        assert scheduler.why_not(a_claim().key).reason == "ApiServerFailed"
        while not (binds := of_kind(scheduler.tick(now), Bind)):
            now += 0.25
        (bind,) = binds
    assert now - NOW >= 0.5 + 1.0 + 2.0
    assert answers(scheduler.bound(bind.sandbox.sandbox_uid, now))["r1"].bound
    assert scheduler.summary("python").reason != "ApiServerFailed"
