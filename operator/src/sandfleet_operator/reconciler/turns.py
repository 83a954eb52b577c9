"""Which sandboxes may get their pods now: as many as the nodes can start at once, shared fairly between namespaces.

Without a bound a hundred sandboxes that are declared at once start ever more slowly, and the control plane beside them
loses its Leases. The fleet bounds the starts of its pools in the same way.
"""

from collections.abc import Callable, Iterable, Mapping

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kube import Json
from sandfleet_operator.plan.sandbox.observed import node_of, pod_of
from sandfleet_operator.plan.scheduler.starts.shares import STARTS_PER_NODE, divided

# Namespace, name and uid of a sandbox.
Who = tuple[str, str, str]


def ready_nodes(node: Json) -> tuple[str, ...]:
    """One word for a node that is ready, so that they can be counted."""
    return ("ready",) if node_of(node).ready else ()


class StartTurns:
    """`nodes` counts those that are ready; `wake` is told the namespace and the name of a sandbox whose turn it is."""

    def __init__(self, nodes: Callable[[], int], wake: Callable[[str, str], None]) -> None:
        self._nodes, self._wake = nodes, wake
        # Namespace → uids of the sandboxes whose pods are being started.
        self._starting: dict[str, set[str]] = {}
        # Namespace → those that wait for a turn, in their order.
        self._waiting: dict[str, dict[str, Who]] = {}

    def changed(self, before: Json | None, after: Json | None) -> None:
        """Of a pod. One that no node has takes no turn."""
        was, now = _started(before), _started(after)
        if now is not None:
            self._starting.setdefault(now[0], set()).add(now[1])
        if was is not None and was != now:
            self._end(*was)

    def has(self, meta: Meta, *, first: bool) -> bool:
        """Whether the sandbox may get a pod now. `first`: before others of its namespace that wait."""
        namespace, uid = meta.namespace, meta.uid
        starting = self._starting.get(namespace, set())
        waiting = self._waiting.get(namespace, {})
        before = 0 if first else next((place for place, one in enumerate(waiting) if one == uid), len(waiting))
        asks = {namespace} if uid not in waiting else set()
        return uid in starting or len(starting) + before < self._shares(asks).get(namespace, 0)

    def take(self, meta: Meta, *, first: bool) -> bool:
        """Whether it may, and begins to; `give_back` if nothing comes of it."""
        if not self.has(meta, first=first):
            return False
        self.leave(meta.namespace, meta.uid)
        self._starting.setdefault(meta.namespace, set()).add(meta.uid)
        return True

    def wait(self, meta: Meta) -> None:
        """Wakes the sandbox when its turn has come."""
        who = (meta.namespace, meta.name, meta.uid)
        self._waiting.setdefault(meta.namespace, {}).setdefault(meta.uid, who)

    def give_back(self, namespace: str, uid: str) -> None:
        """The sandbox is gone, or its pod was not created."""
        self.leave(namespace, uid)
        self._end(namespace, uid)

    def leave(self, namespace: str, uid: str) -> None:
        """The sandbox does not wait any more."""
        waiting = self._waiting.get(namespace, {})
        if waiting.pop(uid, None) is not None and not waiting:
            del self._waiting[namespace]

    def _end(self, namespace: str, uid: str) -> None:
        starting = self._starting.get(namespace, set())
        if uid not in starting:
            return
        starting.discard(uid)
        if not starting:
            del self._starting[namespace]
        shares = self._shares() if self._waiting else {}
        for name, waiting in self._waiting.items():
            room = shares[name] - len(self._starting.get(name, ()))
            for who in list(waiting.values())[: max(0, room)]:
                self._wake(who[0], who[1])

    def _shares(self, asks: Iterable[str] = ()) -> Mapping[str, int]:
        """Pods that may be starting, by namespace. `asks`: those that want one more than is known."""
        total = STARTS_PER_NODE * max(1, self._nodes())
        wanted = {name: len(each) for name, each in self._starting.items()}
        for name, waiting in self._waiting.items():
            wanted[name] = wanted.get(name, 0) + len(waiting)
        for name in asks:
            wanted[name] = wanted.get(name, 0) + 1
        return wanted if sum(wanted.values()) <= total else divided(total, wanted)


def _started(obj: Json | None) -> tuple[str, str] | None:
    """The namespace of a pod that a node is starting, and the uid of its sandbox; None if it is no such pod."""
    try:
        pod = pod_of(obj) if obj is not None else None
    except FleetError:
        return None
    if pod is None or not pod.owner or pod.ready or pod.deleting or pod.ended is not None or not pod.hold.has_node:
        return None
    return str((obj or {})["metadata"]["namespace"]), pod.owner
