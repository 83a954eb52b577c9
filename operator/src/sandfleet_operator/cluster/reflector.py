"""Keeps the store up to date: lists the objects of a kind, then watches from where the list ended."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing

from sandfleet_operator.api.backoff import Backoff
from sandfleet_operator.api.kube import Expired, Json, Kind, KubeError
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import in_turns

# Before a list or a watch that failed is tried again.
BACKOFF = Backoff(first=0.2, longest=10.0)

_LOG = logging.getLogger(__name__)

# What to remember of an object; None: nothing, as if it did not exist.
Keep = Callable[[Json], Json | None]
# Called with the kind, whether the object is gone, and the object.
Saw = Callable[[Kind, bool, Json], None]


# Objects of a page, and objects that are taken in before others get their turn: each a few milliseconds' work.
PAGE = 50
TURN = 20


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
    keep: Keep = whole,
) -> str:
    """Brings the store up to date with a list of all objects; the version of the list. Raises KubeError.

    Only a page of them is in memory beside what the store keeps, and others get their turn between them.
    """
    seen: set[tuple[str, str]] = set()
    version = ""
    async with aclosing(kube.pages(kind, namespace, selector, limit=PAGE)) as pages:
        async for page in pages:
            version = page.resource_version
            async for obj in in_turns(filter(None, map(keep, page.items)), TURN):
                seen.add((obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
                if store.put(kind, obj):
                    saw(kind, False, store.get_like(kind, obj) or obj)
    for obj in store.keep_only(kind, seen, version, namespace):
        saw(kind, True, obj)
    return version


class Reflector:
    """One kind in one namespace (None: in all), limited to the objects that the selector names."""

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        kind: Kind,
        saw: Saw,
        *,
        namespace: str | None = None,
        selector: str = "",
        keep: Keep = whole,
    ) -> None:
        self._kube = kube
        self._store = store
        self._kind = kind
        self._saw = saw
        self._namespace = namespace
        self._selector = selector
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

    async def refresh(self) -> str:
        """Lists all objects again; the version of the list. Raises KubeError."""
        return await relist(
            self._kube,
            self._store,
            self._kind,
            self._saw,
            namespace=self._namespace,
            selector=self._selector,
            keep=self._keep,
        )

    async def _list(self) -> None:
        self._version = await self.refresh()
        self.synced.set()

    async def _watch(self) -> None:
        watching = self._kube.watch(self._kind, self._namespace, self._selector, self._version)
        count = 0
        async with aclosing(watching) as events:
            async for event in events:
                count += 1
                if count % TURN == 0:
                    # Events that came together are there without any wait.
                    await asyncio.sleep(0)
                self._version = event.object["metadata"]["resourceVersion"]
                if event.type == "BOOKMARK":
                    continue
                obj = {"apiVersion": self._kind.api_version, "kind": self._kind.kind, **event.object}
                found = self._keep(obj)
                if found is None and self._store.get_like(self._kind, obj) is None:
                    continue
                gone = event.type == "DELETED" or found is None
                obj = found or obj
                news = self._store.remove(self._kind, obj) if gone else self._store.put(self._kind, obj)
                if news:
                    self._saw(self._kind, gone, self._store.get_like(self._kind, obj) or obj)
