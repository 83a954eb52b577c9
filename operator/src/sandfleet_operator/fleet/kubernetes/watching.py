"""The watches of all that the fleet decides by."""

import asyncio
from collections.abc import Callable, Sequence

from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NETWORK_POLICY,
    NODE,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
)
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.reflector import Reflector
from sandfleet_operator.effects.store import Store
from sandfleet_operator.plan.names import SANDBOX_SELECTOR

WATCHED: dict[Kind, str] = {
    NETWORK_POLICY: SANDBOX_SELECTOR,
    SANDBOX_TEMPLATE: "",
    SANDBOX_POOL: "",
    NODE: "",
    CODE_SANDBOX: "",
    POD: SANDBOX_SELECTOR,
}


class Watching:
    """`saw` hears of each change: the kind, whether it is gone, the object. `namespaces` empty: all."""

    def __init__(
        self, kube: KubeApi, store: Store, saw: Callable[[Kind, bool, Json], None], namespaces: Sequence[str]
    ) -> None:
        self._reflectors = [
            Reflector(kube, store, kind, saw, namespace=namespace, selector=selector)
            for kind, selector in WATCHED.items()
            for namespace in ((namespaces or (None,)) if kind.namespaced else (None,))
        ]

    async def follow(self) -> None:
        """Keeps the store fresh until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def refresh(self) -> None:
        """Everything as it is now. Raises KubeError."""
        for reflector in self._reflectors:
            await reflector.refresh()
