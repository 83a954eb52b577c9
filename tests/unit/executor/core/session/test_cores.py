"""Which processors code is kept to."""

import pytest
from sandfleet_executor.core.session.cores import cores


@pytest.mark.parametrize(("cpus", "count"), [(0.05, 1), (1.0, 1), (1.5, 2), (3.0, 3)])
def test_code_has_as_many_as_its_limit_gives_rounded_up(cpus, count):
    found = cores(cpus, {4, 5, 6, 7}, "sandbox")
    assert len(set(found)) == count
    assert set(found) <= {4, 5, 6, 7}


@pytest.mark.parametrize("cpus", [0.0, 3.5, 4.0, 100.0])
def test_without_a_limit_or_with_a_higher_one_than_the_machine_has_there_are_all(cpus):
    assert cores(cpus, range(4), "sandbox") == []


def test_sandboxes_spread_over_the_machine():
    assert {tuple(cores(1.0, range(4), f"sandbox-{number}")) for number in range(100)} == {(0,), (1,), (2,), (3,)}
