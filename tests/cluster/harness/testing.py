"""What tests do with a cluster, whether it is ours or another one."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .api import Api, ApiError, has_condition
from .layout import TESTKIT_IMAGE, Addresses, ClusterError, Layout
from .plan import read_plan, recorded
from .processes import Process, children, find, inner_pid, kill

Json = dict[str, Any]
CONTROL_PORT = 7000

# What PodSecurity `restricted` asks for.
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Cluster:
    """`layout` is None for a cluster that was given: its node cannot be touched, and tests that need to are skipped."""

    kubeconfig: Path
    api: Api
    programs: Mapping[str, Path]
    layout: Layout | None

    @property
    def addresses(self) -> Addresses:
        plan = read_plan(self.layout) if self.layout else None
        if plan is None:
            raise ClusterError("cannot tell the cluster's addresses: it is not one of ours")
        return Addresses(plan.block)

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Standard output; raises ClusterError with what kubectl said when it fails."""
        command = [str(self.programs["kubectl"]), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def run_pod(self, value: Json, seconds: float = 60) -> Json:
        """Create a pod and wait until it is ready; raises ClusterError that says what it waits for."""
        metadata = value["metadata"]
        self.api.create(value)
        return self.pod_ready(metadata["namespace"], metadata["name"], seconds)

    def pod_ready(self, namespace: str, name: str, seconds: float = 60) -> Json:
        def ready() -> bool:
            return has_condition(self.api.get("Pod", name, namespace), "Ready")

        try:
            self.api.wait(f"pod {namespace}/{name}", ready, seconds)
        except ApiError:
            raise
        except ClusterError as error:
            status = self.api.get("Pod", name, namespace).get("status", {})
            raise ClusterError(f"{error}; its status: {json.dumps(status)[:2000]}") from None
        return self.api.get("Pod", name, namespace)

    def component(self, name: str) -> Process:
        """A process of the node, as this machine numbers it; raises ClusterError when it does not run."""
        first = recorded(self.layout) if self.layout else None
        if self.layout is None or first is None:
            raise ClusterError(f"cannot look for {name}: the node does not run here")
        try:
            wanted = int((self.layout.run / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            raise ClusterError(f"cannot find {name}: it does not run") from None
        found = next((find(pid) for pid in children(first.pid) if inner_pid(pid) == wanted), None)
        if found is None:
            raise ClusterError(f"cannot find {name}: it does not run")
        return found

    def kill(self, name: str) -> Process:
        """End a component as a crash would; the supervisor starts it again."""
        process = self.component(name)
        kill(process)
        return process

    def node_command(self, *command: str) -> list[str]:
        """The command that runs a program in the node's namespaces; raises ClusterError without a node."""
        first = recorded(self.layout) if self.layout else None
        if first is None:
            raise ClusterError(f"cannot run {command[0]} on the node: it does not run here")
        return ["nsenter", "--target", str(first.pid), "--mount", "--pid", "--net", *command]

    def on_node(self, *command: str) -> str:
        """Run a program in the node's namespaces; raises ClusterError with its last words."""
        inside = self.node_command(*command)
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise ClusterError(f"cannot run {command[0]} on the node: {done.stderr.strip()}")
        return done.stdout


def probe_pod(namespace: str, name: str, arguments: Sequence[str] = ("pause",), **spec: Any) -> Json:
    """A pod of the testkit image under `restricted`; `arguments` are the probe's."""
    labels, ports = spec.pop("labels", {}), spec.pop("ports", [])
    container = {
        "name": "probe",
        "image": TESTKIT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/probe", *arguments],
        "ports": ports,
        "securityContext": RESTRICTED,
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


@dataclass(frozen=True)
class Probe:
    """The control port of a probe; it is reached from the node, which every policy permits."""

    address: str
    source: str = ""
    """Of several addresses of its own: the one to dial from."""

    def _get(self, path: str, seconds: float, **query: object) -> Any:
        text = urllib.parse.urlencode(query, doseq=True)
        url = f"http://{self.address}:{CONTROL_PORT}{path}?{text}"
        with urllib.request.urlopen(url, timeout=seconds) as reply:
            return json.loads(reply.read() or b"null")

    def dial(self, targets: Sequence[str], milliseconds: int = 700) -> dict[str, bool]:
        """Which of the targets (`tcp:10.0.0.1:80`) answer within the time, all tried at once."""
        query = {"timeout": f"{milliseconds}ms", "target": list(targets), "source": self.source}
        answers: dict[str, bool] = self._get("/dial", 30, **query)
        return answers

    def heard(self) -> dict[str, int]:
        """How often each address has reached one of this probe's listeners."""
        answers: dict[str, int] = self._get("/heard", 5)
        return answers

    def open_stream(self, target: str) -> None:
        self._get("/stream/open", 10, target=target)

    def stream(self, target: str) -> Json:
        """`echoes`, `silent_seconds` since the last of them, `failed`: why writing ended, or ""."""
        state: Json = self._get("/stream/state", 5, target=target)
        return state
