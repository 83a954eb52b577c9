"""Operator and fleet together: each scenario of issue 16 ends well, and without its mend it does not."""

import pytest
from transition.joint.mutants import MUTANTS
from transition.joint.play import faults
from transition.joint.scenarios import an_ordinary_day

FINDS = [pytest.param(one, id=f"{one.point}-{one.scenario.__name__}") for one in MUTANTS]


def test_an_ordinary_day_keeps_all_promises_and_leaves_nothing():
    assert faults(an_ordinary_day) == []


@pytest.mark.parametrize("mutant", FINDS)
def test_the_defect_is_mended(mutant):
    assert faults(mutant.scenario) == []


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_the_defect_without_its_mend(mutant):
    with mutant.applied():
        assert faults(mutant.scenario) != []
