"""Gangs, with operator and fleet together: all or none, at any write, and the world finds what breaks it."""

import os
from functools import partial

import pytest
from sandfleet_operator.fleet.kubernetes.observer import Observer
from sandfleet_operator.plan.scheduler import transitions
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.queues.gangs import Gangs
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from transition.joint import gang_scenarios as scenarios
from transition.joint.play import faults
from transition.mutant import Mutant

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))
# Writes of a claimed gang. The short profile looks at some of them.
WRITES, STEP = 40, 1 if EXAMPLES > 5 else 9
SCENARIOS = (
    scenarios.two_gangs_at_a_queue,
    scenarios.objects_that_come_after_a_gang,
    scenarios.a_gang_that_can_never_be_served,
    scenarios.a_gang_whose_callers_are_gone,
    scenarios.a_leader_that_ends_at_each_bind,
    scenarios.a_leader_that_ends_before_all_is_written_down,
)

MUTANTS = (
    Mutant(
        "a part of a gang is bound before there is room for all",
        scenarios.two_gangs_at_a_queue,
        ((Gangs, "_completed", staticmethod(lambda gang: max(gang.waiting.values(), key=lambda one: one.number, default=None))),),
    ),
    Mutant(
        "objects pass a gang that waits for quota",
        scenarios.objects_that_come_after_a_gang,
        ((Ledger, "kept_at", lambda *_: None),),
    ),
    Mutant(
        "what an earlier leader has bound of a gang stays",
        scenarios.a_gang_whose_callers_are_gone,
        ((Gangs, "abandoned", lambda *_: []),),
    ),
    Mutant(
        "a part of a gang is answered",
        scenarios.a_leader_that_ends_at_each_bind,
        ((PoolQueues, "bind", lambda _self, sandbox: [sandbox.sandbox_id]),),
    ),
    Mutant(
        "a gang of an earlier leader begins anew",
        partial(scenarios.a_leader_that_ends_at_each_bind, numbers=(2,), wait=60.0),
        ((transitions.Transitions, "adopt_part", lambda *_: []), (transitions.Transitions, "rejoin", lambda *_: [])),
    ),
    Mutant(
        "a gang that was answered is undone",
        scenarios.a_leader_that_ends_before_all_is_written_down,
        ((Observer, "_is_told", lambda *_: False),),
    ),
)  # fmt: skip
FINDS = [pytest.param(one, id=one.point) for one in MUTANTS]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_a_gang_is_answered_whole_or_not_at_all(scenario):
    assert faults(scenario) == []


@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_ends_at_any_write_leaves_no_part_of_a_gang(done):
    for number in range(1, WRITES, STEP):

        async def story(world, number=number):
            await scenarios.a_crash_at_any_write(world, number, done=done)

        assert (number, faults(story)) == (number, [])


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_what_breaks_gangs(mutant):
    with mutant.applied():
        assert faults(mutant.finder) != []
