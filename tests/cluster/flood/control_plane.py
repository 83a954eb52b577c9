"""A control plane of its own for proofs from its audit log: etcd, API server, controllers, scheduler, pretended nodes.

These are processes of this machine on loopback ports: no pod really runs, and no other test writes to the API server.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from cluster.flood.audit import POLICY
from cluster.harness import binaries, certs, components, fake_nodes, manifests
from cluster.harness.api import Api
from cluster.harness.layout import CANDIDATES, Addresses, ClusterError, Layout, cache
from cluster.harness.progress import timed
from cluster.harness.testing import Cluster
from support.ports import free_port

PROGRAMS = ("etcd", "kubernetes", "kwok")
# In MB: the log is one file, however long it gets.
LONGEST_LOG = "100000"


def audit_log(cluster: Cluster) -> Path:
    return cluster.kubeconfig.parent / "audit.log"


@contextmanager
def control_plane(folder: Path, nodes: int, *, audited: bool = True) -> Iterator[Cluster]:
    """With so many pretended nodes; it ends with the block."""
    programs = binaries.provide(cache(), timed("control plane"), PROGRAMS)
    layout, addresses = Layout(folder), Addresses(CANDIDATES[0])
    client, peer, server = free_port(), free_port(), free_port()
    url = f"https://127.0.0.1:{server}"
    for place in (layout.etc, layout.logs):
        place.mkdir()
    certs.make(layout.pki, addresses, dt.datetime.now(dt.UTC))
    for identity in ("controller-manager", "scheduler"):
        (layout.etc / f"{identity}.kubeconfig").write_text(certs.kubeconfig(layout.pki, identity, url))
    layout.kubeconfig.write_text(certs.kubeconfig(layout.pki, "admin", url))
    context = components.Context(layout, addresses, programs, sys.executable)
    cluster = Cluster(layout.kubeconfig, Api(json.loads(layout.kubeconfig.read_text())), programs, None)
    with ExitStack() as running:
        running.enter_context(_running(layout, _etcd(context, client, peer)))
        running.enter_context(_running(layout, _apiserver(context, cluster, client, server, audited=audited)))
        cluster.api.wait("the API server", lambda: bool(cluster.api.get("Namespace", "kube-system")), 90)
        for part in (components.controller_manager(context), components.scheduler(context)):
            running.enter_context(_running(layout, _with(part, {"secure-port": "0"})))
        cluster.api.wait("service accounts", lambda: bool(cluster.api.get("ServiceAccount", "default", "default")), 60)
        cluster.api.apply_all(manifests.runtime_classes())
        (folder / "kwok").mkdir()
        start = fake_nodes.StartTime()
        running.enter_context(
            fake_nodes.run(programs["kwok"], layout.kubeconfig, cluster.api, folder / "kwok", nodes, start)
        )
        yield cluster


def _etcd(context: components.Context, client: int, peer: int) -> components.Component:
    mine, others = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    flags = {"listen-client-urls": mine, "advertise-client-urls": mine, "listen-peer-urls": others}
    flags |= {"initial-advertise-peer-urls": others, "initial-cluster": f"default={others}"}
    return _with(components.etcd(context), flags)


def _apiserver(
    context: components.Context, cluster: Cluster, etcd: int, port: int, *, audited: bool
) -> components.Component:
    policy = context.layout.etc / "audit.json"
    policy.write_text(json.dumps(POLICY))
    flags = {
        "etcd-servers": f"http://127.0.0.1:{etcd}",
        "secure-port": str(port),
        "bind-address": "127.0.0.1",
        "endpoint-reconciler-type": "none",
    }
    if audited:
        flags |= {"audit-policy-file": str(policy), "audit-log-path": str(audit_log(cluster))}
        flags["audit-log-maxsize"] = LONGEST_LOG
    return _with(components.apiserver(context), flags)


def _with(component: components.Component, flags: Mapping[str, str]) -> components.Component:
    """The component with these flags instead of, or beside, its own."""
    kept = [word for word in component.command if word.partition("=")[0].removeprefix("--") not in flags]
    return replace(component, command=(*kept, *(f"--{name}={value}" for name, value in flags.items())))


@contextmanager
def _running(layout: Layout, component: components.Component) -> Iterator[None]:
    """It ends with this process, however that ends."""
    log = layout.logs / f"{component.name}.log"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(layout.root)}
    with log.open("wb") as output:
        command = ["setpriv", "--pdeathsig", "KILL", *component.command]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
        if process.poll() is not None:
            raise ClusterError(f"{component.name} has ended with {process.returncode}: {log.read_text()[-2000:]}")
    finally:
        process.kill()
        process.wait()
