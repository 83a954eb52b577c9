"""Keeps the store as the API server has it: a list, then a watch that goes on where the list ended, for ever."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing

from sandfleet_operator.api.kube import Expired, Json, Kind, KubeError
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.store import Store

# Seconds before what failed is tried again; it doubles from failure to failure.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0

_LOG = logging.getLogger(__name__)

# Of what was seen: its kind, whether it is gone, and the object.
Saw = Callable[[Kind, bool, Json], None]


class Reflector:
    """One kind in one namespace (None: in all), those that the selector names."""

    def __init__(
        self, kube: KubeApi, store: Store, kind: Kind, saw: Saw, *, namespace: str | None = None, selector: str = ""
    ) -> None:
        self._kube = kube
        self._store = store
        self._kind = kind
        self._saw = saw
        self._namespace = namespace
        self._selector = selector
        self._version = ""
        self.synced = asyncio.Event()
        """Set when everything that was there at the beginning has been seen."""

    async def run(self) -> None:
        """Until it is cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                if not self._version:
                    await self._list()
                pause = FIRST_PAUSE
                await self._watch()
            except Expired:
                self._version = ""
            except KubeError as error:
                _LOG.warning("cannot follow %s: %s", self._kind, error)
                # So that not all of them come back at the same moment.
                await asyncio.sleep((error.retry_after or pause) * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
                pause = min(LONGEST_PAUSE, 2 * pause)

    async def refresh(self) -> str:
        """Everything as it is now; its version. Raises KubeError."""
        listing = await self._kube.list(self._kind, self._namespace, self._selector)
        for obj in self._store.replace(self._kind, listing.items, listing.resource_version, self._namespace):
            self._saw(self._kind, self._store.get_like(self._kind, obj) is None, obj)
        return listing.resource_version

    async def _list(self) -> None:
        self._version = await self.refresh()
        self.synced.set()

    async def _watch(self) -> None:
        watching = self._kube.watch(self._kind, self._namespace, self._selector, self._version)
        async with aclosing(watching) as events:
            async for event in events:
                self._version = event.object["metadata"]["resourceVersion"]
                if event.type == "BOOKMARK":
                    continue
                obj = {"apiVersion": self._kind.api_version, "kind": self._kind.kind, **event.object}
                gone = event.type == "DELETED"
                news = self._store.remove(self._kind, obj) if gone else self._store.put(self._kind, obj)
                if news:
                    self._saw(self._kind, gone, obj)
