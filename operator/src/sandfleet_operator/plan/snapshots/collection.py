"""What a collection may remove, and when. docs/dev/adr/0054 says why this order is safe without a clock.

A pack is needed while a manifest that is not in the trash names it, or while its writer runs. A writer may build on a
snapshot that goes to the trash meanwhile; so a collection first notes what is in the trash, then who writes, and
removes only when all of those have ended. Writers that begin later find the trash and build on nothing in it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandfleet_operator.plan.snapshots.errors import corrupt
from sandfleet_operator.plan.snapshots.manifest import Manifest

# A writer gives up by its own clock after the first; a collection gives it up after the second, by the store's times.
MAX_SAVE_SECONDS = 24 * 3600.0
FENCE_SECONDS = 30 * 3600.0
# A fence stands until no writer of that time can be left.
FENCED_SECONDS = 8 * 24 * 3600.0
# A deleted snapshot can be taken back for so long, by the store's times. A collection removes it a day later, so that
# none that is being taken back is removed meanwhile: a snapshot is taken back in minutes.
QUARANTINE_SECONDS = 30 * 24 * 3600.0
REMOVED_SECONDS = QUARANTINE_SECONDS + 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Round:
    """One collection, as it is written down: what was in the trash, and after that who wrote."""

    trash: tuple[str, ...]
    writers: tuple[str, ...]

    def encode(self) -> bytes:
        return json.dumps({"trash": self.trash, "writers": self.writers}, separators=(",", ":")).encode("ascii")


def decode_round(text: bytes) -> Round:
    try:
        said = json.loads(text)
        return Round(tuple(map(str, said["trash"])), tuple(map(str, said["writers"])))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise corrupt("the record of its collection is none") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a collection has removed, or would remove.

    Attributes:
        objects: packs.
        bytes: of these packs.
        snapshots: deleted ones whose manifests went.
        waiting: writers that have to end before anything can be removed.
        fenced: writers that were given up.

    """

    objects: int = 0
    bytes: int = 0
    snapshots: int = 0
    waiting: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()


def goes(size: int, age: float) -> bool:
    """Whether a collection removes a deleted snapshot, whose mark in the trash has this size and age in seconds.

    An empty mark is of one that can never be taken back.
    """
    return not size or age > REMOVED_SECONDS


def needed(manifests: Iterable[Manifest]) -> dict[str, set[int]]:
    """The packs that snapshots need, by run."""
    found: dict[str, set[int]] = {}
    for manifest in manifests:
        for source, spans in zip(manifest.content.sources, manifest.content.packs, strict=True):
            packs = found.setdefault(source, set())
            for first, last in spans:
                packs.update(range(first, last + 1))
    return found


def unneeded(
    packs: Iterable[tuple[str, int, int]], needed: Mapping[str, set[int]], writing: frozenset[str]
) -> list[tuple[str, int, int]]:
    """Of packs (run, number, bytes) those that no snapshot needs and no writer is making."""
    return [
        (run, number, size)
        for run, number, size in packs
        if run not in writing and number not in needed.get(run, frozenset())
    ]
