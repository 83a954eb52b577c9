"""Full collections look only at what is newer than the last, and once in a while at everything."""

import gc
import weakref

import pytest
from sandfleet_operator.cluster.tasks import EVERYTHING_SECONDS, ShortCollections


@pytest.fixture
def clock():
    """Of a callback that is called for the length of a test."""
    now = [0.0]
    callback = ShortCollections(lambda: now[0])
    gc.collect()
    gc.callbacks.append(callback)
    yield now
    gc.callbacks.remove(callback)
    gc.unfreeze()
    gc.collect()


class Node:
    """Refers to itself, once it is told to."""


def test_what_survives_a_full_collection_is_not_looked_at_again(clock):
    kept = [Node() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def test_what_was_set_aside_and_has_no_cycle_goes_when_it_is_dropped(clock):
    node = Node()
    gc.collect()
    gone = weakref.ref(node)
    del node
    assert gone() is None


def test_a_cycle_that_was_set_aside_goes_when_everything_is_looked_at(clock):
    node = Node()
    node.itself = node
    gc.collect()
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is not None
    clock[0] = EVERYTHING_SECONDS
    gc.collect()
    gc.collect()
    assert gone() is None


def test_younger_generations_set_nothing_aside(clock):
    before = gc.get_freeze_count()
    kept = [Node() for _ in range(10)]
    gc.collect(1)
    assert gc.get_freeze_count() == before
    assert kept
