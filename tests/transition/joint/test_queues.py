"""Operator and fleet together under quotas: each scenario ends well, and without what holds the quota it does not."""

import os
from dataclasses import replace

import pytest
from sandfleet_operator.api.values import State
from sandfleet_operator.fleet.kubernetes.api import KubernetesFleetApi
from sandfleet_operator.fleet.kubernetes.queues.admissions import Admissions
from sandfleet_operator.fleet.kubernetes.queues.orphans import Orphans
from sandfleet_operator.fleet.kubernetes.queues.queues import Queues
from sandfleet_operator.fleet.kubernetes.sessions import sleepers
from sandfleet_operator.fleet.kubernetes.sessions.modes import Modes
from sandfleet_operator.fleet.kubernetes.sessions.sleepers import Sleepers
from sandfleet_operator.fleet.kubernetes.snapshots.parking import ClusterParking
from sandfleet_operator.plan.sandbox import admission, plan, pod
from sandfleet_operator.plan.scheduler import inventory
from sandfleet_operator.plan.scheduler.queues.standing.standings import Standings
from sandfleet_operator.plan.scheduler.sessions.preemption import Preemptions
from sandfleet_operator.plan.scheduler.sessions.suspension import Suspensions
from transition.joint import queue_scenarios as scenarios
from transition.joint.play import faults
from transition.joint.scenarios import crash
from transition.mutant import Mutant

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))
# Writes of a_queue_of_two, which has more of them. The short profile looks at some of them.
WRITES, STEP = 70, 1 if EXAMPLES > 5 else 23
SCENARIOS = (
    scenarios.a_queue_of_two,
    scenarios.an_object_beside_its_new_queue,
    scenarios.leaders_that_end_while_objects_wait,
    scenarios.leaders_that_end_while_claims_wait,
    scenarios.pods_that_outlive_their_objects,
    scenarios.a_pod_that_crashes_keeps_its_place,
    scenarios.a_queue_that_is_drained,
    scenarios.queues_that_come_and_go,
    scenarios.borrowed_quota_that_its_owner_needs,
    scenarios.borrowed_quota_of_a_session_without_a_volume,
    scenarios.a_session_that_is_woken_with_kubectl,
    scenarios.a_session_that_is_woken_before_it_gave_its_quota_back,
)


def _a_place_from_now(standings, key):
    return replace(PLACE(standings, key), asked=float("inf"))


def _frees_at_once(sleepers, known, sandbox, *, running, uses_quota):
    del uses_quota
    return ASLEEP(sleepers, known, sandbox, running=running, uses_quota=False)


async def _writes_nothing(_modes, _sandbox):
    return None


async def _nothing(*_):
    pass


ASLEEP = Sleepers._asleep
PLACE = Standings.place
CHARGE = inventory._charge
MUTANTS = (
    Mutant(
        "the operator asks no queue",
        scenarios.a_queue_of_two,
        ((plan, "held_by_queue", lambda *_: None), (plan, "ended_by_queue", lambda *_: None)),
    ),
    Mutant(
        "a leader counts nothing at its takeover",
        scenarios.leaders_that_end_while_objects_wait,
        ((Queues, "take_over", _nothing), (Admissions, "_count", lambda *_: None)),
    ),
    Mutant(
        "quota is free before the pod is gone",
        scenarios.a_queue_of_two,
        ((inventory, "_charge", lambda one: None if one and one.state is State.ENDED else CHARGE(one)),),
    ),
    Mutant(
        "quota is free when the object is gone",
        scenarios.a_queue_of_two,
        ((Orphans, "leave", lambda *_: None), (Orphans, "sandbox_gone", lambda *_: None)),
    ),
    Mutant(
        "a leader counts no pod whose object is gone",
        scenarios.pods_that_outlive_their_objects,
        ((Orphans, "take_over", _nothing),),
    ),
    Mutant("pods do not say their queue", scenarios.pods_that_outlive_their_objects, ((pod, "queue_for_pod", lambda *_: ""),)),
    Mutant(
        "the next leader forgets who is preempted",
        scenarios.borrowed_quota_that_its_owner_needs,
        ((sleepers, "preempted", lambda _: None),),
    ),
    Mutant(
        "a preempted session without a volume ends",
        scenarios.borrowed_quota_of_a_session_without_a_volume,
        ((ClusterParking, "can_park", lambda *_: False),),
    ),
    Mutant(
        "no session is preempted",
        scenarios.borrowed_quota_that_its_owner_needs,
        ((Preemptions, "victims", lambda *_: []),),
    ),
    Mutant(
        "a mode that a user sets is a way round the quota",
        scenarios.a_session_that_is_woken_with_kubectl,
        ((Modes, "give_back", _writes_nothing), (Sleepers, "_asleep", _frees_at_once)),
    ),
    Mutant(
        "quota is free before the object says so",
        scenarios.a_session_that_is_woken_before_it_gave_its_quota_back,
        ((Sleepers, "_asleep", _frees_at_once),),
    ),
    Mutant(
        "the next leader does not see what was given back",
        scenarios.a_session_that_is_woken_with_kubectl,
        ((sleepers, "has_given_back", lambda _: False),),
    ),
    Mutant(
        "a woken session waits for nothing",
        scenarios.a_session_that_is_woken_with_kubectl,
        ((Suspensions, "returns", lambda *_: []),),
    ),
    Mutant("a new queue counts nothing", scenarios.queues_that_come_and_go, ((Admissions, "look_in", lambda *_: None),)),
    Mutant(
        "a leader does not look at tickets",
        scenarios.leaders_that_end_while_claims_wait,
        ((KubernetesFleetApi, "_place", lambda *_: (None, "")),),
    ),
    Mutant(
        "the place of a ticket begins when it is shown",
        scenarios.leaders_that_end_while_claims_wait,
        ((Standings, "place", _a_place_from_now),),
    ),
    Mutant("a drained queue ends nothing", scenarios.a_queue_that_is_drained, ((Admissions, "_ends", lambda *_, **__: None),)),
    Mutant(
        "an admitted object counts for nothing",
        scenarios.a_queue_of_two,
        ((admission, "COUNTED", frozenset()),),
    ),
)  # fmt: skip
FINDS = [pytest.param(one, id=one.point) for one in MUTANTS]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("guarded", [False, True])
def test_the_quota_holds_and_each_that_waits_gets_in(scenario, guarded):
    assert faults(scenario, guarded=guarded) == []


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("scenario", [scenarios.a_queue_of_two, scenarios.a_session_that_is_woken_with_kubectl])
def test_a_process_that_ends_at_any_write_changes_nothing(scenario, done):
    for number in range(1, WRITES, STEP):

        async def story(world, number=number):
            crash(world, number, done=done)
            await scenario(world)

        assert (number, faults(story)) == (number, [])


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_what_does_not_hold_the_quota(mutant):
    with mutant.applied():
        assert faults(mutant.finder) != []
