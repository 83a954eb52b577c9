"""A namespace whose snapshots change while they are looked at is looked at again, not in an hour."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
from sandfleet_operator.api.kinds.snapshot import FINALIZER
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_SNAPSHOT, SANDBOX_TEMPLATE
from sandfleet_operator.fleet.kubernetes.snapshots import rounds
from sandfleet_operator.fleet.kubernetes.snapshots.rounds import SnapshotRounds
from sandfleet_operator.fleet.snapshots.jobs import Jobs as FleetJobs
from sandfleet_operator.plan.snapshots.objects import ORPHAN_SECONDS
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason
from sandfleet_operator.snapshots.aio import AsyncSnapshots
from sandfleet_operator.snapshots.worker import Worker
from support.snapshots import Clock, flat, save, store_in_memory


class Jobs:
    """Listings of no snapshots, each of which ends when it is told to."""

    def __init__(self):
        self.begun, self.end = 0, asyncio.Event()

    async def run(self, op, **request):
        self.begun += 1
        await self.end.wait()
        return
        yield


class Store:
    def all(self, kind, namespace=None):
        return [{"metadata": {"namespace": "team"}}] if kind == SANDBOX_TEMPLATE and namespace is None else []


async def listings(monkeypatch, *, changes):
    monkeypatch.setattr(rounds, "LOOK", 0.0)
    jobs = Jobs()
    made = SnapshotRounds(None, SimpleNamespace(store=Store()), jobs, None, lambda: 1000.0)
    made.look_soon("team")
    running = asyncio.ensure_future(made.run())
    while not jobs.begun:
        await asyncio.sleep(0)
    if changes:
        made.look_soon("team")
    jobs.end.set()
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return jobs.begun


async def test_a_change_during_a_look_is_looked_at(monkeypatch):
    assert await listings(monkeypatch, changes=True) == 2
    # Control: without one, the next look is the hour's.
    assert await listings(monkeypatch, changes=False) == 1


class OnStore(FleetJobs):
    """The jobs of one cluster, whose snapshotter has this store. `place`: below which it has what is its own."""

    def __init__(self, store, place):
        super().__init__()
        self._place, self._worker = place, Worker(AsyncSnapshots(store), self.heard)

    async def reach(self):
        return self._worker.take

    async def run(self, op, **request):
        async for event in super().run(op, **{**request, "tenant": f"{self._place}{request['tenant']}"}):
            yield event


class Objects:
    """What the watches of a cluster show: one CodeSandbox, that may name a snapshot."""

    def __init__(self, named=""):
        # Of a later version, which this one cannot read.
        status = {"snapshot": {"id": named, "podUID": 7}} if named else {}
        self._made = {"metadata": {"namespace": "team", "name": "box"}, "spec": 7, "status": status}

    def all(self, kind, namespace=None):
        return [self._made] if kind == CODE_SANDBOX else []


async def looked_at(store, clock, place, named=""):
    made = SnapshotRounds(
        None, SimpleNamespace(store=Objects(named)), OnStore(store, place), None, lambda: clock.seconds
    )
    await made._round("team")


async def two_clusters(first, second):
    """What the first has of its sleeping session after the second, which knows none, has looked at the store."""
    clock = Clock()
    store = store_in_memory(clock=clock)
    kept = save(store, f"{first}team", flat({b"a": b"memory"}), sandbox="team/box", reason="suspend")
    clock.seconds += ORPHAN_SECONDS + 1
    await looked_at(store, clock, second)
    before = [one.id for one in store.list(f"{first}team")]
    clock.seconds += 3600
    await looked_at(store, clock, first, kept.id)
    return kept.id, before, [one.id for one in store.list(f"{first}team")]


async def test_another_cluster_with_a_namespace_of_this_name_deletes_no_session():
    kept, before, after = await two_clusters("c-1/u-1/", "c-2/u-2/")
    assert before == after == [kept]


async def test_what_a_copy_of_the_cluster_deletes_is_taken_back_by_the_one_whose_session_it_is():
    kept, before, after = await two_clusters("c-1/u-1/", "c-1/u-1/")
    assert (before, after) == ([], [kept])


def asking(namespace, name, **meta):
    """A SandboxSnapshot that asks for one."""
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-of-{namespace}-{name}", "finalizers": [FINALIZER]}
    return {
        "apiVersion": "sandfleet.io/v1alpha1",
        "kind": "SandboxSnapshot",
        "metadata": {**metadata, "resourceVersion": "1", "generation": 1, **meta},
        "spec": {"sandboxRef": {"name": "box"}},
    }


class Shown:
    """A cluster of SandboxSnapshots, and what was written to them."""

    def __init__(self, *objects):
        self._objects, self.patches = objects, []

    def all(self, kind, namespace=None):
        here = [one for one in self._objects if namespace in (None, one["metadata"]["namespace"])]
        return here if kind == SANDBOX_SNAPSHOT else []

    async def get(self, ref):
        return next(one for one in self._objects if one["metadata"]["name"] == ref.name)

    async def merge(self, ref, patch, subresource=""):
        self.patches.append((ref.namespace, ref.name, patch))


async def saved(monkeypatch, *, saves):
    """The namespaces whose sessions began to be saved, where those of the first stall."""
    shown = Shown(*(asking("hostile", f"stalls-{number}") for number in range(6)), asking("other", "mine"))
    began, stalls = [], asyncio.Event()

    class Rounds(SnapshotRounds):
        async def _saved(self, obj, sandbox_id):
            began.append(obj.meta.namespace)
            await stalls.wait()

    monkeypatch.setattr(rounds, "LOOK", 0.0)
    monkeypatch.setattr(rounds, "SAVES", saves)
    made = Rounds(shown, SimpleNamespace(store=shown), OnStore(store_in_memory(), ""), None, lambda: 1000.0)
    running = asyncio.ensure_future(made.run())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            while "other" not in began:
                await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return began


async def test_sessions_that_stall_hold_up_the_snapshots_of_no_other_namespace(monkeypatch):
    began = await saved(monkeypatch, saves=2)
    assert (began.count("hostile"), began.count("other")) == (2, 1)


@pytest.mark.parametrize(("reachable", "released"), [(False, ["goes"]), (True, [])])
async def test_without_a_snapshotter_no_object_is_held(reachable, released):
    going = asking("team", "goes", deletionTimestamp="2026-01-01T00:00:00Z")
    shown = Shown(going, asking("team", "stays"))
    made = SnapshotRounds(
        shown, SimpleNamespace(store=shown), Silent(), None, lambda: 1000.0, reachable=lambda: reachable
    )
    await made._round("team")
    assert [name for _, name, patch in shown.patches if patch.get("metadata", {}).get("finalizers") == []] == released
    # Those that ask for one say why there is none.
    assert [name for _, name, patch in shown.patches if "status" in patch] == ["stays"]


class Silent(FleetJobs):
    """No snapshotter is there."""

    async def reach(self):
        raise SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error("cannot reach a snapshotter")
