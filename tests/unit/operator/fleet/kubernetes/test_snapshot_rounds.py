"""A namespace whose snapshots change while they are looked at is looked at again, not in an hour."""

import asyncio
import contextlib
from types import SimpleNamespace

from sandfleet_operator.api.kube import SANDBOX_TEMPLATE
from sandfleet_operator.fleet.kubernetes.snapshots import rounds
from sandfleet_operator.fleet.kubernetes.snapshots.rounds import SnapshotRounds


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
