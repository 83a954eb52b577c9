"""Removes what no snapshot needs. It may be killed at any point, run twice at once, and meet writers at any point."""

import contextlib
import json

from sandfleet_operator.plan.snapshots.collection import (
    FENCE_SECONDS,
    FENCED_SECONDS,
    Collected,
    Round,
    decode_round,
    goes,
    needed,
    unneeded,
)
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, corrupt
from sandfleet_operator.snapshots.backends import Found
from sandfleet_operator.snapshots.keys import Keys
from sandfleet_operator.snapshots.layout import FENCE, TenantObjects

_AT_ONCE = 500


class Collector:
    """The time is the store's, by which markers and fences are dated: this machine's clock may be wrong."""

    def __init__(self, objects: TenantObjects, keys: Keys) -> None:
        self._objects, self._keys = objects, keys

    def collect(self) -> Collected:
        """Removes nothing where it has to wait for writers; the next call goes on. Raises SnapshotError."""
        now = self._objects.store_time()
        fenced = self._fence_old(now)
        round_ = self._round(now)
        # Listed before the writers: a pack in it is finished, or its writer is seen.
        packs = list(self._objects.packs())
        writing = self._writers()
        waiting = tuple(sorted(writing & set(round_.writers)))
        if waiting:
            return Collected(waiting=waiting, fenced=fenced)
        kept = needed(self._objects.manifests(self._keys, frozenset(round_.trash)))
        gone = unneeded(packs, kept, writing)
        self._delete([self._objects.pack_key(run, number) for run, number, _ in gone])
        # The manifests before their trash: what is named there must never be read as a snapshot again.
        self._delete([self._objects.manifest_key(name) for name in round_.trash])
        self._delete([self._objects.trash_key(name) for name in round_.trash])
        self._objects.objects.delete([self._objects.round_key])
        return Collected(
            objects=len(gone), bytes=sum(size for *_, size in gone), snapshots=len(round_.trash), fenced=fenced
        )

    def would_collect(self) -> Collected:
        """What `collect` would remove now, if no writer were in its way. Writes nothing."""
        trash = self._gone(self._objects.store_time())
        packs, writing = list(self._objects.packs()), self._writers()
        gone = unneeded(packs, needed(self._objects.manifests(self._keys, trash)), writing)
        return Collected(
            objects=len(gone),
            bytes=sum(size for *_, size in gone),
            snapshots=len(trash),
            waiting=tuple(sorted(writing)),
        )

    def _gone(self, now: float) -> frozenset[str]:
        """What of the trash cannot be taken back any more."""
        return frozenset(name for name, found in self._objects.names("trash") if goes(found.size, now - found.modified))

    def _round(self, now: float) -> Round:
        """The round that is under way, or a new one: first the trash is noted, then who writes."""
        trash = self._gone(now)
        new = Round(tuple(sorted(trash)), tuple(sorted(self._writers())))
        try:
            self._objects.objects.put(self._objects.round_key, new.encode(), new=True)
        except SnapshotError as error:
            if error.reason is not Reason.EXISTS:
                raise
            with contextlib.suppress(SnapshotError):
                return decode_round(self._objects.objects.get(self._objects.round_key))
            # Just ended by another collection, or unreadable; the next call begins anew.
            self._objects.objects.delete([self._objects.round_key])
            raise SnapshotError(Reason.UNAVAILABLE, "cannot collect: another collection is under way") from error
        return new

    def _writers(self) -> frozenset[str]:
        return frozenset(name for name, _ in self._objects.names("writers"))

    def _fence_old(self, now: float) -> tuple[str, ...]:
        """Gives up writers that are too old, clears away markers of ended ones, and fences that guard against none."""
        fenced = []
        for run, found in list(self._objects.names("writers")):
            if now - found.modified > FENCE_SECONDS and self._fence(run):
                fenced.append(run)
        for sid, found in list(self._objects.names("manifests")):
            if found.size == len(FENCE) and now - found.modified > FENCED_SECONDS:
                self._drop_fence(sid, found)
        return tuple(fenced)

    def _fence(self, run: str) -> bool:
        """Whether it was given up: from now on it cannot commit. One that has committed only loses its marker."""
        marker = self._objects.writer_key(run)
        try:
            key = self._objects.manifest_key(str(json.loads(self._objects.objects.get(marker))["snapshot"]))
        except SnapshotError as error:
            if error.reason is Reason.NOT_FOUND:
                return False
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise corrupt(f"{marker} is no marker of a writer") from error
        given_up = True
        try:
            self._objects.objects.put(key, FENCE, new=True)
        except SnapshotError as error:
            if error.reason is not Reason.EXISTS:
                raise
            given_up = self._objects.objects.get(key) == FENCE
        self._objects.objects.delete([marker])
        return given_up

    def _drop_fence(self, sid: str, found: Found) -> None:
        if self._objects.objects.get(found.key) == FENCE:
            self._objects.objects.delete([self._objects.manifest_key(sid)])

    def _delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), _AT_ONCE):
            self._objects.objects.delete(keys[start : start + _AT_ONCE])
