"""How long an executor may take, and how much of the snapshotter's disk a tenant has."""

import pytest
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.pace import (
    CREDIT_SECONDS,
    FIRST_SECONDS,
    LEAST_BYTES_PER_SECOND,
    SILENCE_SECONDS,
    Pace,
)
from sandfleet_operator.plan.snapshots.scratch import Scratch


def held(step: float, size: int, most: float = 7 * 86_400.0) -> float:
    """Seconds for which an executor holds a turn that moves so much in each step of so many seconds."""
    pace, now = Pace(), 0.0
    pace.moved(0.0)
    while now < most:
        if step > pace.patience:
            return now + pace.patience
        now += step
        pace.moved(step, size)
    return now


def test_the_first_word_may_take_its_time_and_no_other() -> None:
    pace = Pace()
    assert pace.patience == FIRST_SECONDS
    pace.moved(FIRST_SECONDS - 1)
    assert pace.patience == SILENCE_SECONDS


def test_one_that_drips_ends_in_a_minute_whatever_it_has_moved_before() -> None:
    assert held(SILENCE_SECONDS - 1, 1) < 2 * CREDIT_SECONDS
    assert held(0.01, 1) < 2 * CREDIT_SECONDS
    pace = Pace()
    pace.moved(0.0)
    pace.moved(1.0, 1 << 40)
    waited = 0.0
    while pace.patience > 1:
        pace.moved(1.0, 1)
        waited += 1
    assert waited <= CREDIT_SECONDS


def test_one_that_is_slow_and_moves_on_takes_as_long_as_its_size_needs() -> None:
    assert held(10.0, 10 * LEAST_BYTES_PER_SECOND) == 7 * 86_400.0
    # Many small files, too.
    pace = Pace()
    pace.moved(0.0)
    for _ in range(10_000):
        pace.moved(1.0, 0, entries=300)
    assert pace.patience == SILENCE_SECONDS


def reason(scratch: Scratch, tenant: str, size: int) -> Reason | None:
    try:
        scratch.take(tenant, size)
    except SnapshotError as error:
        return error.reason
    return None


def test_no_tenant_takes_the_disk_of_others_and_all_together_not_more_than_it_has() -> None:
    scratch = Scratch(100)
    assert reason(scratch, "a", 50) is None
    assert reason(scratch, "a", 1) is Reason.FULL
    assert reason(scratch, "b", 40) is None
    assert reason(scratch, "c", 11) is Reason.FULL
    scratch.give("a", 50)
    assert reason(scratch, "c", 11) is None


@pytest.mark.parametrize("size", [0, 50])
def test_what_was_given_back_can_be_taken_again(size: int) -> None:
    scratch = Scratch(100)
    for _ in range(5):
        scratch.take("a", size)
        scratch.give("a", size)
