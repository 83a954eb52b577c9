"""From a claim to its first cell's result, in gVisor: sandboxes of a warm pool beside ones that start cold."""

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from cluster.access_bed import FleetBed, an_agent, an_object, fleet_bed
from cluster.harness.api import has_condition
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from figures import Figure, progress, quantile
from pods import running_cluster
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet_operator.plan.pods import names
from support.operator.crd_schemas import CRDS

POOL, RUNS, COLD = 20, 3, 5


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures of warm sandboxes: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(measure(cluster, Path(folder)))


async def measure(cluster: Cluster, folder: Path) -> list[Figure]:
    work = f"warm-{secrets.token_hex(4)}"
    namespace = an_object("v1", "Namespace", work)
    namespace["metadata"]["labels"] = RESTRICTED_LABELS
    await asyncio.to_thread(cluster.api.apply_all, [*CRDS.values(), namespace])
    try:
        with fleet_bed(cluster, folder, (work,)) as bed:
            operator = OperatorProcess(cluster, folder, bed.namespace, (work,)).start()
            try:
                return await measured(bed, work)
            finally:
                operator.end()
    finally:
        cluster.api.delete("Namespace", work)


async def measured(bed: FleetBed, work: str) -> list[Figure]:
    api = bed.cluster.api
    bed.apply(*an_agent(work))
    # A pool of 20 has to fit on one small machine.
    tiny = {
        "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "512Mi"},
        "requests": {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
    }
    api.create(template(work, resources=tiny, workspace={"size": "64Mi", "ephemeral": True}))
    pool = {"templateRef": {"name": "python"}, "replicas": POOL, "maxSize": POOL}
    api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=pool))
    warm, first = [], []
    async with connected(bed, work) as fleet:
        for number in range(RUNS):
            progress(f"warm sandboxes in gVisor, run {number + 1} of {RUNS}")
            began = time.monotonic()
            await asyncio.to_thread(api.wait, "the pool to be warm", lambda: is_warm(bed, work), 300)
            progress(f"{POOL} were warm after {time.monotonic() - began:.0f} s")
            # What was just started would be measured as well.
            await asyncio.sleep(5)
            async with AsyncExitStack() as held:
                for _ in range(POOL):
                    bound, answered = await one(held, AsyncSandbox.create(pool="fast", fleet=fleet))
                    warm.append(bound)
                    first.append(answered)
        api.delete("SandboxPool", "fast", work)
        await asyncio.to_thread(api.wait, "the pool to go", lambda: not api.list("Pod", work), 120)
        progress("cold sandboxes in gVisor")
        cold = []
        for _ in range(COLD):
            async with AsyncExitStack() as held:
                cold.append((await one(held, AsyncSandbox.create("python", fleet=fleet)))[1])
    note = f"in gVisor, one by one from a pool of {POOL}, refill held back"
    beside = f"{note}, beside one that starts cold"
    return [
        Figure("claim bound, p50", quantile(warm, 0.5) * 1e3, "ms", note=note),
        Figure("claim to its first cell's result, p50", quantile(first, 0.5), "s", quantile(cold, 0.5), beside),
        Figure("claim to its first cell's result, p99", quantile(first, 0.99), "s", quantile(cold, 0.99), beside),
    ]


def is_warm(bed: FleetBed, work: str) -> bool:
    """Those that were claimed before may still be going."""
    labelled = [pod for pod in bed.cluster.api.list("Pod", work) if pod["metadata"]["labels"][names.STATE] == "warm"]
    return len([pod for pod in labelled if has_condition(pod, "Ready")]) == POOL


async def one(held: AsyncExitStack, claim: Awaitable[AsyncSandbox]) -> tuple[float, float]:
    """Seconds until it is bound, and until its first cell's result."""
    began = time.perf_counter()
    sandbox = await held.enter_async_context(await claim)
    bound = time.perf_counter() - began
    execution = await sandbox.run_code("6 * 7")
    assert execution.text == "42", execution
    return bound, time.perf_counter() - began


@asynccontextmanager
async def connected(bed: FleetBed, work: str) -> AsyncIterator[AsyncFleet]:
    with tempfile.TemporaryDirectory() as folder:
        ca, token = Path(folder, "ca.crt"), Path(folder, "token")
        authority: dict[str, Any] = bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)
        ca.write_text(authority["data"]["ca.crt"])
        token.write_text(bed.token(work, "agent", "--duration", "3h"))
        fleet = await AsyncFleet.connect(
            f"127.0.0.1:{bed.port}", namespace=work, ca_file=str(ca), token_file=str(token)
        )
        try:
            yield fleet
        finally:
            await fleet.close()
