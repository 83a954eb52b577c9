"""The newest known version of each object, from the watches and from the answers to our own writes."""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, Protocol, TypeVar

from sandfleet_operator.api.kube import Json, Kind, Ref
from sandfleet_operator.cluster.intake import Intake
from sandfleet_operator.plan.sandbox.kept import kept

# Remembered deletions, so that a late answer does not bring an object back.
MAX_BURIED = 10_000

Word = TypeVar("Word", bound=Hashable)


class View(Protocol):
    """Of one kind, so that a question does not look at thousands.

    It is told of each object that comes (`before` is None), changes, or goes (`after` is None).
    """

    def changed(self, before: Json | None, after: Json | None) -> None: ...


class Counts(Generic[Word]):
    """How many objects each word is said of."""

    def __init__(self, words: Callable[[Json], Iterable[Word]]) -> None:
        self._words = words
        self._counts: Counter[Word] = Counter()

    def changed(self, before: Json | None, after: Json | None) -> None:
        if before is not None:
            self._counts.subtract(self._words(before))
        if after is not None:
            self._counts.update(self._words(after))

    def items(self) -> list[tuple[Word, int]]:
        return [(word, count) for word, count in self._counts.items() if count]


class Owned:
    """The objects of each owner, by its uid."""

    def __init__(self) -> None:
        # Nearly every owner has one.
        self._names: dict[str, tuple[tuple[str, str], ...]] = {}

    def changed(self, before: Json | None, after: Json | None) -> None:
        if before is not None:
            for uid in _owners(before):
                left = tuple(one for one in self._names.get(uid, ()) if one != _key(before))
                if left:
                    self._names[uid] = left
                else:
                    self._names.pop(uid, None)
        if after is not None:
            for uid in _owners(after):
                self._names[uid] = (*self._names.get(uid, ()), _key(after))

    def of(self, uid: str) -> Iterator[tuple[str, str]]:
        """Namespace and name of each."""
        return iter(self._names.get(uid, ()))


class Store:
    """`in_order`: kinds whose names it keeps in order. `views` are told of each change of their kind."""

    def __init__(self, in_order: Sequence[Kind] = (), views: Mapping[Kind, Sequence[View]] | None = None) -> None:
        self._views = views or {}
        self._in_order: dict[Kind, list[str]] = {kind: [] for kind in in_order}
        # Kind → namespace → name.
        self._objects: dict[Kind, dict[str, dict[str, Json]]] = {}
        # UID → the version up to which reports of the object are ignored.
        self._buried: OrderedDict[str, int] = OrderedDict()
        self._changes: Counter[Kind] = Counter()
        self.intake = Intake()

    def get(self, ref: Ref) -> Json | None:
        return self._objects.get(ref.kind, {}).get(ref.namespace, {}).get(ref.name)

    def get_like(self, kind: Kind, obj: Json) -> Json | None:
        """The known object of the same name."""
        meta = obj["metadata"]
        return self.get(Ref(kind, meta.get("namespace", ""), meta["name"]))

    def all(self, kind: Kind, namespace: str | None = None) -> Iterator[Json]:
        """All objects of a kind, in one namespace or in all, as of the call."""
        places = self._objects.get(kind, {})
        wanted = list(places.values()) if namespace is None else [places.get(namespace, {})]
        for place in wanted:
            yield from list(place.values())

    def names(self, kind: Kind, namespace: str = "", after: str = "") -> Iterator[str]:
        """NAMESPACE/NAME of the objects in order, from the one after `after` on; without a namespace, of all.

        Of a kind whose names are kept in order. Each is found as it is taken: objects may come and go meanwhile.
        """
        prefix, known = f"{namespace}/" if namespace else "", self._in_order[kind]
        last = max(after, prefix)
        while (place := bisect_right(known, last)) < len(known) and known[place].startswith(prefix):
            last = known[place]
            yield last

    def specs(self, kind: Kind, namespace: str) -> dict[str, Json]:
        """Name → spec."""
        return {one["metadata"]["name"]: one.get("spec") or {} for one in self.all(kind, namespace)}

    def changes(self, kind: Kind) -> int:
        """Count of changes. While the count is the same, so are the objects of this kind."""
        return self._changes[kind]

    def put(self, kind: Kind, obj: Json) -> bool:
        """Stores what is kept of the object unless a newer version is known; whether it was stored.

        Of an object that cannot be read, the last version that could stays.
        """
        if not self.intake.is_readable(kind, obj):
            return False
        meta = obj["metadata"]
        place = self._objects.setdefault(kind, {}).setdefault(meta.get("namespace", ""), {})
        known = place.get(meta["name"])
        if known is not None and version_of(known) >= version_of(obj):
            return False
        if self._buried.get(meta.get("uid", ""), -1) >= version_of(obj):
            return False
        place[meta["name"]] = now = kept(kind, obj)
        for view in self._views.get(kind, ()):
            view.changed(known, now)
        if known is None and kind in self._in_order:
            insort(self._in_order[kind], _full_name(meta))
        self._changes[kind] += 1
        return True

    def is_buried(self, obj: Json) -> bool:
        """Whether this very object is known to be deleted, so that an answer which still shows it is out of date."""
        return self._buried.get(obj["metadata"].get("uid", "")) == sys.maxsize

    def has_gone(self, uid: str) -> bool:
        """Whether the object with this uid was seen to be deleted."""
        return uid in self._buried

    def remove(self, kind: Kind, obj: Json, *, for_good: bool = False) -> bool:
        """Removes this very object; whether it was known. Its name may belong to another object by now.

        `for_good`: the API server no longer has it. A watch also reports an object as deleted if it only stopped
        matching.
        """
        meta = obj["metadata"]
        uid = meta.get("uid", "")
        self._buried[uid] = sys.maxsize if for_good else max(version_of(obj), self._buried.get(uid, 0))
        while len(self._buried) > MAX_BURIED:
            self._buried.popitem(last=False)
        places = self._objects.get(kind, {})
        place = places.get(meta.get("namespace", ""), {})
        known = place.get(meta["name"])
        if known is None or known["metadata"].get("uid") != uid:
            return False
        del place[meta["name"]]
        for view in self._views.get(kind, ()):
            view.changed(known, None)
        if (order := self._in_order.get(kind)) is not None:
            del order[bisect_left(order, _full_name(meta))]
        self.intake.forget(Ref(kind, meta.get("namespace", ""), meta["name"]))
        self._changes[kind] += 1
        if not place:
            del places[meta.get("namespace", "")]
        return True

    def keep_only(
        self, kind: Kind, seen: Mapping[str, AbstractSet[str]], version: str, namespace: str | None = None
    ) -> list[Json]:
        """After a list of all objects of a kind (in a namespace): removes those that it had not, and returns them.

        `seen` has their names by namespace. Objects newer than the list stay.
        """
        newest = int(version or 0)
        gone = [
            obj
            for where, place in self._objects.get(kind, {}).items()
            if namespace in {None, where}
            # Of thousands of objects only those that are missing are looked at.
            for name in sorted(place.keys() - seen.get(where, frozenset()))
            if version_of(obj := place[name]) <= newest
        ]
        for obj in gone:
            self.remove(kind, obj)
        return gone


def _full_name(meta: Json) -> str:
    return f"{meta.get('namespace', '')}/{meta['name']}"


def version_of(obj: Json) -> int:
    """The resource version as a number. Kubernetes guarantees since 1.35 that it grows; it grew before, too."""
    text = obj["metadata"].get("resourceVersion", "")
    return int(text) if text.isdecimal() else 0


def _owners(obj: Json) -> set[str]:
    return {one["uid"] for one in obj["metadata"].get("ownerReferences") or () if one.get("uid")}


def _key(obj: Json) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]
