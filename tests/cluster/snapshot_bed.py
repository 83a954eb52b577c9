"""A fleet with a store of snapshots: its process, the operator's and the snapshotter's, which can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.access_bed import AGENT_RULES, FleetBed, Json, a_grant, an_agent, an_object, fleet_bed
from cluster.harness import s3 as storage
from cluster.harness.layout import REPOSITORY
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet import AsyncFleet

SNAPSHOTS: Json = {"apiGroups": ["sandfleet.io"], "resources": ["sandboxsnapshots"]}
SAVES = {**SNAPSHOTS, "verbs": ["create", "get", "list", "delete"]}
MOVES = {**SNAPSHOTS, "verbs": ["get", "list", "export", "import"]}
# What the chart gives the snapshotter.
WORKS = [{"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/snapshotter"], "verbs": ["create"]}]
HOWTO = REPOSITORY / "docs/howto/keep-on-a-cluster.md"
PROCESSES = ("snapshotter", "fleet", "operator")


class SnapshotterProcess:
    """As in the chart's Deployment, beside the cluster: it dials the fleet with its own account's token."""

    def __init__(self, bed: FleetBed, folder: Path, url: str, more: dict[str, str]) -> None:
        self._bed, self._folder, self._more = bed, folder, {"SANDFLEET_SNAPSHOTS": url, **more}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        ca = bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"]
        (folder / "ca.crt").write_text(ca)
        (folder / "token").write_text(bed.token(bed.namespace, "snapshotter", "--duration", "3h"))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> SnapshotterProcess:
        environment = {**os.environ, **self._more, "SANDFLEET_SNAPSHOT_KEYS": str(self._folder / "keys.json")}
        environment["PYTHONPATH"] = str(REPOSITORY / "tests")
        command = [sys.executable, "-m", "sandfleet_operator", "snapshotter", "--fleet", f"127.0.0.1:{self._bed.port}"]
        with (self._folder / "log").open("ab") as log:
            command += ["--credentials", str(self._folder)]
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        return self

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(30) == 0, (self._folder / "log").read_text()[-2000:]


@dataclass
class SnapshotBed:
    """The accounts "agent" and "mover" of `work` use it, with its pool "fast"."""

    fleet_bed: FleetBed
    work: str
    operator: OperatorProcess
    snapshotter: SnapshotterProcess

    @property
    def cluster(self) -> Cluster:
        return self.fleet_bed.cluster

    @property
    def namespace(self) -> str:
        """Of the control plane."""
        return self.fleet_bed.namespace

    @property
    def port(self) -> int:
        return self.fleet_bed.port

    def token(self, namespace: str, account: str) -> str:
        return self.fleet_bed.token(namespace, account, "--duration", "3h")

    def pool(self, **spec: int) -> None:
        where = f"apis/sandfleet.io/v1alpha1/namespaces/{self.work}/sandboxpools/fast"
        self.cluster.api.call("PATCH", where, {"spec": spec}, "application/merge-patch+json")

    def volumes_of(self, sandbox_id: str) -> list[str]:
        """Volume claims of the CodeSandbox, or of the warm pod that it was bound to."""
        made = self.cluster.api.get("CodeSandbox", sandbox_id.partition("/")[2], self.work)
        return [
            one["metadata"]["name"]
            for one in self.cluster.api.list("PersistentVolumeClaim", self.work)
            if any(owner["uid"] == made["metadata"]["uid"] for owner in one["metadata"].get("ownerReferences", ()))
        ]

    def replace(self, process: str) -> None:
        """Kills one of PROCESSES, and starts it again as a Deployment does."""
        if process == "fleet":
            assert self.fleet_bed.fleet is not None
            self.fleet_bed.fleet.kill()
            self.fleet_bed.fleet.start()
        elif process == "operator":
            self.operator.kill()
            self.operator.bury()
            self.operator.start()
        else:
            self.snapshotter.kill()
            self.snapshotter.start()


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[storage.S3]:
    from cluster.harness import binaries
    from cluster.harness.layout import cache
    from cluster.harness.progress import timed

    program = binaries.provide(cache(), timed("snapshots"), ["versitygw"])["versitygw"]
    server, process = storage.start(program, folder, "127.0.0.1")
    try:
        yield server
    finally:
        storage.stop(process)


def bucket_of(s3: storage.S3) -> tuple[str, storage.Account]:
    """A new bucket, and an account with what the how-to for platform teams allows it, and nothing else."""
    from sandfleet_operator.snapshots.backends.s3 import connect

    bucket, account = f"b{secrets.token_hex(6)}", s3.user(f"snapshotter-{secrets.token_hex(4)}")
    client = connect(s3.endpoint, s3.region, (s3.root.access_key, s3.root.secret_key))
    client.create_bucket(Bucket=bucket)
    allowed = [
        {
            "Effect": "Allow",
            "Principal": {"AWS": [account.access_key]},
            "Action": actions.split(),
            "Resource": resource.replace("sandfleet-snapshots", bucket),
        }
        for actions, resource in re.findall(r"(?m)^(s3:[\w: ]+) on (arn:\S+)$", HOWTO.read_text())
    ]
    client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": allowed}))
    return bucket, account


@contextlib.contextmanager
def snapshot_bed(
    cluster: Cluster, s3: storage.S3, folder: Path, pool: Json | None = None, **made_of: Any
) -> Iterator[SnapshotBed]:
    """`pool` and `made_of` are what the pool and its template have of their own."""
    api, work = cluster.api, f"snapshots-{secrets.token_hex(4)}"
    bucket, account = bucket_of(s3)
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    folders = {one: folder / one for one in ("fleet", "operator")}
    for one in folders.values():
        one.mkdir()
    with fleet_bed(cluster, folders["fleet"], (work,), settings={"snapshotter": True}) as made:
        made.apply(
            *an_agent(work),
            *a_grant("", "saves", [SAVES], (work, "agent"), work),
            an_object("v1", "ServiceAccount", "mover", work),
            *a_grant("", "mover", [*AGENT_RULES, MOVES], (work, "mover"), work),
            an_object("v1", "ServiceAccount", "snapshotter", made.namespace),
            *a_grant("", "snapshotter", WORKS, (made.namespace, "snapshotter"), made.namespace),
        )
        operator = OperatorProcess(cluster, folders["operator"], made.namespace, (work,)).start()
        api.create(template(work, **made_of))
        spec = {"templateRef": {"name": "python"}, "replicas": 2, "maxSize": 16, **(pool or {})}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=spec))
        keys = {"AWS_ACCESS_KEY_ID": account.access_key, "AWS_SECRET_ACCESS_KEY": account.secret_key}
        url = f"s3://{bucket}/snapshots?endpoint={s3.endpoint}&region={s3.region}"
        snapshotter = SnapshotterProcess(made, folder / "snapshotter", url, keys).start()
        try:
            yield SnapshotBed(made, work, operator, snapshotter)
        except BaseException:
            # What went wrong is told, not that a process then does not end well.
            snapshotter.kill()
            operator.kill()
            raise
        snapshotter.end()
        operator.end()
    api.delete("Namespace", work)


@contextlib.asynccontextmanager
async def connected(bed: SnapshotBed, folder: Path, account: str = "agent") -> AsyncIterator[AsyncFleet]:
    (folder / "ca").write_text(bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"])
    (folder / account).write_text(bed.token(bed.work, account))
    place = {"ca_file": str(folder / "ca"), "token_file": str(folder / account), "namespace": bed.work}
    async with await AsyncFleet.connect(f"127.0.0.1:{bed.port}", **place) as fleet:
        yield fleet
