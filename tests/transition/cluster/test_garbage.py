"""Full collections look only at what is newer than the last, and at everything when the process has grown."""

import asyncio
import gc
import weakref

import pytest
from sandfleet_operator.cluster import tasks
from sandfleet_operator.cluster.tasks import EVERYTHING_SECONDS, GROWN, MOST_NEW, ShortCollections

pytestmark = pytest.mark.slow


class Process:
    """Seconds that pass for the callback, and bytes of memory."""

    def __init__(self):
        self.now, self.bytes = 0.0, 1000

    def later(self, times_as_large=1.0):
        self.now += EVERYTHING_SECONDS
        self.bytes *= times_as_large


@pytest.fixture
def process():
    """With a callback that is called for the length of a test."""
    made = Process()
    callback = ShortCollections(lambda: made.now, lambda: made.bytes)
    gc.collect()
    gc.callbacks.append(callback)
    yield made
    gc.callbacks.remove(callback)
    gc.unfreeze()
    gc.collect()


class Node:
    """Refers to itself, once it is told to."""


def test_what_survives_a_full_collection_is_not_looked_at_again(process):
    kept = [Node() for _ in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def test_what_was_set_aside_and_has_no_cycle_goes_when_it_is_dropped(process):
    node = Node()
    gc.collect()
    gone = weakref.ref(node)
    del node
    assert gone() is None


def a_dropped_cycle():
    """Set aside while it was in use."""
    node = Node()
    node.itself = node
    gc.collect()
    return weakref.ref(node)


def test_a_cycle_that_was_set_aside_goes_when_the_process_has_grown(process):
    # What it has in its first hour is what it needs.
    process.later()
    gone = a_dropped_cycle()
    process.later(GROWN + 0.01)
    gc.collect()
    assert gone() is not None
    gc.collect()
    assert gone() is None
    # And not again before it has grown once more.
    gone = a_dropped_cycle()
    process.later()
    gc.collect()
    gc.collect()
    assert gone() is not None


def test_a_process_that_grows_by_less_than_a_quarter_never_looks_at_everything(process):
    gone = a_dropped_cycle()
    for _ in range(10):
        process.later(1.02)
        gc.collect()
        gc.collect()
    assert gone() is not None


def test_younger_generations_set_nothing_aside(process):
    before = gc.get_freeze_count()
    kept = [Node() for _ in range(10)]
    gc.collect(1)
    assert gc.get_freeze_count() == before
    assert kept


async def test_new_objects_that_replace_old_ones_are_looked_at_before_they_are_too_many(process, monkeypatch):
    monkeypatch.setattr(tasks, "COUNT_SECONDS", 0)
    kept = [[number] for number in range(3 * MOST_NEW)]
    gc.collect()
    for number in range(len(kept)):
        kept[number] = [kept[number][0]]
    # The control: Python's own counts see none of them.
    assert len(gc.get_objects(0)) > 2 * MOST_NEW
    collecting = asyncio.create_task(tasks.collect_in_time())
    for _ in range(5):
        await asyncio.sleep(0)
    collecting.cancel()
    assert len(gc.get_objects(0)) < MOST_NEW
    assert kept
