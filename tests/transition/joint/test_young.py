"""Operator and fleet together keep the promises of young claims (docs/dev/adr/0036); without one rule they do not."""

import os

import pytest
from sandfleet_operator.fleet.kubernetes import adoption
from sandfleet_operator.fleet.kubernetes.observer import Observer
from sandfleet_operator.fleet.kubernetes.sessions import recorder
from sandfleet_operator.fleet.kubernetes.sessions.young import YoungSessions
from sandfleet_operator.plan.sandbox import restarts
from transition.joint import young_scenarios as scenarios
from transition.joint.play import faults
from transition.mutant import Mutant

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))
# Writes of the day with a crash. The short profile looks at some of them.
WRITES, STEP = 40, 1 if EXAMPLES > 5 else 9
SCENARIOS = (
    scenarios.a_young_day,
    scenarios.a_pod_that_ends_while_no_fleet_leads,
    scenarios.a_pod_that_is_deleted,
    scenarios.a_queue_of_one,
)


def _forgets_who_is_young(self, run, sandbox):
    """Their ends are told before they are written down."""
    left = BEGIN(self, run, sandbox)
    run.young = None
    return left


BEGIN = recorder.Recorder.begin
MUTANTS = (
    Mutant("an end is told first", scenarios.a_young_day, ((recorder.Recorder, "begin", _forgets_who_is_young),)),
    Mutant("all are written down at once", scenarios.a_young_day, ((recorder, "young_left", lambda *_: 0.0),)),
    Mutant("lists show objects only", scenarios.a_young_day, ((YoungSessions, "saw", lambda *_, **__: None),)),
    Mutant(
        "a leader goes on with running pods only",
        scenarios.a_pod_that_ends_while_no_fleet_leads,
        ((adoption, "outlives", lambda *_: False),),
    ),
    Mutant(
        "the operator waits for no binding",
        scenarios.a_pod_that_is_deleted,
        ((restarts, "undone_left", lambda *_: 0.0),),
    ),
    Mutant(
        "a leader goes on with written claims only",
        scenarios.a_queue_of_one,
        ((Observer, "_complete", lambda *_: None),),
    ),
)
FINDS = [pytest.param(one, id=one.point) for one in MUTANTS]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("guarded", [False, True])
def test_young_sessions_keep_what_they_were_promised(scenario, guarded):
    assert faults(scenario, guarded=guarded) == []


@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_ends_at_any_write_changes_nothing(done):
    for number in range(1, WRITES, STEP):

        async def day(world, number=number):
            await scenarios.a_crash_at_any_write(world, number, done=done)

        assert (number, faults(day)) == (number, [])


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_what_loses_a_young_session(mutant):
    with mutant.applied():
        assert faults(mutant.finder) != []
