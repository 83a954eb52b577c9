"""A namespace whose snapshots change while they are looked at is looked at again, not in an hour."""

import asyncio
import contextlib
from types import SimpleNamespace

from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_TEMPLATE
from sandfleet_operator.fleet.kubernetes.snapshots import rounds
from sandfleet_operator.fleet.kubernetes.snapshots.rounds import SnapshotRounds
from sandfleet_operator.fleet.snapshots.jobs import Jobs as FleetJobs
from sandfleet_operator.plan.snapshots.objects import ORPHAN_SECONDS
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
