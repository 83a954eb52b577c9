"""Claims from a pool of pods on pretended nodes: executors are pretended too, the API server and the fleet are real.

Arrivals are open-loop Poisson: each claim's time counts from when it was due, however late the client was. Each part
runs three times and shows the median, with the least and the most beside it. SANDFLEET_POOL is the size of the pool
(300), and SANDFLEET_LARGE_POOL that of the large one (3000; 0: not run); SANDFLEET_ARRIVALS is the pool for the highest
of the fixed rates (45/s for 30 s need 1,400).
"""

import asyncio
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from figures import Figure, progress, quantile
from pods import running_cluster
from processes import command_line, cpu_seconds, descendants, memory
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.access_bed import FleetBed, an_agent, an_object, fleet_bed
from cluster.harness import fake_nodes
from cluster.harness.layout import ClusterError
from cluster.harness.plan import recorded
from cluster.harness.testing import Cluster
from cluster.operators import OperatorProcess, template
from reconciler import written
from support.operator.crd_schemas import CRDS

Json = dict[str, Any]
POOL = int(os.environ.get("SANDFLEET_POOL", "300"))
ARRIVALS = int(os.environ.get("SANDFLEET_ARRIVALS", "1400"))
LARGE = int(os.environ.get("SANDFLEET_LARGE_POOL", "3000"))
RATES, SECONDS = (10, 20, 45), 30
CYCLE_RATES, CYCLE_SECONDS, USE_SECONDS = (10, 20, 30, 40), 30, 5.0
RUNS = 3
NODES = 20
# A claim that takes longer is a failed one.
PATIENCE = 60.0


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures of claims: {error}")
        return
    with ExitStack() as stack:
        bench = stack.enter_context(a_bench(cluster, Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        with asyncio.Runner() as runner:
            part = measure(bench)
            while (found := runner.run(anext(part, None))) is not None:
                yield from found


@dataclass
class Bench:
    cluster: Cluster
    bed: FleetBed
    work: str
    token: str
    operator: OperatorProcess | None = None
    stub: Any = None
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def pool(self, **spec: int) -> None:
        where = f"apis/sandfleet.io/v1alpha1/namespaces/{self.work}/sandboxpools/fast"
        self.cluster.api.call("PATCH", where, {"spec": spec}, "application/merge-patch+json")

    def warm(self) -> int:
        found = self.cluster.api.get("SandboxPool", "fast", self.work)
        return int((found or {}).get("status", {}).get("warm", 0))

    def pods(self) -> int:
        """Those that are going as well."""
        found = self.cluster.api.call("GET", f"api/v1/namespaces/{self.work}/pods?limit=1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    async def filled(self, size: int, seconds: float = 300) -> float:
        """Seconds until so many are warm, and nothing else is there."""
        start = time.monotonic()
        while await asyncio.to_thread(self.warm) != size or await asyncio.to_thread(self.pods) != size:
            if time.monotonic() - start > seconds:
                raise ClusterError(f"the pool is not filled: {self.warm()} of {size}; {self.bed.fleet.log[-2000:]}")
            await asyncio.sleep(0.1)
        return time.monotonic() - start

    async def claim(self, due: float) -> tuple[str, float]:
        """The sandbox, and the seconds from when it was due."""
        request = fleet_pb2.ClaimRequest(request_id=f"b{next(self.numbers)}", namespace=self.work, pool="fast")
        request.lease.FromSeconds(600)
        request.max_wait.FromSeconds(round(PATIENCE))
        async for answer in self.stub.Claim(request, metadata=self.metadata, timeout=PATIENCE):
            if answer.HasField("bound"):
                return answer.bound.sandbox.sandbox_id, time.monotonic() - due
        raise ClusterError("a claim ended without a sandbox")

    async def release(self, name: str) -> None:
        await self.stub.Release(fleet_pb2.ReleaseRequest(sandbox_id=name), metadata=self.metadata, timeout=PATIENCE)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


class a_bench:  # noqa: N801 - a context manager, written as one
    def __init__(self, cluster: Cluster, folder: Path, settings: Json | None = None) -> None:
        self._cluster, self._folder, self._stack = cluster, folder, ExitStack()
        self._settings = settings or {}

    def __enter__(self) -> Bench:
        cluster, work = self._cluster, f"bench-{secrets.token_hex(4)}"
        cluster.api.apply_all(CRDS.values())
        cluster.api.create(an_object("v1", "Namespace", work))
        self._stack.callback(cluster.api.delete, "Namespace", work)
        kwok = self._folder / "kwok"
        kwok.mkdir()
        start = fake_nodes.StartTime()
        self._stack.enter_context(
            fake_nodes.run(cluster.programs["kwok"], cluster.kubeconfig, cluster.api, kwok, NODES, start)
        )
        bed = self._stack.enter_context(fleet_bed(cluster, self._folder, (work,), fakes=True, settings=self._settings))
        bed.apply(*an_agent(work))
        operator = OperatorProcess(cluster, self._folder, bed.namespace, (work,), fakes=True).start()
        self._stack.callback(operator.end)
        placed = {
            "nodeSelector": fake_nodes.PLACEMENT["nodeSelector"],
            "tolerations": fake_nodes.PLACEMENT["tolerations"],
        }
        tiny = {
            "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "512Mi"},
            "requests": {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"},
        }
        workspace = {"size": "64Mi", "ephemeral": True}
        cluster.api.create(template(work, resources=tiny, workspace=workspace, **placed))
        cluster.api.create(
            an_object(
                "sandfleet.io/v1alpha1",
                "SandboxPool",
                "fast",
                work,
                spec={"templateRef": {"name": "python"}, "replicas": POOL},
            )
        )
        return Bench(cluster, bed, work, bed.token(work, "agent", "--duration", "3h"), operator)

    def __exit__(self, *error: object) -> None:
        self._stack.close()


@asynccontextmanager
async def connected(bench: Bench) -> AsyncIterator[None]:
    """The bench can claim."""
    ca = bench.cluster.api.get("ConfigMap", "sandfleet-ca", bench.bed.namespace)["data"]["ca.crt"].encode()
    options = [("grpc.ssl_target_name_override", "127.0.0.1")]
    target = f"127.0.0.1:{bench.bed.port}"
    async with grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca), options=options) as channel:
        bench.stub = FleetServiceStub(channel)
        yield


async def measure(bench: Bench) -> AsyncIterator[list[Figure]]:
    async with connected(bench):
        for part in (refill, writes_of_a_cycle, arrivals, bursts, cycles, *((large,) if LARGE else ())):
            yield await part(bench)


async def refill(bench: Bench) -> list[Figure]:
    progress(f"claims: a pool from nothing to {POOL}")
    samples = []
    for _ in range(RUNS):
        bench.pool(replicas=0)
        await bench.filled(0)
        bench.pool(replicas=POOL)
        samples.append(POOL / await bench.filled(POOL))
    return [_figure(f"refill of a pool from 0 to {POOL}", samples, "pods/s", "≥ 60 pods/s")]


async def writes_of_a_cycle(bench: Bench) -> list[Figure]:
    progress("claims: API writes")
    many = 50
    await bench.filled(POOL)
    await asyncio.sleep(3)
    before = written(bench.cluster)
    names = [(await bench.claim(time.monotonic()))[0] for _ in range(many)]
    bench.pool(maxSize=POOL)
    await asyncio.sleep(3)
    for name in names:
        await bench.release(name)
    await bench.filled(POOL)
    await asyncio.sleep(8)
    change = {key: count for key, count in (written(bench.cluster) - before).items() if count >= many / 5}
    listed = ", ".join(f"{verb} {what} {count / many:.1f}" for (verb, what), count in sorted(change.items()))
    total = sum(change.values()) / many
    return [Figure("API writes of a full cycle", total, "writes", note=f"{listed}; ≤ 11")]


async def arrivals(bench: Bench) -> list[Figure]:
    """No refill while it is measured: maxSize is the pool's size."""
    progress("claims: by arrivals, refill held back")
    found: list[Figure] = []
    bench.pool(replicas=ARRIVALS, maxSize=ARRIVALS)
    await bench.filled(ARRIVALS, 600)
    floor = await patch_floor(bench)
    for rate in RATES:
        runs = []
        for _ in range(RUNS):
            await bench.filled(ARRIVALS, 600)
            runs.append(await poisson(bench, rate, SECONDS, most=ARRIVALS))
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            samples = [quantile(run, share) * 1e3 for run in runs]
            target = "≤ 10 ms" if name == "p50" else "≤ 50 ms"
            found.append(_figure(f"claim at {rate}/s, {name}", samples, "ms", target, floor * 1e3))
    return found


async def bursts(bench: Bench) -> list[Figure]:
    progress("claims: bursts and the highest rate, refill held back")
    bench.pool(replicas=POOL, maxSize=POOL)
    await bench.filled(POOL)
    taken = [await _burst(bench, POOL) for _ in range(RUNS)]
    found = [_figure(f"burst of {POOL} claims on a pool of {POOL}, all bound", taken, "s", "≤ 1.5 s")]
    best = 0.0
    for rate in (50, 75, 100, 150, 200, 300, 400):
        await bench.filled(POOL)
        times = await poisson(bench, rate, POOL / rate, most=POOL)
        progress(f"claims: {rate}/s for {POOL / rate:.1f} s: p99 {quantile(times, 0.99) * 1e3:.0f} ms")
        if quantile(times, 0.99) > 0.5:
            break
        best = rate
    found.append(Figure("claims sustained with p99 ≤ 500 ms", best, "/s", note="≥ 300/s"))
    return found


async def patch_floor(bench: Bench) -> float:
    """Seconds of one bare JSON patch with a test on a warm pod, one after the other."""
    pods = bench.cluster.api.list("Pod", bench.work)[:100]
    patch = [
        {"op": "test", "path": "/metadata/labels/sandfleet.io~1state", "value": "warm"},
        {"op": "add", "path": "/metadata/annotations/bench", "value": "x"},
    ]
    taken = []
    for pod in pods:
        where = f"api/v1/namespaces/{bench.work}/pods/{pod['metadata']['name']}"
        start = time.monotonic()
        await asyncio.to_thread(bench.cluster.api.call, "PATCH", where, patch, "application/json-patch+json")
        taken.append(time.monotonic() - start)
    return statistics.median(taken)


async def cycles(bench: Bench) -> list[Figure]:
    """Claim, use, release, delete, refill, all at once."""
    bench.pool(replicas=POOL, maxSize=4 * POOL)
    await bench.filled(POOL)
    best, note = 0.0, ""
    for rate in CYCLE_RATES:
        fleet, server = _cpu(bench)
        start = time.monotonic()
        times = await poisson(bench, rate, CYCLE_SECONDS, use=USE_SECONDS)
        spent = time.monotonic() - start
        fleet_after, server_after = _cpu(bench)
        good = quantile(times, 0.99) <= 0.5
        note = f"fleet {(fleet_after - fleet) / spent:.0%} of a core, API server {(server_after - server) / spent:.0%}"
        progress(
            f"claims: full cycle at {rate}/s: p50 {quantile(times, 0.5) * 1e3:.0f} ms, p99 {quantile(times, 0.99) * 1e3:.0f} ms, {note}"
        )
        if not good:
            break
        best = rate
        await bench.filled(POOL)
    held = memory(bench.bed.fleet.pid, "Rss")
    return [
        Figure("full cycle sustained with p99 ≤ 500 ms", best, "/s", note=f"{note} at the last rate; ≥ 40/s"),
        Figure("fleet memory", held / 1e6, "MB", note=f"with a pool of {POOL}"),
    ]


async def large(bench: Bench) -> list[Figure]:
    progress(f"claims: a pool of {LARGE}")
    bench.pool(replicas=LARGE, maxSize=LARGE)
    filling = await bench.filled(LARGE, 600)
    seconds = await _burst(bench, LARGE)
    held = memory(bench.bed.fleet.pid, "Rss")
    return [
        Figure(f"{LARGE} claims from a pool of {LARGE}, all bound", seconds, "s", note=f"filled in {filling:.0f} s"),
        Figure("fleet memory, large pool", held / 1e6, "MB", note=f"{LARGE} claimed"),
    ]


async def poisson(bench: Bench, rate: float, seconds: float, *, most: int = 10**6, use: float = 0.0) -> list[float]:
    """Seconds of each claim, of a pool that is full. What was claimed is given back."""
    times, names = await claimed_at(bench, rate, seconds, most=most, use=use)
    await give_back(bench, names)
    return times


async def claimed_at(
    bench: Bench, rate: float, seconds: float, *, most: int = 10**6, use: float = 0.0
) -> tuple[list[float], list[str]]:
    """Seconds of each claim, and the sandboxes that are still claimed."""
    chance, begin = random.Random(round(rate)), time.monotonic() + 0.2
    dues, at = [], begin
    while (at := at + chance.expovariate(rate)) < begin + seconds and len(dues) < most:
        dues.append(at)
    names, times = [], []

    async def one(due: float) -> None:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        name, taken = await bench.claim(due)
        times.append(taken)
        if use:
            await asyncio.sleep(use)
            await bench.release(name)
        else:
            names.append(name)

    await _all([lambda due=due: one(due) for due in dues])
    return times, names


async def _burst(bench: Bench, many: int) -> float:
    """Seconds until all of so many claims at one moment are bound."""
    await bench.filled(many, 600)
    start = time.monotonic()
    claimed = await _all([lambda: bench.claim(start) for _ in range(many)])
    taken = time.monotonic() - start
    await give_back(bench, [name for name, _ in claimed])
    return taken


async def give_back(bench: Bench, names: list[str]) -> None:
    slots = asyncio.Semaphore(32)

    async def one(name: str) -> None:
        async with slots:
            await bench.release(name)

    await _all([lambda name=name: one(name) for name in names])


async def _all(work: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    return list(await asyncio.gather(*(one() for one in work)))


def _cpu(bench: Bench) -> tuple[float, float]:
    """Of the fleet and of the API server."""
    return cpu_seconds(bench.bed.fleet.pid), cpu_seconds(_server(bench))


def _server(bench: Bench) -> int:
    layout = bench.cluster.layout
    node = recorded(layout) if layout else None
    assert node is not None
    return next(pid for pid in descendants(node.pid) if "kube-apiserver" in command_line(pid))


def _figure(name: str, samples: list[float], unit: str, target: str, baseline: float | None = None) -> Figure:
    spread = f"{min(samples):.3g} to {max(samples):.3g} in {len(samples)} runs; {target}"
    return Figure(name, statistics.median(samples), unit, baseline, spread)
