"""Turns of sandboxes that want their pods: bounded by the nodes, fair between namespaces, in order within one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.plan.scheduler.starts.shares import STARTS_PER_NODE
from sandfleet_operator.reconciler.turns import StartTurns


def a_meta(name, namespace="team"):
    return Meta(name=name, namespace=namespace, uid=f"{namespace}-{name}")


def a_pod(meta, *, ready=False, node="n", waits=False):
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if waits:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    owner = {"apiVersion": "sandfleet.io/v1alpha1", "kind": "CodeSandbox", "name": meta.name, "uid": meta.uid}
    metadata = {"name": meta.name, "namespace": meta.namespace, "uid": f"pod-{meta.uid}", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": conditions}}


class World:
    """Sandboxes that ask, and wait to be woken where they have no turn."""

    def __init__(self, nodes=1):
        self.woken = []
        self.turns = StartTurns(lambda: nodes, lambda namespace, name: self.woken.append((namespace, name)))

    def ask(self, meta, *, first=False):
        taken = self.turns.take(meta, first=first)
        if taken:
            self.turns.changed(None, a_pod(meta))
        else:
            self.turns.wait(meta)
        return taken

    def start(self, meta):
        """Its pod is ready."""
        self.turns.changed(a_pod(meta), a_pod(meta, ready=True))


def test_as_many_start_as_the_nodes_can_and_the_next_one_is_woken_by_the_first_that_is_ready():
    world, sandboxes = World(), [a_meta(str(number)) for number in range(STARTS_PER_NODE + 2)]
    assert [world.ask(one) for one in sandboxes] == [True] * STARTS_PER_NODE + [False] * 2
    assert world.woken == []
    world.start(sandboxes[3])
    assert world.woken == [("team", sandboxes[-2].name)]
    # The last one asks out of turn, and the one that was woken gets it.
    assert (world.ask(sandboxes[-1]), world.ask(sandboxes[-2])) == (False, True)


def test_more_nodes_start_more():
    world = World(nodes=3)
    assert sum(world.ask(a_meta(str(number))) for number in range(100)) == 3 * STARTS_PER_NODE


def test_a_crowd_of_one_namespace_leaves_another_its_share():
    world = World()
    crowd = [a_meta(str(number), "crowd") for number in range(100)]
    assert sum(map(world.ask, crowd)) == STARTS_PER_NODE
    assert world.ask(a_meta("one", "other"))
    more = [a_meta(str(number), "other") for number in range(100)]
    # While the crowd's first starts go on, the others have their half all the same.
    assert sum(map(world.ask, more)) == STARTS_PER_NODE // 2 - 1


def test_what_has_run_before_comes_before_those_that_begin():
    world, sandboxes = World(), [a_meta(str(number)) for number in range(20)]
    for one in sandboxes:
        world.ask(one)
    back = a_meta("back")
    assert not world.ask(back, first=True)
    world.start(sandboxes[0])
    assert (world.turns.has(back, first=True), world.turns.has(sandboxes[15], first=False)) == (True, False)


@pytest.mark.parametrize("end", ["deleted", "unscheduled", "given back"])
def test_a_turn_ends_with_its_pod_or_without_a_node(end):
    world, sandboxes = World(), [a_meta(str(number)) for number in range(STARTS_PER_NODE + 1)]
    for one in sandboxes:
        world.ask(one)
    first = sandboxes[0]
    if end == "deleted":
        world.turns.changed(a_pod(first), None)
    elif end == "unscheduled":
        world.turns.changed(a_pod(first), a_pod(first, waits=True))
    else:
        world.turns.give_back(first.namespace, first.uid)
    assert world.woken == [("team", sandboxes[-1].name)]
    assert world.ask(sandboxes[-1])


def test_one_that_waits_no_more_keeps_no_place():
    world, sandboxes = World(), [a_meta(str(number)) for number in range(STARTS_PER_NODE + 2)]
    for one in sandboxes:
        world.ask(one)
    world.turns.leave("team", sandboxes[-2].uid)
    world.start(sandboxes[0])
    assert (world.woken, world.ask(sandboxes[-1])) == ([("team", sandboxes[-1].name)], True)


def test_the_pods_of_an_earlier_leader_count():
    world = World()
    for number in range(STARTS_PER_NODE):
        world.turns.changed(None, a_pod(a_meta(str(number))))
    assert not world.ask(a_meta("new"))


def test_a_pod_that_cannot_be_read_takes_no_turn():
    world = World()
    world.turns.changed(None, {"metadata": {"name": "x", "namespace": "team", "uid": "u"}, "spec": [], "status": {}})
    assert sum(world.ask(a_meta(str(number))) for number in range(20)) == STARTS_PER_NODE


@given(
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.sampled_from(["ask", "end"])), max_size=200)
)
def test_the_bound_holds_each_sandbox_is_woken_and_nothing_is_left(steps):
    world, going = World(), set()
    for namespace, number, what in steps:
        meta = a_meta(str(number), namespace)
        key = (namespace, str(number))
        if what == "ask" and key not in going and world.ask(meta):
            going.add(key)
        elif what == "end" and key in going:
            going.discard(key)
            world.start(meta)
        # One start for a namespace whose others hold all turns.
        assert len(going) <= STARTS_PER_NODE + STARTS_PER_NODE // 2
    for _ in itertools.repeat(None, 100):
        for namespace, name in sorted(going):
            going.discard((namespace, name))
            world.start(a_meta(name, namespace))
        woken, world.woken = world.woken, []
        going |= {one for one in woken if world.ask(a_meta(one[1], one[0]))}
    assert (world.turns._starting, world.turns._waiting) == ({}, {})
