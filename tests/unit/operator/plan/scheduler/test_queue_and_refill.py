"""Recovery, refill, queue and memory: values in, decisions out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import Code
from sandfleet_operator.api.values import Exit, State
from sandfleet_operator.plan.scheduler.claim_queue import (
    observed,
    overdue_problem,
)
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.queues.fair_queue import FairQueue
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.recent import Recent
from sandfleet_operator.plan.scheduler.refill import (
    Refill,
    Room,
    Supply,
    missing_starts,
    refill,
    refill_shared,
    surplus,
)
from sandfleet_operator.plan.scheduler.sessions.recovery import EndSession, Replace, after_exit
from sandfleet_operator.plan.scheduler.starts.health import StartHealth
from sandfleet_rules.backoff import Backoff
from support.fleet.builders import NOW, a_claim, a_sandbox, a_waiting

POLICY = FleetLimits(recovery_delays=(0.0, 0.5, 1.0), stable_after=60.0)


@pytest.mark.parametrize(
    ("end", "decision"),
    [
        (Exit(code=0), EndSession("Closed")),
        (Exit(code=40), EndSession("LeaseExpired")),
        (Exit(code=41), EndSession("Idle")),
        (Exit(code=42), Replace(NOW, 1, "OwnerGone")),
        (Exit(code=43), EndSession("IsolationUnavailable")),
        (Exit(code=44), EndSession("BadConfiguration")),
        (Exit(code=45), Replace(NOW, 1, "Stuck")),
        (Exit(code=1), Replace(NOW, 1, "Crashed")),
        (Exit(code=139), Replace(NOW, 1, "Crashed")),
        (Exit(code=137, out_of_memory=True), Replace(NOW, 1, "OutOfMemory")),
        (Exit(signal="SIGKILL"), Replace(NOW, 1, "Killed")),
        (Exit(message="cannot fork"), Replace(NOW, 1, "StartFailed")),
    ],
)
def test_each_way_to_end_means_the_end_or_a_replacement(end, decision):
    assert after_exit(a_sandbox(State.CLAIMED), end, NOW, POLICY) == decision


@pytest.mark.parametrize(
    ("crashes", "age", "decision"),
    [
        (0, 1, Replace(NOW, 1, "Killed")),
        (1, 1, Replace(NOW + 0.5, 2, "Killed")),
        (2, 59, Replace(NOW + 1.0, 3, "Killed")),
        (3, 1, EndSession("CrashLoop")),
        (3, 60, Replace(NOW, 1, "Killed")),
    ],
)
def test_crashes_back_off_until_they_are_a_loop_and_a_stable_stretch_forgives(crashes, age, decision):
    sandbox = a_sandbox(State.CLAIMED, crashes=crashes, started=NOW - age)
    assert after_exit(sandbox, Exit(signal="SIGKILL"), NOW, POLICY) == decision


def supply(warm=0, starting=0, target=2):
    return Supply(warm=warm, starting=starting, target_warm=target)


def room(slots=4, sandboxes=8, ending=0):
    return Room(slots=slots, sandboxes=sandboxes, ending=ending)


POOL1, POOL2, POOL3 = (a_waiting(number) for number in (1, 2, 3))
OLD1, OLD2 = (a_waiting(number, claim=a_claim(f"r{number}", workspace_id=f"w{number}")) for number in (4, 5))
OWN1 = a_waiting(7, claim=a_claim("r7", pod_image="debian:12"))
OLD_STARTING = a_waiting(6, claim=a_claim("r6", workspace_id="w6"), sandbox_id="s6")


@pytest.mark.parametrize(
    ("waiting", "supply", "room", "expected"),
    [
        pytest.param([], supply(), room(), Refill(shared=2), id="an empty pool is filled to its target"),
        pytest.param([], supply(warm=1, starting=1), room(), Refill(), id="a start in progress counts"),
        pytest.param([], supply(warm=3), room(), Refill(), id="a full pool is left alone"),
        pytest.param([], supply(), room(slots=1), Refill(shared=1), id="starts are bounded by slots"),
        pytest.param([], supply(), room(sandboxes=1), Refill(shared=1), id="starts are bounded by the sandbox limit"),
        pytest.param([], supply(), room(sandboxes=-3), Refill(), id="over the limit nothing starts"),
        pytest.param([POOL1, POOL2, POOL3], supply(), room(), Refill(shared=4), id="waiting claims come on top"),
        pytest.param(
            [POOL1, POOL2], supply(starting=2), room(), Refill(shared=2), id="their starts are not made twice"
        ),
        pytest.param([POOL1], supply(starting=3), room(), Refill(), id="what is too many counts as warm"),
        pytest.param(
            [OLD1], supply(warm=2), room(), Refill(dedicated=(OLD1,)), id="an old workspace needs its own start"
        ),
        pytest.param([OWN1], supply(warm=2), room(), Refill(dedicated=(OWN1,)), id="so does an image of one's own"),
        pytest.param([OLD_STARTING], supply(warm=2), room(), Refill(), id="but only one"),
        pytest.param([POOL1, OLD1], supply(), room(slots=1), Refill(shared=1), id="the first claim starts first"),
        pytest.param([OLD1, POOL1], supply(), room(slots=1), Refill(dedicated=(OLD1,)), id="the other way round too"),
        pytest.param([OLD1], supply(warm=2), room(sandboxes=0), Refill(evict=1), id="a warm one makes room"),
        pytest.param([OLD1, OLD2], supply(warm=1), room(sandboxes=0), Refill(evict=1), id="only what is warm can go"),
        pytest.param([OLD1], supply(warm=2), room(sandboxes=0, ending=1), Refill(), id="room on its way is waited for"),
        pytest.param([POOL1], supply(), room(sandboxes=0), Refill(), id="claims on the pool have nothing to evict"),
    ],
)
def test_refill(waiting, supply, room, expected):
    assert refill(waiting, supply, room) == expected


def test_only_what_is_above_the_target_is_surplus():
    assert [surplus(supply(warm=warm)) for warm in (0, 2, 5)] == [0, 0, 3]


def test_lost_starts_back_off_to_a_limit():
    health, waits = StartHealth(), []
    for _ in range(7):
        health = health.after_loss(health.retry_at, NOW, Backoff(0.5, 10.0))
        waits.append(health.retry_at - NOW)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert health.failures == 7


def places(queue):
    return {one.number: place for one, place in queue.positions(NOW)}


def test_first_come_is_first_served_also_after_waiting_again():
    queue = FairQueue("python", Ledger())
    for one in (POOL3, POOL1, POOL2):
        queue.add(one)
    assert places(queue) == {1: 1, 2: 2, 3: 3}
    assert [queue.position(one) for one in (POOL1, POOL2, POOL3)] == [1, 2, 3]
    assert (queue.discard(POOL1), queue.discard(POOL1)) == (True, False)
    assert (places(queue), len(queue)) == ({2: 1, 3: 2}, 2)
    queue.add(POOL1)
    assert next(queue.turns(NOW)).claim == POOL1.claim


def test_the_observed_start_time_follows_slowly():
    assert observed(None, 3.0) == 3.0
    assert observed(3.0, 8.0) == 4.0


@pytest.mark.parametrize(("full", "code"), [(True, Code.RESOURCE_EXHAUSTED), (False, Code.DEADLINE_EXCEEDED)])
def test_a_claim_that_waited_too_long_is_told_whether_the_limit_was_the_reason(full, code):
    problem = overdue_problem(POOL1, full=full)
    assert (problem.code, problem.retryable) == (code, True)
    assert "within 60 s" in problem.message


def test_recent_entries_forget_the_oldest_first():
    memory = Recent(2)
    for key in ("a", "b", "a", "c"):
        memory.put(key, key.upper())
    assert [memory.get(key) for key in ("a", "b", "c")] == ["A", None, "C"]
    assert len(memory) == 2


FEW = st.integers(0, 4)


@given(FEW, FEW, FEW, FEW, FEW, FEW, st.integers(-1, 4), FEW)
def test_by_numbers_as_much_is_started_and_ended_as_claim_by_claim(
    claims, warm, stale, starting, target, slots, places, ending
):
    has = Supply(warm=warm, starting=starting, target_warm=target, stale=min(stale, warm))
    room = Room(slots=slots, sandboxes=places, ending=ending)
    waiting = [a_waiting(number) for number in range(claims)]
    assert refill_shared(missing_starts(has, claims, 0), has, room) == refill(waiting, has, room)
