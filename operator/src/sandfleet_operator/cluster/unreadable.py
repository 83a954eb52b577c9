"""Objects that this process cannot read: a newer version wrote them, or a person did. They are skipped, not fatal."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import Json, Kind

# Remembered objects, so that each is logged once.
MAX_KNOWN = 10_000

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


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
