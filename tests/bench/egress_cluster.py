"""Requests by name from a sandbox in a gVisor pod, beside direct ones from another gVisor pod, in the same run."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from egress import PROGRAM, PROXY
from figures import Figure, progress, quantile
from pods import running_cluster

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.access_bed import an_object
from cluster.egress_bed import Bed, egress_bed
from cluster.egress_host import PORT, TLS_PORT
from cluster.harness.layout import ClusterError
from cluster.operators import IMAGE, install_kinds, template
from sandfleet import AsyncSandbox

ROUNDS, REQUESTS = 6, 25
HELD = "import time; time.sleep(3600)"


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures of egress on a cluster: {error}")
        return
    install_kinds(cluster.api)
    with tempfile.TemporaryDirectory() as folder, egress_bed(cluster, cluster.programs["helm"], Path(folder)) as bed:
        names = [{"host": bed.host, "ports": [PORT, TLS_PORT]}]
        cluster.api.create(template(bed.work, egress={"names": names}))
        os.environ.update(bed.environment)
        yield from asyncio.run(measured(bed))


async def measured(bed: Bed) -> list[Figure]:
    home = bed.release.namespace
    pod = an_object("v1", "Pod", "direct", home)
    container = {"name": "direct", "image": IMAGE, "command": ["python3", "-c", HELD]}
    pod["spec"] = {"runtimeClassName": "gvisor", "containers": [container]}
    await asyncio.to_thread(bed.cluster.run_pod, pod)
    address = bed.cluster.api.get("Service", "web", home)["spec"]["clusterIP"]
    ports = {"plain": PORT, "secure": TLS_PORT}

    def asked(what: str, way: tuple[str, int]) -> list[str]:
        return ["python3", "-c", PROGRAM, json.dumps([what, bed.host, ports[what], way, "", REQUESTS])]

    async with await AsyncSandbox.create(namespace=bed.work, max_wait=90) as sandbox:
        proxied: dict[str, list[float]] = {what: [] for what in ports}
        direct: dict[str, list[float]] = {what: [] for what in ports}
        for _ in range(ROUNDS):
            progress("requests, each on a connection of its own")
            for what, port in ports.items():
                done = await sandbox.commands.run(asked(what, PROXY), timeout=300, check=True)
                proxied[what] += json.loads(done.stdout)
                command = ["exec", "-n", home, "direct", "--", *asked(what, (address, port))]
                direct[what] += json.loads(await asyncio.to_thread(bed.cluster.kubectl, *command))
    found = []
    for what, name in (("plain", "HTTP"), ("secure", "HTTPS")):
        value, baseline = quantile(proxied[what], 0.5), quantile(direct[what], 0.5)
        note = f"direct, from a pod; added {value - baseline:.1f} ms, ≤ 8"
        found.append(Figure(f"request of {name} by name in a pod, p50", value, "ms", baseline, note))
    return found
