"""A change that concerns many sandboxes wakes them in turns, and what it names itself at once."""

import asyncio
import itertools

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX, NETWORK_POLICY, NODE, POD, SANDBOX_TEMPLATE
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.pods import names
from sandfleet_operator.reconciler import waking
from sandfleet_operator.reconciler.reconcile import Key
from sandfleet_operator.reconciler.waking import FEW, Waker

MANY = 40


class Queue:
    """Notes what is added to it."""

    def __init__(self) -> None:
        self.added: list[tuple[Key, bool]] = []

    def add(self, key: Key, *, behind: bool = False) -> None:
        self.added.append((key, behind))


@pytest.fixture
def queue(monkeypatch):
    monkeypatch.setattr(waking, "TURN", 4)
    return Queue()


@pytest.fixture
def waker(queue):
    store = Store()
    for number in range(MANY):
        meta = {"namespace": "team", "name": f"s{number}", "uid": f"u{number}", "resourceVersion": "1"}
        store.put(CODE_SANDBOX, {"metadata": meta, "spec": {"templateRef": {"name": "python"}}})
        labels, where = {names.SANDBOX: f"s{number}"}, {"nodeName": f"node-{number % 2}"}
        pod = {**meta, "name": f"pod-{number}", "uid": f"p{number}", "labels": labels}
        store.put(POD, {"metadata": pod, "spec": where})
    return Waker(store, queue)


TEMPLATE = {"metadata": {"namespace": "team", "name": "python"}}
NAMED = [Key("template", "team", "python"), Key("namespace", "team")]


async def grown(queue: Queue) -> list[int]:
    """How many keys there were each time that others had their turn."""
    seen = []
    while not seen or len(queue.added) < len(NAMED) + MANY:
        seen.append(len(queue.added))
        await asyncio.sleep(0)
    return seen


async def test_sandboxes_of_a_template_are_woken_in_turns_and_let_others_go_first(waker, queue):
    waker.wake(SANDBOX_TEMPLATE, TEMPLATE)
    assert [key for key, _ in queue.added] == NAMED
    seen = await grown(queue)
    assert max(after - before for before, after in itertools.pairwise(seen)) <= waking.TURN
    assert [behind for _, behind in queue.added] == [False] * (len(NAMED) + FEW) + [True] * (MANY - FEW)


async def test_a_change_that_comes_again_before_its_turn_is_one_look(waker, queue):
    for _ in range(3):
        waker.wake(SANDBOX_TEMPLATE, TEMPLATE)
    await grown(queue)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(queue.added) == 3 * len(NAMED) + MANY


async def test_nodes_wake_the_sandboxes_of_their_pods_alone(waker, queue):
    waker.wake(NODE, {"metadata": {"name": "node-1"}})
    while len(queue.added) < MANY // 2:
        await asyncio.sleep(0)
    assert [key.name for key, _ in queue.added] == [f"s{number}" for number in range(1, MANY, 2)]


@pytest.mark.parametrize(("kind", "obj"), [(SANDBOX_TEMPLATE, TEMPLATE), (NETWORK_POLICY, TEMPLATE)])
async def test_what_is_woken_with_all_others_wakes_none_of_them_itself(waker, queue, kind, obj):
    waker.wake_behind(kind, obj)
    for _ in range(20):
        await asyncio.sleep(0)
    assert queue.added == [(key, True) for key in NAMED if kind == SANDBOX_TEMPLATE]


async def test_a_closed_one_wakes_no_more(waker, queue):
    waker.wake(SANDBOX_TEMPLATE, TEMPLATE)
    await asyncio.sleep(0)
    waker.close()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(queue.added) < len(NAMED) + MANY
