"""Operator and fleet together: each scenario of issue 16 ends well, and without its mend it does not."""

import os

import pytest
from transition.joint.mutants import MUTANTS
from transition.joint.play import faults
from transition.joint.scenarios import a_forged_binding, an_annotation_of_any_content, an_ordinary_day, crash

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))
# Writes of the ordinary day. The short profile looks at some of them.
WRITES, STEP = 84, 1 if EXAMPLES > 5 else 28
FINDS = [pytest.param(one, id=f"{one.point}-{one.finder.__name__}") for one in MUTANTS]
# The admission policy refuses the attack itself.
FORGERIES = {an_annotation_of_any_content, a_forged_binding}


@pytest.mark.parametrize("guarded", [False, True])
def test_an_ordinary_day_keeps_all_promises_and_leaves_nothing(guarded):
    assert faults(an_ordinary_day, guarded=guarded) == []


@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_ends_at_any_write_changes_nothing(done):
    for number in range(1, WRITES, STEP):

        async def day(world, number=number):
            crash(world, number, done=done)
            await an_ordinary_day(world)

        assert (number, faults(day)) == (number, [])


@pytest.mark.parametrize("mutant", FINDS)
def test_the_defect_is_mended(mutant):
    assert faults(mutant.finder) == []


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_the_defect_without_its_mend(mutant):
    with mutant.applied():
        assert faults(mutant.finder) != []


@pytest.mark.parametrize("mutant", [one for one in FINDS if one.values[0].finder in FORGERIES])
def test_the_admission_policy_alone_keeps_a_forgery_out(mutant):
    with mutant.applied():
        assert faults(mutant.finder, guarded=True) == []
