"""The memory guard's decisions: how often to look, and which trees to kill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.base.tree import Tree
from sandfleet_executor.worker.init import guard


@pytest.mark.parametrize(
    ("rss", "tmp", "limit", "victim"),
    [
        ({}, 10, 5, None),
        ({1: 5}, 0, 5, None),
        ({1: 6}, 0, 5, 1),
        ({1: 3, 2: 2}, 0, 5, None),
        ({1: 3, 2: 3}, 0, 5, 2),
        ({1: 4, 2: 3}, 0, 5, 1),
        ({1: 1, 2: 1}, 4, 5, 2),
        ({1: 2, 2: 1}, 3, 5, 1),
    ],
)
def test_the_largest_tree_is_killed_when_all_exceed_the_limit(rss, tmp, limit, victim):
    trees = {pid: Tree(size, 1, 0.0) for pid, size in rss.items()}
    assert guard.trees_to_kill(trees, {}, tmp, limit) == ([] if victim is None else [victim])


@given(
    rss=st.dictionaries(st.integers(2, 99), st.integers(0, 100), max_size=6),
    tmp=st.integers(0, 100),
    limit=st.integers(1, 300),
)
def test_killing_stops_when_the_rest_fits(rss, tmp, limit):
    trees = {pid: Tree(size, 1, 0.0) for pid, size in rss.items()}
    while victims := guard.trees_to_kill(trees, {}, tmp, limit):
        (victim,) = victims
        assert trees[victim].rss == max(each.rss for each in trees.values())
        del trees[victim]
    assert not trees or sum(each.rss for each in trees.values()) + tmp <= limit


def test_samples_are_more_frequent_when_busy_and_when_memory_is_tight():
    idle = guard.interval(busy=False, used=0, limit=100)
    busy = guard.interval(busy=True, used=50, limit=100)
    tight = guard.interval(busy=False, used=51, limit=100)
    assert idle > busy > tight > 0


@pytest.mark.parametrize(
    ("running", "copies", "ended"),
    [
        # Under the limit.
        ({1: 60}, {2: 20}, []),
        # The copy's going is enough.
        ({1: 90}, {2: 20}, [2]),
        # It is not: then it is the tree, and its copy saves its variables.
        ({1: 110}, {2: 20}, [1]),
        # It holds next to nothing.
        ({1: 98}, {2: 3}, [1]),
        # All copies together.
        ({1: 60, 2: 35}, {3: 4, 4: 4}, [3, 4]),
        ({}, {3: 60, 4: 60}, [3, 4]),
    ],
)
def test_copies_are_killed_first_if_that_is_enough(running, copies, ended):
    trees = {pid: Tree(size, 1, 0.0) for pid, size in (running | copies).items()}
    assert guard.trees_to_kill(trees, copies, 0, 100) == ended
