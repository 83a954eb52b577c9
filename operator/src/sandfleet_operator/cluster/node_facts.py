"""Facts about the cluster that seldom change: its storage classes, and what the runtimes of its nodes can do."""

import asyncio
from collections.abc import Callable

from sandfleet_operator.api.kube import NODE, RUNTIME_CLASS, STORAGE_CLASS, Json, KubeError, NotFound, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.sandbox.observed import node_of

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
# Seconds for which an answer is used.
FRESH = 10.0


class NodeFacts:
    def __init__(self, kube: KubeApi, store: Store, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._store = store
        self._clock = clock
        self._classes: tuple[Json, ...] = ()
        self._listed = float("-inf")
        # RuntimeClass → the name of its handler on the nodes.
        self._handlers: dict[str, str] = {}
        # RuntimeClass → when it was last read.
        self._tried: dict[str, float] = {}
        self._looking = asyncio.Lock()
        # RuntimeClass → the inputs of the last answer, and the answer: each round of each sandbox asks.
        self._able: dict[str, tuple[tuple[str, int], bool]] = {}

    async def storage_problem(self, storage_class: str | None) -> str:
        """Why no volume of this class (None: the default class) can be created; empty if one can. Raises KubeError."""
        if self._clock() - self._listed > FRESH:
            self._classes = (await self._kube.list(STORAGE_CLASS)).items
            self._listed = self._clock()
        known = {one["metadata"]["name"]: one["metadata"].get("annotations") or {} for one in self._classes}
        if storage_class == "":
            # In Kubernetes the empty class means volumes that an administrator created by hand.
            return ""
        if storage_class is None:
            default = any(annotations.get(DEFAULT_CLASS) == "true" for annotations in known.values())
            return "" if default else "cannot make a workspace: no class is named and the cluster has no default one"
        return "" if storage_class in known else f"cannot make a workspace: there is no StorageClass {storage_class!r}"

    async def refresh(self) -> None:
        """Reads all known RuntimeClasses again."""
        for name in list(self._handlers):
            await self._look(name)

    async def user_namespaces(self, runtime_class: str) -> bool:
        """Whether every node's runtime can give pods of this class user namespaces; False if it cannot be read."""
        async with self._looking:
            tried = self._tried.get(runtime_class, float("-inf"))
            if runtime_class and runtime_class not in self._handlers and self._clock() - tried > FRESH:
                await self._look(runtime_class)
        handler = self._handlers.get(runtime_class, "")
        basis = (handler, self._store.changes(NODE))
        known = self._able.get(runtime_class)
        if known is None or known[0] != basis:
            known = self._able[runtime_class] = basis, self._all_nodes_have(handler)
        return known[1]

    def _all_nodes_have(self, handler: str) -> bool:
        nodes = [node_of(one) for one in self._store.all(NODE)]
        return bool(handler and nodes) and all(handler in node.user_namespaces for node in nodes)

    async def _look(self, name: str) -> None:
        self._tried[name] = self._clock()
        try:
            found = await self._kube.get(Ref(RUNTIME_CLASS, "", name))
        except NotFound:
            self._handlers[name] = ""
        except KubeError:
            return
        else:
            self._handlers[name] = str(found.get("handler", ""))
