"""Nodes that only pretend (KWOK), for what needs hundreds of them; their pods take as long to start as gVisor's do."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .api import Api, has_condition

Json = dict[str, Any]
KEY = "sandfleet.test/fake"
LABELS = {"type": "kwok", KEY: "true"}
TAINT = {"key": KEY, "value": "true", "effect": "NoSchedule"}
# How an administrator says that the machine is off.
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

# What a pod has to say to be placed there, and only there.
PLACEMENT: Json = {
    "nodeSelector": {KEY: "true"},
    "tolerations": [{"key": KEY, "operator": "Exists"}],
}


@dataclass(frozen=True)
class StartTime:
    """Seconds from placed to ready: between `least` and `most`. Measured for gVisor: about 1 s, 20 at once 10 s."""

    least: float = 0.8
    most: float = 1.6


def _stage(name: str, kind: str, when: list[Json], following: Json, delay: Json | None = None) -> Json:
    spec: Json = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": when},
        "next": following,
    }
    if delay:
        spec["delay"] = delay
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _when(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_POD_RUNS = """\
{{ $now := Now }}
conditions:
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Initialized}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Ready}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: ContainersReady}
{{ range .spec.readinessGates }}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: {{ .conditionType | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ $ips := PodIPsWith .spec.nodeName false ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
{{ with $ips }}
podIP: {{ index . 0 | Quote }}
podIPs: [{ip: {{ index . 0 | Quote }}}]
{{ end }}
phase: Running
startTime: {{ $now | Quote }}
"""
_NODE_READY = """\
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
  message: {{ .message | Quote }}
  reason: {{ .reason | Quote }}
  status: {{ .status | Quote }}
  type: {{ .type | Quote }}
{{ end }}
addresses: [{address: {{ NodeIP | Quote }}, type: InternalIP}, {address: {{ NodeName | Quote }}, type: Hostname}]
allocatable: {cpu: "64", memory: 256Gi, ephemeral-storage: 1Ti, pods: "250"}
capacity: {cpu: "64", memory: 256Gi, ephemeral-storage: 1Ti, pods: "250"}
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: kwok
  kernelVersion: kwok
  kubeProxyVersion: ""
  kubeletVersion: kwok
  machineID: ""
  operatingSystem: linux
  osImage: ""
  systemUUID: ""
phase: Running
"""


def stages(start: StartTime) -> list[Json]:
    """How pretended nodes and pods come to life and go."""
    going = _when(".metadata.deletionTimestamp", "Exists")
    staying = _when(".metadata.deletionTimestamp", "DoesNotExist")
    delay = {
        "durationMilliseconds": round(start.least * 1000),
        "jitterDurationMilliseconds": round(start.most * 1000),
    }
    waiting = [staying, _when(".status.phase", "In", "Pending"), _when(_READY, "NotIn", "True")]
    return [
        _stage("node-ready", "Node", [_when(_READY, "NotIn", "True")], {"statusTemplate": _NODE_READY}),
        _stage("pod-ready", "Pod", waiting, {"statusTemplate": _POD_RUNS}, delay),
        _stage("pod-delete", "Pod", [going], {"delete": True}),
    ]


def node(index: int) -> Json:
    metadata = {"name": f"fake-{index}", "labels": {**LABELS, "kubernetes.io/hostname": f"fake-{index}"}}
    # kwok tells the nodes that it manages by the label; the annotation tells people.
    metadata["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [TAINT]}}


@contextmanager
def run(program: Path, kubeconfig: Path, api: Api, directory: Path, count: int, start: StartTime) -> Iterator[None]:
    """`count` nodes that are ready, for as long as the block lasts; pods left on them are removed with them."""
    config = directory / "stages.yaml"
    config.write_text("\n---\n".join(json.dumps(stage) for stage in stages(start)))
    flags = [
        "--kubeconfig",
        str(kubeconfig),
        "--config",
        str(config),
        "--manage-nodes-with-label-selector",
        "type=kwok",
    ]
    # A home of its own, so that nothing of the user's is read.
    command = ["setpriv", "--pdeathsig", "KILL", str(program), *flags, "--node-lease-duration-seconds", "40"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(directory)}
    with (directory / "kwok.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        for index in range(count):
            api.apply(node(index))
        names = {f"fake-{index}" for index in range(count)}

        def ready() -> bool:
            nodes = api.list("Node")
            return names <= {entry["metadata"]["name"] for entry in nodes if has_condition(entry, "Ready")}

        api.wait(f"{count} pretended nodes (see {directory / 'kwok.log'})", ready, 90)
        yield
    finally:
        remove(api)
        process.kill()
        process.wait()


def silence(api: Api, name: str) -> None:
    """The node no longer answers: kwok ignores it and its pods, as if the time that Kubernetes waits had passed."""
    merge = "application/merge-patch+json"
    api.call("PATCH", f"api/v1/nodes/{name}", {"metadata": {"labels": {"type": None}}}, merge)
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    unknown = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": now,
    }
    # Conditions are merged by their type.
    strategic = "application/strategic-merge-patch+json"
    api.call("PATCH", f"api/v1/nodes/{name}/status", {"status": {"conditions": [unknown]}}, strategic)


def remove(api: Api) -> None:
    """The nodes of this and of any earlier run that was cut off, with their pods."""
    fake = {entry["metadata"]["name"] for entry in api.list("Node") if KEY in entry["metadata"].get("labels", {})}
    for pod in api.list("Pod"):
        if pod["spec"].get("nodeName") in fake:
            api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
    for name in fake:
        api.delete("Node", name)
