"""Copies of a sandbox are where it is, and of what it is made of."""

from types import SimpleNamespace

import pytest
from sandfleet.resources.snapshots import HasSnapshots
from sandfleet.values.suspension import Snapshot


class Store:
    def __init__(self):
        self.namespaces, self.deleted = set(), []

    def _within(self, namespace):
        self.namespaces.add(namespace)
        return self

    async def take_snapshot(self, sandbox_id, **words):
        return Snapshot("s-1", sandbox_id=sandbox_id, template="python-fast")

    async def get(self, snapshot):
        return snapshot

    async def delete(self, snapshot):
        self.deleted.append(snapshot.snapshot_id)


class Sandbox(HasSnapshots):
    def __init__(self, sandbox_id):
        self.store, self.made, self.killed = Store(), [], []
        fleet = SimpleNamespace(snapshots=self.store)
        self._link = SimpleNamespace(sandbox_id=sandbox_id, fleet=fleet, wakes=True, cwd="")

    async def _copy(self, template, fleet, options, origin):
        if len(self.made) == 2:
            raise LookupError("no third one")
        assert fleet is self._link.fleet
        self.made.append((template, origin, options))
        return SimpleNamespace(kill=self._kill, _link=SimpleNamespace(wakes=False))

    async def _kill(self):
        self.killed.append(True)


@pytest.mark.parametrize(("sandbox_id", "namespace"), [("team/one", "team"), ("one", None)])
async def test_copies_have_the_namespace_and_the_template_of_their_origin(sandbox_id, namespace):
    sandbox = Sandbox(sandbox_id)
    first, second = await sandbox._forked(2, {"labels": {"a": "b"}, "timeout": 9})
    # Nothing else is said: the fleet takes it from the claim of the origin.
    options = {"namespace": namespace, "snapshot": Snapshot("s-1", sandbox_id=sandbox_id, template="python-fast")}
    said = ("python-fast", sandbox_id, options | {"labels": {"a": "b"}, "timeout": 9})
    assert sandbox.made == [said] * 2
    # A copy that was suspended by idleness wakes at a call, as its origin does.
    assert (first._link.wakes, second._link.wakes) == (True, True)
    assert (sandbox.store.namespaces, sandbox.store.deleted) == ({namespace or ""}, ["s-1"])


async def test_a_copy_that_cannot_be_had_ends_the_others():
    sandbox = Sandbox("team/one")
    with pytest.raises(LookupError):
        await sandbox._forked(3, {})
    assert (sandbox.killed, sandbox.store.deleted) == ([True, True], ["s-1"])
