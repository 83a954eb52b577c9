"""When a context is copied, and what is said of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.config import Rollback
from sandfleet_executor.core.contexts import rollback
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.rollback import AFTER, MOST_SAVED, SHARE, Budget, Refusal
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.core.limits import Limits

MIB = 1 << 20


def waited(budget, cost, now):
    """A cell has waited for all of a copy; when it goes on."""
    budget.took(cost, now + cost, held_since=now)
    return now + cost


def test_the_first_cells_of_a_context_wait_for_their_copies():
    budget, now = Budget(0.0), 0.0
    for _ in range(MOST_SAVED // 2):
        assert budget.allows(now)
        now = waited(budget, 0.01, now)


@given(costs=st.lists(st.floats(0.001, 0.2), min_size=1, max_size=200), pause=st.floats(0.0001, 0.05))
def test_cells_one_right_after_the_other_are_slowed_for_a_tenth_of_the_time_and_a_few_copies_at_most(costs, pause):
    budget, now, slowed = Budget(0.0), 0.0, 0.0
    for cost in costs:
        now += pause
        budget.comes(now, waits=False)
        if budget.allows(now):
            now, slowed = waited(budget, cost, now), slowed + (1 + AFTER) * cost
    assert slowed <= SHARE * now + (MOST_SAVED + 1) * (1 + AFTER) * max(0.05, *costs)


def test_a_spent_budget_refills_after_a_while_and_after_a_rollback():
    budget = Budget(0.0)
    spend(budget, COST, 0.0)
    assert not budget.allows(0.0)
    assert budget.allows((1 + AFTER) * COST / SHARE)
    spend(budget, COST, 1.0)
    budget.refill()
    assert budget.allows(1.0)


def test_copies_that_slow_no_cell_cost_no_budget():
    budget, now = Budget(0.0), 0.0
    for _ in range(100):
        budget.took(0.05, now, held_since=None)
        now += AFTER * 0.05
        budget.comes(now, waits=False)
    assert budget.allows(now)


@pytest.mark.parametrize(("held_since", "comes"), [(0.04, None), (None, 0.06)])
def test_a_cell_is_charged_for_the_rest_of_a_copy_and_of_what_follows_it(held_since, comes):
    """Of a copy of 0.05 s that ends at 0.05, and slows cells until 0.1."""
    budget, charged = Budget(0.0), 0.0
    while budget.allows(0.0):
        budget.took(0.05, 0.05, held_since=held_since)
        if comes:
            budget.comes(comes, waits=False)
            # The next one is not slowed again.
            budget.comes(comes, waits=False)
        charged += 0.1 - (held_since or comes)
    assert 0 <= charged - (MOST_SAVED - 1) * 0.05 <= 0.06


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
    assert budget.idle_seconds(0.0) == rollback.IDLE_SECONDS
    spend(budget, taken, 1.0)
    budget.ended(1.0)
    budget.comes(1.001, waits=False)
    assert budget.idle_seconds(1.001) == idle


COST = 0.06


def spend(budget, cost, now):
    """No cell may wait for a copy any more, each of which takes so long."""
    budget.took(cost, now, held_since=None)
    while budget.allows(now):
        budget.took(cost, now, held_since=now - cost)


def paced(*pauses):
    """When a copy of COST begins after cells with these pauses between them, as none of them may wait for one."""
    made, now = rollback.Budget(0.0), 0.0
    made.ended(now)
    for pause in pauses:
        now += pause
        made.comes(now, waits=False)
        made.ended(now)
    spend(made, COST, now)
    return made, now


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
    budget, now = paced(*pauses)
    assert budget.idle_seconds(now) == pytest.approx(idle)


def test_a_copy_for_which_the_next_cell_would_wait_begins_at_once():
    """Of a copy that has begun it waits for the rest."""
    budget, now = paced(0.05, 0.05, 0.05, 0.05)
    assert budget.idle_seconds(now) > rollback.IDLE_SECONDS
    assert budget.idle_seconds(now + (1 + AFTER) * COST / SHARE) == rollback.IDLE_SECONDS


def test_a_cell_that_waits_for_the_one_before_comes_without_a_pause():
    budget, _ = paced(1.0, 1.0, 1.0, 1.0)
    spend(budget, COST, 10.0)
    budget.comes(10.0, waits=True)
    assert budget.idle_seconds(10.0) == rollback.MOST_IDLE_SECONDS


def test_the_first_cell_has_no_pause_before_it():
    budget = rollback.Budget(0.0)
    budget.comes(0.001, waits=False)
    spend(budget, COST, 0.001)
    assert budget.idle_seconds(0.001) == rollback.IDLE_SECONDS
