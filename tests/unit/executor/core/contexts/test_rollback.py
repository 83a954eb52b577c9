"""When a context is copied, and what is said of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.config import Rollback
from sandfleet_executor.core.contexts import rollback
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.rollback import MOST_SAVED, SHARE, Budget, Refusal
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.core.limits import Limits

MIB = 1 << 20


def test_the_first_cells_of_a_context_wait_for_their_copies():
    budget = Budget(0.0)
    for _ in range(MOST_SAVED):
        assert budget.allows(0.0)
        budget.took(0.01, waited=True)


@given(costs=st.lists(st.floats(0.001, 0.2), min_size=1, max_size=200), pause=st.floats(0.0001, 0.05))
def test_cells_one_right_after_the_other_wait_for_a_tenth_of_the_time_and_a_few_copies_at_most(costs, pause):
    budget, now, waited = Budget(0.0), 0.0, 0.0
    for cost in costs:
        now += pause
        if budget.allows(now):
            budget.took(cost, waited=True)
            now, waited = now + cost, waited + cost
    assert waited <= SHARE * now + (MOST_SAVED + 1) * max(0.05, *costs)


def test_a_spent_budget_refills_after_a_while_and_after_a_rollback():
    budget, cost = Budget(0.0), 0.02
    while budget.allows(0.0):
        budget.took(cost, waited=True)
    assert not budget.allows(0.0)
    assert budget.allows(1.0)
    while budget.allows(1.0):
        budget.took(cost, waited=True)
    budget.refill()
    assert budget.allows(1.0)


def test_copies_without_a_waiting_cell_cost_no_budget():
    budget = Budget(0.0)
    for _ in range(100):
        budget.took(0.05, waited=False)
    assert budget.allows(0.0)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"event": "done"},
        {"event": "copied"},
        {"event": "copied", "pids": 3},
        {"event": "copied", "pids": ["3"]},
        {"event": "copied", "pids": [True]},
        {"event": "copied", "pids": [1]},
        {"event": "copied", "pids": [0]},
        {"event": "copied", "pids": [1 << 30]},
        {"event": "copied", "pids": [5, 5]},
        {"event": "copied", "pids": [5]},
        {"event": "copied", "pids": []},
        {"event": "copied", "pids": [], "reason": "No space", "message": ""},
        {"event": "copied", "pids": [], "reason": 3, "message": ""},
    ],
)
def test_what_a_context_says_of_its_copies_is_not_taken_on_trust(header):
    with pytest.raises(BadFrame):
        rollback.copied(header, 2)


def test_pids_or_a_reason():
    assert rollback.copied({"event": "copied", "pids": [5, 6]}, 2) == [5, 6]
    said = {"event": "copied", "pids": [], "reason": "A" * 100, "message": "m\udc80" * 1000}
    assert rollback.copied(said, 2) == Refusal("A" * 64, ("m?" * 1000)[:512])


def test_a_rollback_says_what_it_did():
    assert rollback.done(3, 0).message == "The context was rolled back to its state after cell 3."
    assert rollback.done(3, 2).cells_undone == 2
    assert "undid 2 cells" in rollback.done(3, 2).message
    said = rollback.refused(rollback.MEMORY_SHORT)
    assert (said.done, said.refused) == (False, "MemoryShort")


@pytest.mark.parametrize(
    ("given_values", "most"),
    [
        ({}, 1024),
        ({"max_memory_bytes": 100 * MIB}, 100),
        ({"max_memory_bytes": 1 << 40}, 1024),
        ({"enabled": False}, 0),
    ],
)
def test_never_more_than_half_of_the_memory_is_copied(given_values, most):
    assert Rollback(**given_values).most_bytes(Limits(memory_bytes=2048 * MIB)) == most * MIB


@pytest.mark.parametrize("values", [{"enabled": 1}, {"max_memory_bytes": -1}, {"max_memory_bytes": True}])
def test_a_wrong_switch_is_refused(values):
    with pytest.raises(ConfigError):
        Rollback(**values)


@pytest.mark.parametrize(
    ("taken", "idle"),
    [(0.0001, rollback.IDLE_SECONDS), (0.08, 0.08), (30.0, rollback.MOST_IDLE_SECONDS)],
)
def test_between_quick_cells_a_copy_waits_for_a_pause_as_long_as_a_copy_takes(taken, idle):
    budget = rollback.Budget(0.0)
    assert budget.idle_seconds == rollback.IDLE_SECONDS
    budget.took(taken, waited=False)
    budget.ended(1.0)
    budget.comes(1.001, waits=False)
    assert budget.idle_seconds == idle


COST = 0.06


def paced(*pauses):
    """A budget that knows what a copy costs, after cells with these pauses between them."""
    made, now = rollback.Budget(0.0), 0.0
    made.took(COST, waited=False)
    made.ended(now)
    for pause in pauses:
        now += pause
        made.comes(now, waits=False)
        made.ended(now)
    return made


@pytest.mark.parametrize(
    ("pauses", "idle"),
    [
        # A copy is over before the next cell comes.
        ((0.11, 0.12, 0.5, 3.0), rollback.IDLE_SECONDS),
        # It would not be: it waits for a pause that is longer than the last ones.
        ((0.05, 0.05, 0.05, 0.05), 0.075),
        ((0.1, 0.1, 0.09, 0.1), 0.15),
        ((0.001, 0.001, 0.001, 0.001), COST),
        ((5.0, 0.001), rollback.MOST_IDLE_SECONDS),
        # Older pauses do not count.
        ((0.001, 0.2, 0.2, 0.2, 0.2), rollback.IDLE_SECONDS),
    ],
)
def test_a_copy_begins_at_once_only_where_it_fits_into_the_pauses(pauses, idle):
    assert paced(*pauses).idle_seconds == pytest.approx(idle)


def test_a_cell_that_waits_for_the_one_before_comes_without_a_pause():
    budget = paced(1.0, 1.0, 1.0, 1.0)
    budget.comes(10.0, waits=True)
    assert budget.idle_seconds == rollback.MOST_IDLE_SECONDS


def test_the_first_cell_has_no_pause_before_it():
    budget = rollback.Budget(0.0)
    budget.comes(0.001, waits=False)
    assert budget.idle_seconds == rollback.IDLE_SECONDS
