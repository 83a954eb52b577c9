"""Operator and fleet beside a real API server for one team: a namespace, a template, a pool, and a way in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.access_bed import FleetBed, an_agent, an_object, fleet_bed
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template

Json = dict[str, Any]


@dataclass
class TeamBed:
    """A running control plane, and the files by which its fleet is reached."""

    fleet: FleetBed
    namespace: str
    ca: Path
    token: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.fleet.port}"

    def pods(self, state: str) -> list[Json]:
        """The pods with this state of a sandbox."""
        found = self.fleet.cluster.api.list("Pod", self.namespace)
        return [one for one in found if one["metadata"]["labels"].get("sandfleet.io/state") == state]


@contextmanager
def team_bed(images: Cluster, folder: Path, name: str, pool: Json) -> Iterator[TeamBed]:
    """A team's control plane with the pool `fast`; `pool` are fields of its spec."""
    api, work = images.api, f"{name}-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    for one in ("fleet", "operator"):
        (folder / one).mkdir()
    with fleet_bed(images, folder / "fleet", (work,)) as made:
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, folder / "operator", made.namespace, (work,)).start()
        try:
            api.create(template(work))
            spec = {"templateRef": {"name": "python"}, **pool}
            api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=spec))
            (folder / "ca").write_text(api.get("ConfigMap", "sandfleet-ca", made.namespace)["data"]["ca.crt"])
            (folder / "token").write_text(made.token(work, "agent"))
            yield TeamBed(made, work, folder / "ca", folder / "token")
        finally:
            operator.end()
    api.delete("Namespace", work)
