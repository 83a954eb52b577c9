"""Operators as processes of this machine, each for its own namespaces, and what tests do with CodeSandboxes."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.harness.api import Api, ApiError, path_of
from cluster.harness.layout import REPOSITORY, ClusterError
from cluster.harness.testing import Cluster
from support.operator.crd_schemas import CRDS
from support.ports import free_port

Json = dict[str, Any]
IMAGE = "localhost/sandfleet-executor:dev"
RESTRICTED_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}
SMALL = {
    "limits": {"cpu": "1", "memory": "768Mi", "ephemeral-storage": "512Mi"},
    "requests": {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "128Mi"},
}


def lend(api: Api, namespace: str, lender: str, borrower: str, preemption: str) -> None:
    """Two queues of a cohort of their own, for one sandbox each."""
    cohort = f"all-{secrets.token_hex(3)}"
    for name, more in ((lender, {}), (borrower, {"preemption": preemption})):
        spec = {"nominalQuota": {"sandboxes": 1}, "cohort": cohort, **more}
        api.create(_own("SandboxQueue", namespace, name, spec))


def template(namespace: str, name: str = "python", **spec: Any) -> Json:
    spec = {"image": IMAGE, "resources": SMALL, **spec}
    return _own("SandboxTemplate", namespace, name, spec)


def sandbox(namespace: str, name: str, **spec: Any) -> Json:
    return _own("CodeSandbox", namespace, name, {"templateRef": {"name": "python"}} | spec)


def _own(kind: str, namespace: str, name: str, spec: Json) -> Json:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


@dataclass
class OperatorProcess:
    """One operator; `namespaces` are its sandboxes' and `home` the one of its Lease and keys."""

    cluster: Cluster
    folder: Path
    home: str
    namespaces: tuple[str, ...]
    fakes: bool = False
    settings: Json = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    def start(self) -> OperatorProcess:
        file = self.write_settings()
        self.port = free_port()
        real = ["sandfleet_operator", "operator", "--settings", str(file), "--health-port", str(self.port)]
        fake = ["cluster.operator_on_fakes", str(file), str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *(fake if self.fakes else real)], stderr=log, stdout=log, env=self.environment
            )
        return self

    def write_settings(self) -> Path:
        settings = {
            "controlPlaneNamespace": self.home,
            "watchNamespaces": list(self.namespaces),
            "allowedImages": ["localhost/sandfleet-executor:*", "localhost/sandfleet-testkit:*", "localhost/nowhere:*"],
            **self.settings,
        }
        file = self.folder / "settings.json"
        file.write_text(json.dumps(settings))
        return file

    @property
    def environment(self) -> dict[str, str]:
        tests = str(REPOSITORY / "tests")
        return {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "PYTHONPATH": tests}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise ClusterError(f"the operator did not end: {self.log[-2000:]}") from None

    @property
    def led(self) -> int:
        """How many of the operators of this log have begun to lead."""
        return self.log.count("leading, with fencing number")

    def wait_leading(self, times: int = 1, seconds: float = 60) -> None:
        """Until an operator of this log has begun to lead, for the so manieth time."""
        deadline = time.monotonic() + seconds
        while self.led < times:
            if time.monotonic() > deadline:
                raise ClusterError(f"the operator does not lead: {self.log[-2000:]}")
            time.sleep(0.02)

    def revive(self) -> bool:
        """Starts it again after its end, as a Deployment does: a leader that cannot renew its Lease in time ends."""
        if self.process is None or self.process.poll() is None:
            return False
        self.start()
        return True

    def bury(self) -> None:
        """After `kill`: takes its name out of the Lease, since it is dead: no successor waits for the Lease's end."""
        patch = {"spec": {"holderIdentity": ""}}
        where = f"{path_of('Lease', self.home)}/sandfleet-operator"
        try:
            self.cluster.api.call("PATCH", where, patch, "application/merge-patch+json")
        except ApiError as error:
            # It had not come so far.
            if error.status != 404:
                raise

    def memory(self) -> int:
        """Resident bytes."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def install_kinds(api: Api) -> None:
    """Returns when all of them are served, for which the API server takes a moment."""
    api.apply_all(CRDS.values())
    for kind in CRDS:
        api.wait(f"the kind {kind}", lambda kind=kind: api.list(kind) is not None)


@contextmanager
def operator(cluster: Cluster, folder: Path, made_of: Json | None = None, **options: Any) -> Iterator[OperatorProcess]:
    """An operator, not started yet, for a namespace that enforces PodSecurity `restricted`; both are removed later.

    `made_of` is the template there, "python" unless it says otherwise; its namespace is filled in.
    """
    api = cluster.api
    install_kinds(api)
    mark = secrets.token_hex(4)
    home, work = f"operator-home-{mark}", f"operator-work-{mark}"
    for name, labels in ((home, {}), (work, RESTRICTED_LABELS)):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    made_of = made_of or template(work)
    api.create({**made_of, "metadata": {**made_of["metadata"], "namespace": work}})
    folder.mkdir(parents=True, exist_ok=True)
    one = OperatorProcess(cluster, folder, home, (work,), **options)
    try:
        yield one
    finally:
        if one.process is not None:
            one.end()
        for name in (work, home):
            api.delete("Namespace", name)


def said(status: Json, condition: str = "Ready") -> tuple[str, str, str]:
    """Status, reason and message of a condition; empty where there is none."""
    one = next((one for one in status.get("conditions", []) if one["type"] == condition), None)
    return (one["status"], one["reason"], one["message"]) if one else ("", "", "")


@dataclass(frozen=True)
class Sandboxes:
    """Of one namespace."""

    cluster: Cluster
    namespace: str

    def create(self, name: str, **spec: Any) -> Json:
        return self.cluster.api.create(sandbox(self.namespace, name, **spec))

    def get(self, name: str) -> Json:
        return self.cluster.api.get("CodeSandbox", name, self.namespace)

    def patch(self, name: str, spec: Json) -> None:
        where = f"apis/sandfleet.io/v1alpha1/namespaces/{self.namespace}/codesandboxes/{name}"
        self.cluster.api.call("PATCH", where, {"spec": spec}, "application/merge-patch+json")

    def delete(self, name: str) -> None:
        self.cluster.api.delete("CodeSandbox", name, self.namespace)

    def said(self, name: str, condition: str = "Ready") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        return said(self.get(name).get("status", {}), condition)

    def wait(self, name: str, reason: str, condition: str = "Ready", seconds: float = 60) -> str:
        """Until the condition has this reason; its message."""
        deadline = time.monotonic() + seconds
        # What one look has shown is not asked for again: it may be another by then.
        while (found := self.said(name, condition))[1] != reason:
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot wait for {condition} to say {reason}: it says {found}")
            time.sleep(0.1)
        return found[2]

    def ready(self, name: str, seconds: float = 60, other_than: str = "") -> Json:
        """The status once it is ready, in a pod of `other_than` another uid."""
        deadline = time.monotonic() + seconds
        while True:
            status: Json = self.get(name).get("status", {})
            found = said(status)
            if found[0] == "True" and status.get("podUID", "") not in {"", other_than}:
                return status
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot wait for {name} to be ready: {found}, {status.get('restartHistory')}")
            time.sleep(0.1)

    def pod(self, name: str) -> Json | None:
        try:
            return self.cluster.api.get("Pod", name, self.namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def count(self, kind: str) -> int:
        return len(self.cluster.api.list(kind, self.namespace))


# What looks into a pod does so from the node: gVisor's own tool is the one that sees its processes.


def in_container(cluster: Cluster, pod: Json, *command: str) -> list[str]:
    inside = ("--root=/run/containerd/runsc/k8s.io", "exec", "--user=1000:1000", _container(pod))
    return cluster.node_command(str(cluster.programs["runsc"]), *inside, *command)


def kill_container(cluster: Cluster, pod: Json) -> None:
    assert cluster.layout is not None
    place = ("--address", str(cluster.layout.containerd_socket), "--namespace", "k8s.io")
    cluster.on_node(str(cluster.programs["ctr"]), *place, "tasks", "kill", "--signal", "SIGKILL", _container(pod))


def _container(pod: Json) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"]).partition("//")[2]


def write(sandboxes: Sandboxes, name: str, file: str, text: str) -> None:
    python(sandboxes, name, f"open('/volume/workspace/{file}', 'w').write({text!r})")


def read(sandboxes: Sandboxes, name: str, file: str) -> str:
    return python(sandboxes, name, f"print(open('/volume/workspace/{file}').read(), end='')")


def python(sandboxes: Sandboxes, name: str, code: str) -> str:
    """What Python in the sandbox's container prints."""
    command = in_container(sandboxes.cluster, sandboxes.pod(name) or {}, "python3", "-c", code)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
