"""Releases of the chart on a real API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import yaml
from chart.helm_chart import CHART, Json
from cluster.harness.testing import Cluster

# Rights and objects are the same without processes; the kinds belong to the test cluster, not to Helm. The admission
# policy of a release without named namespaces would refuse what other tests write: test_admission.py tests it.
STILL = (
    "--set",
    "crds.enabled=false,operator.replicas=0,fleet.replicas=0,gateway.replicas=0,admissionPolicy.enabled=false",
)
IMAGE = ("--set", "image.repository=localhost/sandfleet-operator,image.tag=dev")
SANDBOX_IMAGE = (
    "--set",
    (
        "test.image=localhost/sandfleet-executor:dev,settings.executor.image=localhost/sandfleet-executor:dev,"
        "settings.allowedImages={localhost/sandfleet-executor:*,localhost/sandfleet-task:*,localhost/sandfleet-static:*}"
    ),
)


@dataclass(frozen=True)
class Release:
    cluster: Cluster
    helm: Callable[..., str]
    name: str
    namespace: str

    @property
    def prefix(self) -> str:
        return f"{self.name}-sandfleet"

    def install(self, *arguments: str) -> str:
        return self.helm("install", self.name, str(CHART), "--namespace", self.namespace, *arguments)

    def upgrade(self, *arguments: str) -> str:
        return self.helm("upgrade", self.name, str(CHART), "--namespace", self.namespace, *arguments)

    def uninstall(self) -> None:
        self.helm("uninstall", self.name, "--namespace", self.namespace, "--wait")

    def objects(self) -> tuple[Json, ...]:
        return tuple(yaml.safe_load_all(self.helm("get", "manifest", self.name, "--namespace", self.namespace)))
