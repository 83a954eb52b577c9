"""Which keys a change adds to the work queue: the few that it names at once, and those of many sandboxes in turns."""

import asyncio
from collections.abc import Iterator

from sandfleet_operator.api.kube import NODE, Json, Kind
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import Sweeps, in_turns
from sandfleet_operator.cluster.workqueue import WorkQueue
from sandfleet_operator.reconciler.reconcile import Key
from sandfleet_operator.reconciler.routes import Concern, concern_of, concerned, keys_of, on_nodes

# Keys of one change that are looked at at once. If it has more, they let other changes go first; so do all of a resync.
FEW = 8
# Objects that are looked at before others get their turn.
TURN = 200
# Seconds within which nodes change together: a look for them is one at all pods.
GATHER_SECONDS = 0.1
NODES = Concern(NODE, "", "")


class Waker:
    def __init__(self, store: Store, queue: WorkQueue[Key]) -> None:
        self._store, self._queue = store, queue
        # The names of nodes that have changed, which are looked for together.
        self._nodes: set[str] = set()
        self._gathering: asyncio.TimerHandle | None = None
        self._sweeps = Sweeps(self._wake_all, "wake the sandboxes that a change concerns")

    def wake(self, kind: Kind, obj: Json) -> None:
        """Adds what the object concerns."""
        for key in keys_of(kind, obj):
            self._queue.add(key)
        if kind == NODE:
            self._nodes.add(obj["metadata"]["name"])
            self._gather()
        elif (concern := concern_of(kind, obj)) is not None:
            self._sweeps.add(concern)

    def wake_behind(self, kind: Kind, obj: Json) -> None:
        """Adds what it names, behind other changes: it is one of all objects, whose sandboxes come, too."""
        for key in keys_of(kind, obj):
            self._queue.add(key, behind=True)

    def close(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
        self._sweeps.close()

    def _gather(self) -> None:
        """Looks for all nodes that change within a moment."""
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._sweeps.add, NODES)

    async def _wake_all(self, what: Concern) -> None:
        woken = 0
        async for key in in_turns(self._keys(what), TURN):
            if key is not None:
                self._queue.add(key, behind=woken >= FEW)
                woken += 1

    def _keys(self, what: Concern) -> Iterator[Key | None]:
        if what != NODES:
            return concerned(what, self._store)
        self._gathering = None
        nodes, self._nodes = self._nodes, set()
        return on_nodes(nodes, self._store)
