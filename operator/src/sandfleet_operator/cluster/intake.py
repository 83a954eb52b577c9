"""The intake of what the API server shows: an object that cannot be taken in is set apart, and stops no other one.

Tenants write objects, labels and annotations, and a newer version may write what this one does not know. So each object
is read and taken in on its own. An error is counted, logged once for each object, and never reaches the caller.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import meta_of
from sandfleet_operator.api.kube import NODE, PERSISTENT_VOLUME_CLAIM, POD, Json, Kind, Ref
from sandfleet_operator.plan.sandbox.observed import node_of, pod_of, volume_of

# What has to be readable of an object before it is stored. Of other kinds the metadata has to be: each round reads
# their specs itself, and says on their status what is wrong with them.
READERS: Mapping[Kind, Callable[[Json], object]] = {POD: pod_of, NODE: node_of, PERSISTENT_VOLUME_CLAIM: volume_of}

# Unreadable objects that are remembered, so that each is logged once.
MAX_KNOWN = 10_000

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Intake:
    def __init__(self) -> None:
        # Why the last version could not be read, or what was to be done about it failed.
        self._unreadable: dict[Ref, str] = {}
        self._failed: dict[Ref, str] = {}
        self.count = 0
        """How many versions of objects were not taken in."""

    @property
    def errors(self) -> Mapping[Ref, str]:
        """The objects that are set apart, each with the reason."""
        return {**self._failed, **self._unreadable}

    def is_readable(self, kind: Kind, obj: Json) -> bool:
        return self._done(_ref(kind, obj), lambda: READERS.get(kind, meta_of)(obj), self._unreadable)

    def take(self, kind: Kind, obj: Json, work: Callable[[], object]) -> bool:
        """Does `work`, which is about this object; returns whether it succeeded."""
        return self._done(_ref(kind, obj), work, self._failed)

    def forget(self, ref: Ref) -> None:
        """The object is gone."""
        self._unreadable.pop(ref, None)
        self._failed.pop(ref, None)

    def _done(self, ref: Ref, work: Callable[[], object], errors: dict[Ref, str]) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - one bad object must not stop the others
            self._refuse(ref, error, errors)
            return False
        errors.pop(ref, None)
        return True

    def _refuse(self, ref: Ref, error: Exception, errors: dict[Ref, str]) -> None:
        self.count += 1
        if errors.get(ref) == str(error):
            return
        errors[ref] = str(error)
        _LOG.error("cannot take in %s: %s", ref, error, exc_info=not isinstance(error, FleetError))


def _ref(kind: Kind, obj: Json) -> Ref:
    metadata = obj.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return Ref(kind, str(known.get("namespace") or ""), str(known.get("name") or ""))


class Unreadable:
    """Counts unreadable objects. Each is logged once, and again if the problem changes."""

    def __init__(self) -> None:
        # Kind and uid → what is wrong.
        self._known: OrderedDict[tuple[Kind, str], str] = OrderedDict()
        self.count = 0
        """How many different problems were met."""

    def note(self, kind: Kind, obj: Json, error: FleetError) -> None:
        meta = obj["metadata"]
        key, why = (kind, str(meta.get("uid"))), error.problem.message
        if self._known.get(key) == why:
            self._known.move_to_end(key)
            return
        self._known[key] = why
        self.count += 1
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        _LOG.warning(
            "skipping %s %s/%s (%d unreadable so far): %s", kind, meta.get("namespace"), meta["name"], self.count, why
        )

    def readable(self, kind: Kind, objects: Iterable[Json], read: Callable[[Json], T]) -> Iterator[T]:
        """What `read` makes of the objects; those for which it raises FleetError are skipped."""
        for obj in objects:
            try:
                yield read(obj)
            except FleetError as error:
                self.note(kind, obj, error)
