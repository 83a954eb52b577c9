"""Keeps the store up to date: lists the objects of a kind, then watches from where the list ended.

Where a watch cannot go on (410), the next list shows what was deleted meanwhile.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.kube import Event, Expired, Json, Kind, KubeError
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import in_turns

# Before a list or a watch that failed is tried again.
BACKOFF = Backoff(first=0.2, longest=10.0)

_LOG = logging.getLogger(__name__)

# What to remember of an object; None: nothing, as if it did not exist.
Keep = Callable[[Json], Json | None]
# Called with the kind, whether the object is gone, the object as it is kept, and its version that was known before.
Saw = Callable[[Kind, bool, Json, Json | None], None]


# Objects of a page, and objects that are taken in before others get their turn: a few milliseconds' work. What a watch
# shows is also acted upon.
PAGE = 50
# Seconds of a watch that only waits for its bookmark, and after which a standby lists all objects instead. A standby
# lists a few objects at once: of a kind that seldom changes, an older API server's bookmarks may be old.
BOOKMARK_SECONDS, CATCH_UP_SECONDS = 3.0, 8.0
FEW = 500
TURN = 10
EVENTS_TURN = 4


def whole(obj: Json) -> Json:
    return obj


async def relist(
    kube: KubeApi,
    store: Store,
    kind: Kind,
    saw: Saw,
    *,
    namespace: str | None = None,
    selector: str = "",
    fields: str = "",
    keep: Keep = whole,
) -> str:
    """Brings the store up to date with a list of all objects; the version of the list. Raises KubeError.

    Only a page of them is in memory beside what the store keeps, and others get their turn between them.
    """
    seen: defaultdict[str, set[str]] = defaultdict(set)
    version = ""
    async with aclosing(kube.pages(kind, namespace, selector, fields, limit=PAGE)) as pages:
        async for page in pages:
            version = page.resource_version
            async for obj in in_turns(filter(None, map(keep, page.items)), TURN):
                seen[obj["metadata"].get("namespace", "")].add(obj["metadata"]["name"])
                take_in(store, kind, obj, saw, gone=False)
    for obj in store.keep_only(kind, seen, version, namespace):
        saw(kind, True, obj, obj)
    return version


def take_in(store: Store, kind: Kind, obj: Json, saw: Saw, *, gone: bool, keep: Keep = whole) -> None:
    """Brings the store up to date with one object that a watch or a list has shown."""
    before, found = store.get_like(kind, obj), keep(obj)
    if found is None and before is None:
        return
    gone, obj = gone or found is None, found or obj
    if store.remove(kind, obj) if gone else store.put(kind, obj):
        saw(kind, gone, store.get_like(kind, obj) or obj, before)


async def show_each(store: Store, kind: Kind, see: Callable[[Json], None], namespace: str | None = None) -> None:
    """Shows each object that the store has, of one namespace or of all, as it is when its turn comes."""
    async for obj in in_turns(list(store.all(kind, namespace)), TURN):
        now = store.get_like(kind, obj)
        if now is not None:
            store.intake.take(kind, now, partial(see, now))


class Reflector:
    """One kind in one namespace (None: in all), limited to the objects that both selectors name."""

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        kind: Kind,
        saw: Saw,
        *,
        namespace: str | None = None,
        selector: str = "",
        fields: str = "",
        keep: Keep = whole,
    ) -> None:
        self._kube = kube
        self._store = store
        self._kind = kind
        self._saw = saw
        self._namespace = namespace
        self._selector, self._fields = selector, fields
        self._keep = keep
        self._version = ""
        self.synced = asyncio.Event()
        """Set when the first list is in the store."""

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                failures = 0
                await self._watch()
            except Expired:
                self._version = ""
            except KubeError as error:
                _LOG.warning("cannot follow %s: %s", self._kind, error)
                failures += 1
                pause = error.retry_after or BACKOFF.after(failures)
                # So that not all of them come back at the same moment.
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - no secret

    async def catch_up(self) -> None:
        """Waits until the store has what there was when it was called. Raises KubeError.

        The version of an empty list is the barrier: a watch that has shown it has shown everything before it. Where
        nothing changes, a bookmark shows it. Only where neither comes are all objects listed.
        """
        if sum(1 for _ in self._store.all(self._kind, self._namespace)) <= FEW:
            await self.refresh()
            return
        barrier, version = await self._newest(), _number(self._version)
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._version and max(version, _number(self._version)) < barrier:
                    version = await self._shown_until(barrier)
        except (TimeoutError, KubeError) as error:
            _LOG.info("listing %s anew: %s", self._kind, str(error) or "its watch is behind")
            version = 0
        if max(version, _number(self._version)) < barrier:
            await self.refresh()

    async def _newest(self) -> int:
        """The version of now."""
        # No object has this name. A right to objects of one name would not include it.
        pages = self._kube.pages(self._kind, self._namespace, self._selector, self._fields or "metadata.name=-")
        async with aclosing(pages) as empty:
            async for page in empty:
                return _number(page.resource_version)
        return 0

    async def _shown_until(self, barrier: int) -> int:
        """The version up to which a short watch beside the long one has shown everything."""
        version = _number(self._version)
        watching = self._kube.watch(
            self._kind,
            self._namespace,
            self._selector,
            self._version,
            seconds=BOOKMARK_SECONDS,
            fields=self._fields,
        )
        async with aclosing(watching) as events:
            async for event in events:
                self._take(event)
                version = _number(event.object["metadata"]["resourceVersion"])
                if version >= barrier:
                    break
        return version

    async def refresh(self) -> str:
        """Lists all objects again; the version of the list. Raises KubeError."""
        return await relist(
            self._kube,
            self._store,
            self._kind,
            self._saw,
            namespace=self._namespace,
            selector=self._selector,
            fields=self._fields,
            keep=self._keep,
        )

    async def _list(self) -> None:
        self._version = await self.refresh()
        self.synced.set()

    async def _watch(self) -> None:
        watching = self._kube.watch(self._kind, self._namespace, self._selector, self._version, fields=self._fields)
        count = 0
        async with aclosing(watching) as events:
            async for event in events:
                count += 1
                if count % EVENTS_TURN == 0:
                    # Events that came together are there without any wait.
                    await asyncio.sleep(0)
                self._version = event.object["metadata"]["resourceVersion"]
                self._take(event)

    def _take(self, event: Event) -> None:
        if event.type == "BOOKMARK":
            return
        obj = {"apiVersion": self._kind.api_version, "kind": self._kind.kind, **event.object}
        take_in(self._store, self._kind, obj, self._saw, gone=event.type == "DELETED", keep=self._keep)


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0


class Reflectors:
    """Of several kinds: `watched` has the selector of each, `kept` what to remember of an object where it is less.

    `fields` has the field selectors of kinds that have one.
    `namespaces` empty: all.
    """

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        watched: Mapping[Kind, str],
        saw: Saw,
        *,
        namespaces: Sequence[str] = (),
        kept: Mapping[Kind, Keep] | None = None,
        fields: Mapping[Kind, str] | None = None,
    ) -> None:
        kept, fields = kept or {}, fields or {}
        self._reflectors = [
            Reflector(
                kube,
                store,
                kind,
                saw,
                namespace=namespace,
                selector=selector,
                fields=fields.get(kind, ""),
                keep=kept.get(kind, whole),
            )
            for kind, selector in watched.items()
            for namespace in ((namespaces or (None,)) if kind.namespaced else (None,))
        ]

    async def follow(self) -> None:
        """Keeps the store fresh until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    @property
    def are_synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    async def synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def refresh(self) -> None:
        """Lists everything. Raises KubeError."""
        for reflector in self._reflectors:
            await reflector.refresh()

    async def catch_up(self) -> None:
        """Waits until the store has everything that there was when it was called. Raises KubeError."""
        await asyncio.gather(*(reflector.catch_up() for reflector in self._reflectors))
