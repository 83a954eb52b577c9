"""A cluster in memory: its objects, what has happened to them, and what its controllers do, one step at a time."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sandfleet_operator.api.kube import NAMESPACE, POD, Forbidden, Json, NotFound, Ref
from support.fakes.kube_admission import Admit
from support.fakes.kube_objects import copied

# So many changes back can be read.
REMEMBERED = 200


@dataclass(frozen=True)
class Change:
    """Of one object; without a ref, a sign to the watches that run: BOOKMARK, END or EXPIRED."""

    version: int
    ref: Ref | None
    before: Json | None = None
    after: Json | None = None
    sign: str = ""


class MemoryCluster:
    """Objects in it are never changed in place."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._version = 1
        self.oldest = 0
        self.objects: dict[Ref, Json] = {}
        self.changes: list[Change] = []
        # The version and the objects after each of the last changes.
        self.states: deque[tuple[int, dict[Ref, Json]]] = deque([(1, {})], maxlen=REMEMBERED)
        # The configuration last applied, by uid of the object, subresource and manager.
        self.applied: dict[tuple[str, str, str], Json] = {}
        # In the order in which they came, so that the same is always the same.
        self.waiting: dict[asyncio.Event, None] = {}
        self._made = 0
        # Seconds until a request arrives, and again until a write is answered.
        self.latency = 0.0
        # Looks at each write of a client before it is done.
        self.admit: Admit = lambda *_: None

    @property
    def version(self) -> int:
        return self._version

    def number(self) -> int:
        self._made += 1
        return self._made

    def time(self, later: float = 0) -> str:
        return datetime.fromtimestamp(self._clock() + later, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def found(self, ref: Ref) -> Json:
        if ref not in self.objects:
            raise NotFound(404, "NotFound", f'cannot find {ref}: {ref.kind} "{ref.name}" not found')
        return self.objects[ref]

    def check_namespace(self, ref: Ref) -> None:
        """Whether something can be made there."""
        if not ref.kind.namespaced:
            return
        namespace = self.objects.get(Ref(NAMESPACE, "", ref.namespace))
        if namespace is None:
            raise NotFound(404, "NotFound", f'cannot create {ref}: namespaces "{ref.namespace}" not found')
        if deleting(namespace):
            raise Forbidden(403, "Forbidden", f"cannot create {ref}: its namespace is being terminated")

    def commit(self, ref: Ref, new: Json) -> Json:
        """The object as it then is; one whose deletion waits for nothing more goes."""
        old = self.objects.get(ref)
        if new == old:
            return old
        new["metadata"]["resourceVersion"] = str(self._version + 1)
        if over(new):
            self.objects.pop(ref, None)
            change = Change(self._version + 1, ref, before=new)
        else:
            self.objects[ref] = new
            change = Change(self._version + 1, ref, old, new)
        self._advance()
        self._log(change)
        return new

    def remove(self, ref: Ref, grace: int | None = None) -> None:
        """What a DELETE does; `grace` in seconds, None: what the pod asks for."""
        new = copied(self.objects[ref])
        metadata, seconds = new["metadata"], 0
        ended = new.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if ref.kind == POD and new["spec"].get("nodeName") and not ended:
            seconds = new["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
        if not deleting(new) and "generation" in metadata:
            metadata["generation"] += 1
        left = min(seconds, metadata.get("deletionGracePeriodSeconds", seconds))
        if left != metadata.get("deletionGracePeriodSeconds"):
            metadata |= {"deletionTimestamp": self.time(left), "deletionGracePeriodSeconds": left}
        if ref.kind == NAMESPACE:
            new["status"] = {"phase": "Terminating"}
        self.commit(ref, new)

    def _advance(self) -> None:
        self._version += 1
        self.states.append((self._version, dict(self.objects)))

    def _log(self, change: Change) -> None:
        self.changes.append(change)
        for news in self.waiting:
            news.set()

    # What else goes on.

    def edit(self, ref: Ref, change: Callable[[Json], None]) -> Json:
        """Another controller's write: any field, nothing is checked."""
        new = copied(self.found(ref))
        change(new)
        return copied(self.commit(ref, new))

    def kubelet(self) -> None:
        """Ends the pods that are terminating."""
        for ref, obj in list(self.objects.items()):
            if ref.kind == POD and deleting(obj):
                self.remove(ref, 0)

    def collect(self) -> None:
        """Deletes what has lost all of its owners, and what is in namespaces that go."""
        before = None
        while before != self._version:
            before = self._version
            uids = {(obj["metadata"]["uid"], ref.namespace) for ref, obj in self.objects.items()}
            for ref, obj in list(self.objects.items()):
                owners = obj["metadata"].get("ownerReferences") or ()
                lost = owners and not any({(o["uid"], ref.namespace), (o["uid"], "")} & uids for o in owners)
                home = self.objects.get(Ref(NAMESPACE, "", ref.namespace))
                if not deleting(obj) and (lost or (home and deleting(home))):
                    self.remove(ref)
            self._end_namespaces()

    def _end_namespaces(self) -> None:
        used = {ref.namespace for ref in self.objects}
        for ref, obj in list(self.objects.items()):
            if ref.kind == NAMESPACE and deleting(obj) and ref.name not in used:
                self.edit(ref, lambda namespace: namespace["spec"].pop("finalizers"))

    def bookmark(self) -> None:
        self._log(Change(self._version, None, sign="BOOKMARK"))

    def end_watches(self) -> None:
        self._log(Change(self._version, None, sign="END"))

    def expire(self) -> None:
        """From now on every version seen before is too old to watch from; the watches that run hear it as well."""
        self._log(Change(self._version, None, sign="EXPIRED"))
        self._advance()
        self.oldest = self._version


def deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def over(obj: Json) -> bool:
    metadata = obj["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return deleting(obj) and not waits and not (obj.get("spec") or {}).get("finalizers")
