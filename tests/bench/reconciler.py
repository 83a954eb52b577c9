"""The operator: sandboxes made by `kubectl apply` in gVisor beside bare pods, and hundreds of them on pretended nodes.

SANDFLEET_SCALE is the number of those (300).
"""

import contextlib
import os
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Figure, progress, quantile

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.harness import fake_nodes
from cluster.harness.api import has_condition
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.many import (
    PODS_PER_NODE,
    Lags,
    create,
    delete,
    fake_template,
    volumes_by_hand,
    wait_gone,
    watched,
)
from cluster.operators import IMAGE, Sandboxes, operator, sandbox, template
from pods import running_cluster
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import sandbox_template
from sandfleet_operator.api.kube import CODE_SANDBOX, POD
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.events import REPORTER
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.names import workspace_claim_name
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from sandfleet_operator.plan.pods.volume import workspace_claim

Json = dict[str, Any]
STARTS = 20
SCALE = int(os.environ.get("SANDFLEET_SCALE", "300"))
# Who makes a write, by its verb and resource; on this bed each pair has one writer.
WRITERS = {
    ("POST", "codesandboxes"): "user",
    ("DELETE", "codesandboxes"): "user",
    ("APPLY", "networkpolicies"): "operator",
    ("APPLY", "configmaps"): "operator",
    ("POST", "persistentvolumeclaims"): "operator",
    ("POST", "pods"): "operator",
    ("PATCH", "codesandboxes/status"): "operator",
    ("POST", "pods/binding"): "scheduler",
    ("PATCH", "persistentvolumeclaims"): "scheduler",
    ("DELETE", "persistentvolumeclaims"): "garbage collector",
    ("DELETE", "pods"): "garbage collector and kubelet",
    ("PATCH", "pods/status"): "scheduler and kubelet",
}
VERBS = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
LINE = re.compile(r"apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)")
# What goes on whether or not there are sandboxes, and what asks without writing.
BACKGROUND = re.compile(
    r"leases|nodes|nodes/status|events|.*reviews|serviceaccounts/token|persistentvolumes|endpoint.*"
)


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the operator's figures: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from in_gvisor(cluster, Path(folder))
        yield from on_fake_nodes(cluster, Path(folder))


@dataclass
class Seen:
    """What a watch has shown of one kind: when each object was ready, its pod's address, and its number of versions."""

    ready: dict[str, float] = field(default_factory=dict)
    address: dict[str, str] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)

    def saw(self, _event: str, obj: Json, at: float) -> None:
        name = obj["metadata"]["name"]
        if has_condition(obj, "Ready"):
            self.ready.setdefault(name, at)
        elif name not in self.ready:
            self.versions[name] += 1
        if address := obj["status"].get("podIP") if "status" in obj else None:
            self.address[name] = address


def in_gvisor(cluster: Cluster, folder: Path) -> Iterator[Figure]:
    """Created → Ready, one by one and by turns with pods that only Kubernetes looks after."""
    progress("sandboxes in gVisor beside bare pods")
    ours, bare, opened, writes = [], [], [], []
    with operator(cluster, folder / "gvisor") as one:
        one.start().wait_leading()
        sandboxes = Sandboxes(cluster, one.namespaces[0])
        seen, pods = Seen(), Seen()
        with (
            watched(cluster, CODE_SANDBOX, sandboxes.namespace, seen.saw),
            watched(cluster, POD, sandboxes.namespace, pods.saw),
        ):
            for number in range(-1, STARTS):
                name = f"ours-{number}"
                began = time.monotonic()
                sandboxes.create(name)
                ours.append(until(seen.ready, name) - began)
                writes.append(seen.versions[name])
                sandboxes.delete(name)
                wait_gone(sandboxes)
                name = f"bare-{number}"
                began = time.monotonic()
                create_bare(sandboxes, name)
                opened.append(port_open(until(pods.address, name)) - began)
                bare.append(until(pods.ready, name) - began)
                for kind, its in (("Pod", name), ("PersistentVolumeClaim", workspace_claim_name(name))):
                    cluster.api.delete(kind, its, sandboxes.namespace)
                wait_gone(sandboxes)
    # The first of a namespace brings its policies, and finds no file of the node in memory.
    ours, bare, opened = ours[1:], bare[1:], opened[1:]
    note = "beside a bare pod of the same manifest, ready for the kubelet; ≤ 1.15"
    for share in (0.5, 0.99):
        name = f"sandbox created to Ready, p{share * 100:g}"
        yield Figure(name, quantile(ours, share), "s", quantile(bare, share), note)
    note = "beside the same bare pod until its port opens: the kubelet looks at it once a second"
    yield Figure("sandbox created to Ready, p50", quantile(ours, 0.5), "s", quantile(opened, 0.5), note)
    # Each version but the first is a write of the status; the last one says Ready.
    yield Figure("status writes until Ready", sum(writes[1:]) / STARTS, "writes", note="in gVisor")


def until(found: dict[str, Any], name: str, seconds: float = 60) -> Any:
    """What a watch has found of this name."""
    deadline = time.monotonic() + seconds
    while name not in found:
        if time.monotonic() > deadline:
            raise ClusterError(f"cannot wait for {name} any longer")
        time.sleep(0.005)
    return found[name]


def create_bare(sandboxes: Sandboxes, name: str) -> None:
    """The volume claim and the pod that the operator would make, without an owner."""
    where = sandboxes.namespace
    settings = Settings(control_plane_namespace=where, allowed_images=(IMAGE,))
    of = code_sandbox({**sandbox(where, name), "metadata": {"namespace": where, "name": name, "uid": name}})
    wanted = effective(sandbox_template(template(where)).spec, of.spec, settings)
    assert not isinstance(wanted, Refusal)
    sandboxes.cluster.api.create(workspace_claim(where, name, wanted, owner=None))
    sandboxes.cluster.api.create(sandbox_pod(PodRequest(namespace=where, name=name, wanted=wanted), settings))


def port_open(address: str, port: int = 50051, seconds: float = 60) -> float:
    """When it was, as the node sees it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return time.monotonic()
        time.sleep(0.01)
    raise ClusterError(f"cannot reach {address}:{port}")


def on_fake_nodes(cluster: Cluster, folder: Path) -> Iterator[Figure]:
    """What the operator itself needs, with a stand-in for executors."""
    progress(f"{SCALE} sandboxes on pretended nodes")
    names = [f"s-{number}" for number in range(SCALE)]
    kwok, nodes = cluster.programs["kwok"], SCALE // PODS_PER_NODE + 1
    with (
        fake_nodes.run(kwok, cluster.kubeconfig, cluster.api, folder, nodes, fake_nodes.StartTime()),
        operator(cluster, folder / "fakes", fake_template(), fakes=True) as one,
    ):
        one.start().wait_leading()
        sandboxes, lags = Sandboxes(cluster, one.namespaces[0]), Lags()
        with volumes_by_hand(sandboxes, names), watched(cluster, CODE_SANDBOX, sandboxes.namespace, lags.saw):
            writes, memory, cpu = written(cluster), one.memory(), one.cpu_seconds()
            create(sandboxes, names)
            deadline = time.monotonic() + 600
            while len(lags.ready) < SCALE:
                if one.revive():
                    raise ClusterError("the operator has lost its Lease: the machine is too busy to measure")
                if time.monotonic() > deadline:
                    raise ClusterError(f"{len(lags.ready)} of {SCALE} are ready")
                time.sleep(0.2)
            memory, cpu = one.memory() - memory, one.cpu_seconds() - cpu
            delete(sandboxes, names)
            cluster.api.wait("the pods to go", lambda: sandboxes.count("Pod") == 0, 300)
            cluster.api.wait("the claims to go", lambda: sandboxes.count("PersistentVolumeClaim") == 0, 300)
            writes = written(cluster) - writes + events(sandboxes)
    yield Figure("sandboxes reconciled", lags.rate, "1/s", note="created all at once; scheduler and volumes included")
    yield Figure("operator's CPU for one", cpu / SCALE * 1e3, "ms", note="until it is Ready")
    for share in (0.5, 0.99):
        yield Figure(f"object to Ready in the burst, p{share * 100:g}", quantile(lags.seconds, share), "s")
    yield Figure("operator's memory for 1,000", memory / 1e6 / SCALE * 1000, "MB")
    for who, note in (("operator", "; ≤ 8"), ("all", "")):
        mine = {what: count for what, count in writes.items() if who in ("all", WRITERS.get(what, what[0]))}
        yield Figure(f"API writes of a life, {who}", sum(mine.values()) / SCALE, "writes", note=listed(mine) + note)


def written(cluster: Cluster) -> Counter[tuple[str, str]]:
    """Writes that the API server has carried out, by verb and resource."""
    found: Counter[tuple[str, str]] = Counter()
    for line in LINE.finditer(cluster.kubectl("get", "--raw", "/metrics")):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line["labels"]))
        resource = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
        if labels["verb"] in VERBS and labels["code"].startswith("2") and not BACKGROUND.fullmatch(resource):
            found[labels["verb"], resource] += round(float(line["count"]))
    return found


def events(sandboxes: Sandboxes) -> Counter[tuple[str, str]]:
    """Events of the namespace by who has written them."""
    listed = sandboxes.cluster.api.list("Event", sandboxes.namespace)
    writers = (one.get("reportingComponent") or one["source"].get("component", "") for one in listed)
    return Counter(("operator" if name == REPORTER else name, "events") for name in writers)


def listed(writes: dict[tuple[str, str], int]) -> str:
    """Each with its number for one sandbox; what rounds to nothing is a namespace's."""
    each = sorted(((count / SCALE, *what) for what, count in writes.items()), reverse=True)
    return ", ".join(f"{count:.1f} {who} {what}" for count, who, what in each if count >= 0.05)
