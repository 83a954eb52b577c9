"""Operator and fleet together suspend sessions: each goes on with what it had, and without what keeps it does not."""

import os
from dataclasses import replace

import pytest
from sandfleet_operator.fleet.kubernetes.sessions import modes, sleepers
from sandfleet_operator.plan.scheduler import lifecycle
from transition.joint.play import faults
from transition.joint.scenarios import a_suspended_day, crash
from transition.mutant import Mutant

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))
# Writes of the day. The short profile looks at some of them.
WRITES, STEP = 60, 1 if EXAMPLES > 5 else 20


def _with_its_lease(sandbox, state, until):
    return replace(RESTS(sandbox, state, until), lease_expires=sandbox.lease_expires)


RESTS = lifecycle._put_to_sleep
MUTANTS = (
    Mutant("a leader forgets who sleeps", a_suspended_day, ((sleepers, "is_suspended", lambda _: False),)),
    Mutant("the lease goes on", a_suspended_day, ((lifecycle, "_put_to_sleep", _with_its_lease),)),
    Mutant("the operator is not told", a_suspended_day, ((modes, "suspend_patch", lambda *_: []),)),
)
FINDS = [pytest.param(one, id=one.point) for one in MUTANTS]


@pytest.mark.parametrize("guarded", [False, True])
def test_suspended_sessions_go_on_with_what_they_had(guarded):
    assert faults(a_suspended_day, guarded=guarded) == []


@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_ends_at_any_write_changes_nothing(done):
    for number in range(1, WRITES, STEP):

        async def day(world, number=number):
            crash(world, number, done=done)
            await a_suspended_day(world)

        assert (number, faults(day)) == (number, [])


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_what_loses_a_session(mutant):
    with mutant.applied():
        assert faults(mutant.finder) != []
