"""The test bed of the contract: an API server, real or in memory, and a namespace in it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandfleet_operator.api.kube import (
    CONFIG_MAP,
    POD,
    Kind,
    NotFound,
    Ref,
)
from sandfleet_operator.cluster.kube_api import KubeApi

# Bytes of the annotations of one object, and of an object as etcd takes it.
MAX_ANNOTATIONS, MAX_OBJECT = 256 << 10, 3 << 19
# A UID that no object has.
STRANGER = "00000000-0000-4000-8000-ffffffffffff"
# A custom resource with a status subresource and conditions that are merged by type.
THING = Kind("contract.sandfleet.io", "v1", "things", "Thing")


@dataclass
class Bed:
    api: KubeApi
    # A client whose watches end soon.
    short: KubeApi
    # A namespace for this test alone.
    namespace: str
    # The cluster's part: terminating pods end, orphans are deleted, a bookmark comes, a version expires.
    kubelet: Callable[[Ref], Awaitable[None]]
    collect: Callable[[], None]
    bookmark: Callable[[], None]
    too_old: Callable[[], str]

    def config(self, name: str = "one", **metadata):
        return self.make(CONFIG_MAP, name, metadata, data={"color": "blue"})

    def thing(self, name: str = "one", spec: object = None, **metadata):
        return self.make(THING, name, metadata, spec=spec or {"size": 1})

    def pod(self, name: str = "one", **spec):
        containers = [{"name": "main", "image": "none.invalid/none"}]
        return self.make(POD, name, {}, spec={"containers": containers, **spec})

    def make(self, kind: Kind, name: str, metadata, **fields):
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"namespace": self.namespace, "name": name, **metadata},
            **fields,
        }

    def ref(self, kind: Kind, name: str = "one") -> Ref:
        return Ref(kind, self.namespace, name)

    async def gone(self, ref: Ref) -> None:
        """Waits for it."""
        async with asyncio.timeout(60):
            while await self.there(ref):
                self.collect()
                await asyncio.sleep(0.05)

    async def there(self, ref: Ref) -> bool:
        try:
            await self.api.get(ref)
        except NotFound:
            return False
        return True


def version(obj) -> int:
    return int(obj["metadata"]["resourceVersion"])
