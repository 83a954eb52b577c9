"""The fleet's process beside a real API server, under an account with no more rights than the chart gives it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.harness.api import ApiError, path_of
from cluster.harness.layout import REPOSITORY, ClusterError
from cluster.harness.testing import Cluster
from sandfleet._fleets.cluster import SERVICE
from support.ports import free_port

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
READS, WRITES = ["get", "list", "watch"], ["create", "patch", "delete"]
IMAGES = ["localhost/sandfleet-executor:*"]
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
RULES = [
    {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes"], "verbs": [*READS, *WRITES]},
    {"apiGroups": ["sandfleet.io"], "resources": ["sandboxtemplates", "sandboxpools", "sandboxqueues"], "verbs": READS},
    {
        "apiGroups": ["sandfleet.io"],
        "resources": ["sandboxsnapshots"],
        "verbs": [*READS, "create", "patch", "delete"],
    },
    {
        "apiGroups": ["sandfleet.io"],
        "resources": ["codesandboxes/status", "sandboxpools/status", "sandboxqueues/status", "sandboxsnapshots/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*READS, *WRITES]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "create", "patch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["sandfleet-keys"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["get", "create", "delete"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": READS},
    {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["get"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
OWN_RULES = [
    {**LEASES, "verbs": ["create"]},
    {**LEASES, "resourceNames": ["sandfleet-fleet"], "verbs": ["get", "update", "patch"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["sandfleet-signing"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["sandfleet-ca"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["sandfleet-ended"], "verbs": ["get", "patch"]},
]


# What an agent service may do in its namespace.
AGENT_RULES = [
    {
        "apiGroups": ["sandfleet.io"],
        "resources": ["codesandboxes"],
        "verbs": ["create", "get", "list", "watch", "delete"],
    },
    {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/connect"], "verbs": ["create"]},
]
# For user code in a sandbox: to which of TARGETS (JSON: name → host and port) it can open a connection.
PROBE = """
import json, socket
said = {}
for name, (host, port) in json.loads(TARGETS).items():
    try:
        socket.create_connection((host, port), 2).close()
        said[name] = True
    except OSError:
        said[name] = False
json.dumps(said)
"""


def an_object(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def a_grant(kind: str, name: str, rules: list[Json], account: tuple[str, str], namespace: str = "") -> list[Json]:
    """A role and its binding: Cluster or not by the kind."""
    subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    reference = {"apiGroup": RBAC, "kind": f"{kind}Role", "name": name}
    role = an_object(f"{RBAC}/v1", f"{kind}Role", name, namespace, rules=rules)
    return [role, an_object(f"{RBAC}/v1", f"{kind}RoleBinding", name, namespace, roleRef=reference, subjects=[subject])]


def an_agent(namespace: str) -> list[Json]:
    """The service account "agent", with its rights."""
    account = an_object("v1", "ServiceAccount", "agent", namespace)
    return [account, *a_grant("", "agent", AGENT_RULES, (namespace, "agent"), namespace)]


class FleetProcess:
    """The fleet, as a process of this machine that can be killed and started again."""

    def __init__(self, bed: FleetBed, command: list[str]) -> None:
        self._bed = bed
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when its port answers."""
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        environment["PYTHONPATH"] = str(REPOSITORY / "tests")
        with (self._bed.folder / "fleet.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, env=environment, stderr=log, stdout=log)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        deadline = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self._bed.port), 5) as plain, context.wrap_socket(plain):
                    return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self._process.kill()
                    raise ClusterError(f"the fleet does not serve: {self.log[-2000:]}") from error
                time.sleep(0.1)

    @property
    def log(self) -> str:
        return (self._bed.folder / "fleet.log").read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Also takes its name out of the Lease, since it is dead: no successor has to wait for the Lease's end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        where = f"{path_of('Lease', self._bed.namespace)}/sandfleet-fleet"
        try:
            gone = {"spec": {"holderIdentity": ""}}
            self._bed.cluster.api.call("PATCH", where, gone, "application/merge-patch+json")
        except ApiError as error:
            # It had not come so far.
            if error.status != 404:
                raise

    def end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(30)
        if code:
            raise ClusterError(f"the fleet ended with {code}: {self.log[-2000:]}")


@dataclass
class FleetBed:
    cluster: Cluster
    # Of the control plane.
    namespace: str
    port: int
    # Whose sandboxes are this fleet's.
    namespaces: tuple[str, ...] = ()
    folder: Path = Path()
    fleet: FleetProcess | None = None
    # Of the fleet's probes and metrics.
    health_port: int = 0

    def apply(self, *objects: Json) -> None:
        self.cluster.kubectl(
            "apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def publish(self, address: str) -> None:
        """The Service, which here has no pod: an address of this machine stands in its slice."""
        ports = [{"name": "grpc", "port": self.port}]
        slice_ = an_object("discovery.k8s.io/v1", "EndpointSlice", f"{SERVICE}-1", self.namespace, addressType="IPv4")
        slice_["metadata"]["labels"] = {"kubernetes.io/service-name": SERVICE}
        slice_ |= {"endpoints": [{"addresses": [address], "conditions": {"ready": True}}], "ports": ports}
        self.apply(an_object("v1", "Service", SERVICE, self.namespace, spec={"ports": ports}), slice_)

    def token(self, namespace: str, account: str, *more: str, audience: str = "sandfleet") -> str:
        audiences = ("--audience", audience) if audience else ()
        return self.cluster.kubectl("create", "token", account, "-n", namespace, *audiences, *more).strip()


@contextlib.contextmanager
def fleet_bed(
    cluster: Cluster,
    folder: Path,
    namespaces: tuple[str, ...] = (),
    *,
    fakes: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[FleetBed]:
    """The fleet watches these namespaces alone. They may be made later."""
    name = f"access-{secrets.token_hex(4)}"
    bed = FleetBed(cluster, name, free_port(), namespaces or (name,), folder, health_port=free_port())
    account = (name, "fleet")
    bed.apply(
        an_object("v1", "Namespace", name),
        an_object("v1", "ServiceAccount", "fleet", name),
        # As the chart makes them: empty.
        an_object("v1", "Secret", "sandfleet-signing", name, type="Opaque"),
        an_object("v1", "ConfigMap", "sandfleet-ca", name),
        an_object("v1", "ConfigMap", "sandfleet-ended", name),
        *a_grant("Cluster", name, RULES, account),
        *a_grant("", name, OWN_RULES, account, name),
    )
    try:
        bed.fleet = FleetProcess(bed, _command(bed, folder, settings or {}, fakes=fakes))
        bed.fleet.start()
        yield bed
        bed.fleet.end()
    finally:
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")
        cluster.api.delete("Namespace", name)


def _kubeconfig(bed: FleetBed, folder: Path) -> Path:
    """The fleet's own account and nothing else."""
    config = json.loads(bed.cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"] = [{"name": "fleet", "user": {"token": bed.token(bed.namespace, "fleet", audience="")}}]
    config["contexts"][0]["context"]["user"] = "fleet"
    path = folder / "fleet.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


def _command(bed: FleetBed, folder: Path, more: Mapping[str, Any], *, fakes: bool) -> list[str]:
    """Pods of other tests' namespaces are not this fleet's."""
    settings = folder / "fleet.json"
    chosen = {"watchNamespaces": bed.namespaces, "allowedImages": IMAGES, **more}
    settings.write_text(json.dumps({"controlPlaneNamespace": bed.namespace, **chosen}))
    module = ["cluster.fleet_on_fakes"] if fakes else ["sandfleet_operator", "fleet"]
    command = [sys.executable, "-m", *module, "--port", str(bed.port), "--health-port", str(bed.health_port)]
    command += ["--namespace", bed.namespace, "--kubeconfig", str(_kubeconfig(bed, folder))]
    return [*command, "--settings", str(settings)]
