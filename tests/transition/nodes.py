"""A cluster that checks its own invariants, and the nodes that start and end its pods."""

import asyncio
from collections.abc import Callable
from copy import deepcopy

from sandfleet_operator.api import kube
from sandfleet_operator.api.kube import NETWORK_POLICY, POD, Json, Ref
from sandfleet_operator.plan.pods import names
from support.fakes.kube_cluster import MemoryCluster, deleting

NODE = "node-1"
# Seconds.
NODE_PAUSE = 0.3


class CheckedCluster(MemoryCluster):
    """Records violations of invariants at the moment they occur."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.wrong: list[str] = []
        self.by_hand = False
        # The version of the last change that was not a heartbeat.
        self.moved = 0

    def commit(self, ref: Ref, new: Json) -> Json:
        before = ref in self.objects
        done = super().commit(ref, new)
        if ref.kind != kube.NODE:
            self.moved = self.version
        if ref.kind == POD and not before and ref in self.objects:
            self._began(ref)
        if ref.kind == NETWORK_POLICY and ref.name == names.DEFAULT_DENY and not self.by_hand:
            self._opened(ref)
        return done

    def _began(self, ref: Ref) -> None:
        if Ref(NETWORK_POLICY, ref.namespace, names.DEFAULT_DENY) not in self.objects:
            self.wrong.append(f"{ref} began in an open namespace")
        labels = self.objects[ref]["metadata"]["labels"]
        own = labels.get(names.EGRESS_OWN)
        if own and Ref(NETWORK_POLICY, ref.namespace, names.own_policy(own)) not in self.objects:
            self.wrong.append(f"{ref} began without its egress policy")
        claims = [claim_of(obj) for other, obj in self.objects.items() if other.kind == POD]
        mine = claim_of(self.objects[ref])
        if mine and claims.count(mine) > 1:
            self.wrong.append(f"{ref} began on a workspace that another pod has")

    def _opened(self, ref: Ref) -> None:
        pods = [other for other in self.objects if other.kind == POD and other.namespace == ref.namespace]
        if ref not in self.objects and pods:
            self.wrong.append(f"{ref} was taken from {pods[0]}")


class Nodes:
    """The scheduler, the kubelets and the garbage collector: each does its part a moment after a change."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        # The nodes do nothing and report nothing.
        self.silent = False
        # The garbage collector is behind.
        self.keeps_orphans = False
        # What the node or the scheduler says of a pod that cannot start.
        self.holds_up: Callable[[Json], None] = lambda _pod: None
        self._addresses = 0

    async def run(self) -> None:
        news = asyncio.Event()
        self._cluster.waiting[news] = None
        while True:
            await news.wait()
            news.clear()
            await asyncio.sleep(NODE_PAUSE)
            for ref, obj in list(self._cluster.objects.items()):
                if ref.kind == POD and not self.silent:
                    self._kubelet(ref, obj)
            if not self.keeps_orphans:
                self._cluster.collect()

    def _kubelet(self, ref: Ref, pod: Json) -> None:
        if deleting(pod):
            if pod["status"]["phase"] == "Running":
                self._cluster.edit(ref, lambda obj: ended(obj, 0))
            else:
                self._cluster.remove(ref, 0)
        elif self._is_held_up(ref, pod):
            return
        elif not pod["spec"].get("nodeName"):
            claim = claim_of(pod)
            if not claim or Ref(kube.PERSISTENT_VOLUME_CLAIM, ref.namespace, claim) in self._cluster.objects:
                self._cluster.edit(ref, lambda obj: obj["spec"].update(nodeName=NODE))
        elif pod["status"]["phase"] == "Pending":
            self._addresses += 1
            self._cluster.edit(ref, lambda obj: _started(obj, f"10.0.0.{self._addresses}"))

    def _is_held_up(self, ref: Ref, pod: Json) -> bool:
        if pod["status"]["phase"] != "Pending":
            return False
        said = deepcopy(pod)
        self.holds_up(said)
        if said != pod:
            self._cluster.edit(ref, self.holds_up)
            return True
        return bool(pod["status"].get("containerStatuses") or pod["status"].get("conditions"))


def claim_of(pod: Json) -> str:
    """The pod's volume claim; empty for an ephemeral workspace."""
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    return str(volumes["workspace"].get("persistentVolumeClaim", {}).get("claimName", ""))


def node_answers(node: Json) -> None:
    node["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}


def _started(pod: Json, address: str) -> None:
    container = {"name": "executor", "imageID": "sha256:1", "state": {"running": {}}}
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    pod["status"] = {
        "phase": "Running",
        "podIP": address,
        "conditions": conditions,
        "containerStatuses": [container],
    }


def ended(pod: Json, code: int, reason: str = "Error") -> None:
    """Writes the status of a pod whose executor has exited, as the kubelet does."""
    status = pod["status"]
    status["phase"] = "Failed" if code else "Succeeded"
    status["conditions"] = [{"type": "Ready", "status": "False"}]
    status["containerStatuses"][0]["state"] = {"terminated": {"exitCode": code, "reason": reason}}


def unheard(pod: Json) -> None:
    """The pod's node no longer answers."""
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def tainted(pod: Json) -> None:
    """Kubernetes deletes the pod, because its node does not answer."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "no answer"}
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}, target]


def evicted(pod: Json) -> None:
    pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    pod["status"]["containerStatuses"] = []
