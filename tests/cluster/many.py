"""Tools for hundreds of CodeSandboxes: create them, see all their versions, give them volumes on pretended nodes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cluster.harness import fake_nodes
from cluster.harness.api import has_condition
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.operators import Sandboxes, template
from sandfleet_operator.api.kube import CODE_SANDBOX, Event, Kind
from sandfleet_operator.cluster.kube import connect
from sandfleet_operator.plan.pods.names import workspace_claim_name

Json = dict[str, Any]
Saw = Callable[[str, Json, float], None]

# Nodes that pretend carry so many pods each.
PODS_PER_NODE = 200
VOLUMES = "api/v1/persistentvolumes"
# The StorageClass of volumes without a provisioner.
BY_HAND = "sandfleet-test-by-hand"
# So many calls of a test are in flight at once.
CALLERS = 8


@contextmanager
def watched(cluster: Cluster, kind: Kind, namespace: str, saw: Saw) -> Iterator[None]:
    """Calls `saw(type, object, time.monotonic())`, on its own thread, for each change in a namespace from now on."""
    loop, began = asyncio.new_event_loop(), threading.Event()
    task = loop.create_task(_watch(cluster, kind, namespace, saw, began))
    thread = threading.Thread(target=_finish, args=(loop, task), name=f"watch-{kind}", daemon=True)
    thread.start()
    if not began.wait(30):
        raise ClusterError(f"cannot watch {kind}: the API server does not answer")
    try:
        yield
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
    if not task.cancelled() and (error := task.exception()):
        raise error


def _finish(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """The loop is left open, because the task may be stopped at any moment."""
    loop.run_until_complete(asyncio.wait({task}))


async def _watch(cluster: Cluster, kind: Kind, namespace: str, saw: Saw, began: threading.Event) -> None:
    kube = await connect("watching-test", str(cluster.kubeconfig))
    try:
        version = (await kube.list(kind, namespace)).resource_version
        began.set()
        while True:
            event: Event
            async for event in kube.watch(kind, namespace, "", version):
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    saw(event.type, event.object, time.monotonic())
    finally:
        await kube.close()


@dataclass
class Made:
    """All objects of a kind that ever existed, by name; `most` at once under one name is 1 if none came too early."""

    uids: dict[str, list[str]] = field(default_factory=dict)
    there: dict[str, set[str]] = field(default_factory=dict)
    most: int = 0

    def saw(self, event: str, obj: Json, _at: float) -> None:
        name, uid = self.whose(obj), obj["metadata"]["uid"]
        there = self.there.setdefault(name, set())
        if event == "DELETED":
            there.discard(uid)
            return
        there.add(uid)
        self.most = max(self.most, len(there))
        known = self.uids.setdefault(name, [])
        if uid not in known:
            known.append(uid)

    def whose(self, obj: Json) -> str:
        return str(obj["metadata"]["name"])

    @property
    def counts(self) -> set[int]:
        """How many each name has had."""
        return {len(uids) for uids in self.uids.values()}


class PodsOfClaims(Made):
    """Pods by the workspace that they have."""

    def whose(self, obj: Json) -> str:
        claims = [one["persistentVolumeClaim"] for one in obj["spec"]["volumes"] if "persistentVolumeClaim" in one]
        return str(claims[0]["claimName"])


@dataclass
class Lags:
    """Seconds between the sight of an object and the sight of its status saying Ready."""

    seen: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    def saw(self, event: str, obj: Json, at: float) -> None:
        name = obj["metadata"]["name"]
        if event == "ADDED":
            self.seen[name] = at
        elif has_condition(obj, "Ready"):
            self.ready.setdefault(name, at)

    @property
    def seconds(self) -> list[float]:
        return sorted(at - self.seen[name] for name, at in self.ready.items())

    @property
    def rate(self) -> float:
        """Per second, from the first object to the last one that became ready."""
        return len(self.ready) / (max(self.ready.values()) - min(self.seen.values()))


def create(sandboxes: Sandboxes, names: list[str], **spec: Any) -> None:
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(lambda name: sandboxes.create(name, **spec), names))


def delete(sandboxes: Sandboxes, names: list[str]) -> None:
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(sandboxes.delete, names))


def ready(sandboxes: Sandboxes) -> set[str]:
    """Names of those whose status says so."""
    listed = sandboxes.cluster.api.list("CodeSandbox", sandboxes.namespace)
    return {one["metadata"]["name"] for one in listed if has_condition(one, "Ready")}


def wait_ready(sandboxes: Sandboxes, names: list[str], seconds: float) -> None:
    """Raises ClusterError, which says of how many it is not true, and why of one."""
    wanted, deadline = set(names), time.monotonic() + seconds
    while missing := wanted - ready(sandboxes):
        if time.monotonic() > deadline:
            one = min(missing)
            raise ClusterError(f"{len(missing)} of {len(names)} are not ready: {one} says {sandboxes.said(one)}")
        time.sleep(0.3)


def volumes(cluster: Cluster, namespace: str) -> list[Json]:
    """The PersistentVolumes that serve claims of this namespace."""
    found = cluster.api.call("GET", VOLUMES)["items"]
    return [one for one in found if one["spec"].get("claimRef", {}).get("namespace") == namespace]


def wait_gone(sandboxes: Sandboxes, seconds: float = 120) -> None:
    """Pods, claims and their volumes."""

    def gone() -> bool:
        left = sandboxes.count("Pod") + sandboxes.count("PersistentVolumeClaim")
        return left + len(volumes(sandboxes.cluster, sandboxes.namespace)) == 0

    sandboxes.cluster.api.wait(f"everything in {sandboxes.namespace} to go", gone, seconds)


# On nodes that only pretend.


def fake_template(**spec: Any) -> Json:
    """For pods that go to pretended nodes, on volumes that are there already."""
    return template("", workspace={"storageClassName": BY_HAND}, **(fake_nodes.PLACEMENT | spec))


@contextmanager
def volumes_by_hand(sandboxes: Sandboxes, names: list[str]) -> Iterator[None]:
    """A volume for the workspace of each, since nothing provisions them on nodes that only pretend."""
    api = sandboxes.cluster.api
    mode = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": BY_HAND}, **mode}
    if BY_HAND not in {one["metadata"]["name"] for one in api.list("StorageClass")}:
        api.create(storage_class)
    made = [_volume(sandboxes.namespace, name) for name in names]
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(lambda one: api.call("POST", VOLUMES, one), made))
        try:
            yield
        finally:
            list(callers.map(lambda one: api.call("DELETE", f"{VOLUMES}/{one['metadata']['name']}"), made))


def _volume(namespace: str, sandbox: str) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {"namespace": namespace, "name": workspace_claim_name(sandbox)},
        "hostPath": {"path": "/nowhere"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": BY_HAND,
    }
    metadata = {"name": f"{namespace}-{sandbox}"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


class Heartbeat:
    """A suspended sandbox whose spec changes each second: seconds until its status has seen each change."""

    def __init__(self, sandboxes: Sandboxes, name: str = "heartbeat") -> None:
        self._sandboxes, self._name = sandboxes, name
        self._sent: dict[int, float] = {}
        self._over = threading.Event()
        self.lags: list[float] = []

    def saw(self, _event: str, obj: Json, at: float) -> None:
        observed = obj.get("status", {}).get("observedGeneration")
        for generation in [one for one in self._sent if observed is not None and one <= observed]:
            self.lags.append(at - self._sent.pop(generation))

    @contextmanager
    def beating(self) -> Iterator[None]:
        one = self._sandboxes
        one.create(self._name, operatingMode="Suspended")
        one.wait(self._name, "Suspended")
        with watched(one.cluster, CODE_SANDBOX, one.namespace, self._saw_own):
            thread = threading.Thread(target=self._beat, daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._over.set()
                thread.join(20)
        one.delete(self._name)

    def _saw_own(self, event: str, obj: Json, at: float) -> None:
        if obj["metadata"]["name"] == self._name:
            self.saw(event, obj, at)

    def _beat(self) -> None:
        generation = 1
        while not self._over.wait(1.0):
            generation += 1
            self._sent[generation] = time.monotonic()
            self._sandboxes.patch(self._name, {"idleTimeoutSeconds": 1000 + generation})
