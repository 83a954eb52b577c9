"""What the watches and our own writes have shown, by kind and name: the newest version of each object, never an older one."""

import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator

from sandfleet_operator.api.kube import Json, Kind, Ref

# Deletions that are remembered, so that a late answer does not bring an object back.
MAX_BURIED = 10_000
# Nothing that is decided on, and the larger part of most objects.
DROPPED = ("managedFields",)


class Store:
    def __init__(self) -> None:
        # Kind → namespace → name.
        self._objects: dict[Kind, dict[str, dict[str, Json]]] = {}
        # Uid → the version up to which it is not believed any more.
        self._buried: OrderedDict[str, int] = OrderedDict()
        self._changes: Counter[Kind] = Counter()

    def get(self, ref: Ref) -> Json | None:
        return self._objects.get(ref.kind, {}).get(ref.namespace, {}).get(ref.name)

    def get_like(self, kind: Kind, obj: Json) -> Json | None:
        """What is known under the name of this object."""
        meta = obj["metadata"]
        return self.get(Ref(kind, meta.get("namespace", ""), meta["name"]))

    def all(self, kind: Kind, namespace: str | None = None) -> Iterator[Json]:
        """As they are at the call, of one namespace or of all."""
        places = self._objects.get(kind, {})
        wanted = list(places.values()) if namespace is None else [places.get(namespace, {})]
        for place in wanted:
            yield from list(place.values())

    def specs(self, kind: Kind, namespace: str) -> dict[str, Json]:
        """By name."""
        return {one["metadata"]["name"]: one["spec"] for one in self.all(kind, namespace)}

    def changes(self, kind: Kind) -> int:
        """How many there were: while it is the same number, so is all that follows from these objects."""
        return self._changes[kind]

    def put(self, kind: Kind, obj: Json) -> bool:
        """Whether it was news: an object that is older than what is known is not taken."""
        meta = obj["metadata"]
        place = self._objects.setdefault(kind, {}).setdefault(meta.get("namespace", ""), {})
        known = place.get(meta["name"])
        if known is not None and _version(known) >= _version(obj):
            return False
        if self._buried.get(meta.get("uid", ""), -1) >= _version(obj):
            return False
        slim = {name: value for name, value in meta.items() if name not in DROPPED}
        place[meta["name"]] = {**obj, "metadata": slim}
        self._changes[kind] += 1
        return True

    def is_buried(self, obj: Json) -> bool:
        """Whether the API server has said that this very object is gone: an answer that shows it is an old one."""
        return self._buried.get(obj["metadata"].get("uid", "")) == sys.maxsize

    def remove(self, kind: Kind, obj: Json, *, for_good: bool = False) -> bool:
        """Whether this very object was known. Its name may belong to another one by now.

        `for_good`: the API server does not have it any more. A watch also loses objects that only stopped to match.
        """
        meta = obj["metadata"]
        uid = meta.get("uid", "")
        self._buried[uid] = sys.maxsize if for_good else max(_version(obj), self._buried.get(uid, 0))
        while len(self._buried) > MAX_BURIED:
            self._buried.popitem(last=False)
        places = self._objects.get(kind, {})
        place = places.get(meta.get("namespace", ""), {})
        known = place.get(meta["name"])
        if known is None or known["metadata"].get("uid") != uid:
            return False
        del place[meta["name"]]
        self._changes[kind] += 1
        if not place:
            del places[meta.get("namespace", "")]
        return True

    def replace(self, kind: Kind, objects: tuple[Json, ...], version: str, namespace: str | None = None) -> list[Json]:
        """All of a kind (in a namespace) as a list showed it; what came, changed or went by it. What is newer stays."""
        seen = {(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in objects}
        gone = [
            obj
            for obj in self.all(kind, namespace)
            if (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) not in seen
            and _version(obj) <= int(version or 0)
        ]
        for obj in gone:
            self.remove(kind, obj)
        return gone + [obj for obj in objects if self.put(kind, obj)]


def _version(obj: Json) -> int:
    """Resource versions of one object are numbers that grow, which Kubernetes promises since 1.35 and did before."""
    text = obj["metadata"].get("resourceVersion", "")
    return int(text) if text.isdecimal() else 0
