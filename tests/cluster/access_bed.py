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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from sandfleet.cluster import SERVICE

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
RULES = [
    {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
OWN_RULES = [
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["sandfleet-signing"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["sandfleet-ca"], "verbs": ["get", "patch"]},
]


def an_object(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def a_grant(kind: str, name: str, rules: list[Json], account: tuple[str, str], namespace: str = "") -> list[Json]:
    """A role and its binding: Cluster or not by the kind."""
    subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    reference = {"apiGroup": RBAC, "kind": f"{kind}Role", "name": name}
    role = an_object(f"{RBAC}/v1", f"{kind}Role", name, namespace, rules=rules)
    return [role, an_object(f"{RBAC}/v1", f"{kind}RoleBinding", name, namespace, roleRef=reference, subjects=[subject])]


@dataclass(frozen=True)
class FleetBed:
    cluster: Cluster
    # Of the control plane.
    namespace: str
    port: int

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
def fleet_bed(cluster: Cluster, folder: Path) -> Iterator[FleetBed]:
    name = f"access-{secrets.token_hex(4)}"
    bed = FleetBed(cluster, name, _free_port())
    account = (name, "fleet")
    bed.apply(
        an_object("v1", "Namespace", name),
        an_object("v1", "ServiceAccount", "fleet", name),
        # As the chart makes them: empty.
        an_object("v1", "Secret", "sandfleet-signing", name, type="Opaque"),
        an_object("v1", "ConfigMap", "sandfleet-ca", name),
        *a_grant("Cluster", name, RULES, account),
        *a_grant("", name, OWN_RULES, account, name),
    )
    try:
        with _process(bed, _kubeconfig(bed, folder)):
            yield bed
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


@contextlib.contextmanager
def _process(bed: FleetBed, kubeconfig: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "sandfleet_operator", "fleet", "--port", str(bed.port)]
    command += ["--namespace", bed.namespace, "--kubeconfig", str(kubeconfig)]
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        _wait(process, bed.port)
        yield
    finally:
        process.terminate()
        said = process.communicate(timeout=30)[1]
    if process.returncode:
        raise ClusterError(f"the fleet ended with {process.returncode}: {said}")


def _wait(process: subprocess.Popen[str], port: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise ClusterError(f"the fleet does not serve: {process.communicate()[1]}") from error
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
