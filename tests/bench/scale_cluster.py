"""Thousands of idle sandboxes on a real API server with pretended nodes: what they cost fleet, operator and claims.

SANDFLEET_CROWD gives the numbers of sandboxes, one after the other (1000,2500,5000); there are twice as many pods, half
of them claimed and half warm. A sandbox that was really claimed is copied while neither process runs; then both start
and take over. Loops are measured by themselves, in processor time of their threads. A second API server has a fleet, an
operator and a pool of the same size, and no crowd: claims go to either by turns, so that both see the same noise.
"""

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
from claims import Bench, poisson
from figures import Figure, progress, quantile
from processes import cpu_seconds, memory
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.access_bed import an_agent, an_object, fleet_bed
from cluster.flood.control_plane import control_plane
from cluster.harness import binaries, fake_nodes
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.operator_on_fakes import WINDOW
from cluster.operators import OperatorProcess, install_kinds, template
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_TEMPLATE, Kind, Ref
from sandfleet_operator.cluster.kube import Kube, connect
from sandfleet_operator.plan.pods import names

Json = dict[str, Any]
CROWD = tuple(int(one) for one in os.environ.get("SANDFLEET_CROWD", "1000,2500,5000").split(","))
# Pods that a pretended node has; it could have 250.
PER_NODE = 200
POOL, RATE, SECONDS, TURNS, REST = 100, 10, 5.0, 8, 10.0
CALLS = 32
LONGEST = "sandfleet_event_loop_longest_stretch_seconds"
STRETCH = "≤ 20 ms"
MIB = 1 << 20
# Of a process that has nothing left to do: shares of a core. The fleet looks at all deadlines, four times a second; an
# operator that takes more still writes statuses.
CALM = {"fleet": 0.15, "operator": 0.05}
# What an API server adds to an object.
ADDED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "generateName", "selfLink")
TINY = {
    "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "512Mi"},
    "requests": {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"},
}


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no API server can be built."""
    try:
        binaries.toolchain(binaries.MODULES[0])
    except ClusterError as error:
        progress(f"skipped the figures of a crowd: {error}")
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        crowded, alone = (
            stack.enter_context(_own_place(folder / name, many)) for name, many in (("crowd", max(CROWD)), ("alone", 0))
        )
        with asyncio.Runner() as runner:
            part = measure(crowded, alone)
            while (found := runner.run(anext(part, None))) is not None:
                yield from found


@contextmanager
def _own_place(folder: Path, many: int) -> Iterator["Place"]:
    """On an API server of its own, with room for so many sandboxes beside the pool."""
    folder.mkdir()
    nodes = (2 * many + 4 * POOL) // PER_NODE + 1
    with control_plane(folder, nodes, audited=False) as cluster, _place(cluster, folder, nodes) as place:
        yield place


@dataclass
class Place:
    """A fleet and an operator for one namespace, with a pool for claims and one whose pods only wait."""

    bench: Bench
    operator: OperatorProcess
    nodes: int
    # Seconds, and the longest stretch of each loop in the seconds before.
    seen: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return self.bench.cluster

    @property
    def pids(self) -> dict[str, int]:
        assert self.operator.process is not None
        return {"fleet": self.bench.bed.fleet.pid, "operator": self.operator.process.pid}

    @property
    def ports(self) -> dict[str, int]:
        return {"fleet": self.bench.bed.health_port, "operator": self.operator.port}

    def start(self) -> None:
        self.operator.start()
        self.bench.bed.fleet.start()

    def end(self) -> None:
        self.operator.end()
        self.bench.bed.fleet.end()

    def cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self.pids.items()}

    def longest(self, name: str, since: float) -> float:
        """Milliseconds of the longest stretch of a loop."""
        return 1e3 * max((found[name] for at, found in self.seen if at >= since and name in found), default=0.0)

    async def look(self) -> None:
        """Asks each loop for its longest stretch, again and again, until cancelled."""
        while True:
            found = await asyncio.to_thread(self._stretches)
            self.seen.append((time.monotonic(), found))
            await asyncio.sleep(1.0)

    def _stretches(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, port in self.ports.items():
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
                found[name] = next((float(line.split()[1]) for line in lines if line.startswith(LONGEST)), 0.0)
        return found


class _place:  # noqa: N801 - a context manager, written as one
    def __init__(self, cluster: Cluster, folder: Path, nodes: int) -> None:
        self._cluster, self._folder, self._nodes, self._stack = cluster, folder, nodes, ExitStack()

    def __enter__(self) -> Place:
        cluster, work = self._cluster, f"crowd-{secrets.token_hex(4)}"
        install_kinds(cluster.api)
        cluster.api.create(an_object("v1", "Namespace", work))
        folder = self._folder / "fleet"
        folder.mkdir()
        bed = self._stack.enter_context(fleet_bed(cluster, folder, (work,), fakes=True))
        bed.apply(*an_agent(work))
        operator = OperatorProcess(cluster, folder, bed.namespace, (work,), fakes=True).start()
        self._stack.callback(operator.end)
        workspace = {"size": "64Mi", "ephemeral": True}
        cluster.api.create(template(work, resources=TINY, workspace=workspace, **fake_nodes.PLACEMENT))
        for name, size in (("fast", POOL), ("idle", 1)):
            spec = {"templateRef": {"name": "python"}, "replicas": size}
            cluster.api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", name, work, spec=spec))
        return Place(Bench(cluster, bed, work, bed.token(work, "agent", "--duration", "3h")), operator, self._nodes)

    def __exit__(self, *error: object) -> None:
        # What went wrong first is told.
        with suppress(*((ClusterError,) if error[0] else ())):
            self._stack.close()


async def measure(place: Place, alone: Place) -> AsyncIterator[list[Figure]]:
    looking = asyncio.create_task(place.look())
    kube = await connect("bench", str(place.cluster.kubeconfig))
    try:
        await _until(lambda: place.bench.warm() == POOL, "the pool to be full")
        seeds, there = await Seeds.of_a_claim(place, kube), 0
        # What both need once is there before their memory is compared.
        await _claims(alone)
        for many in CROWD:
            await asyncio.to_thread(place.end)
            began = time.monotonic()
            await seeds.copy(kube, place, range(there, many))
            progress(f"a crowd of {many} was made in {time.monotonic() - began:.0f} s")
            there = many
            yield [one async for one in _beside(place, many, alone)]
    finally:
        looking.cancel()
        await kube.close()


async def _beside(place: Place, many: int, alone: Place) -> AsyncIterator[Figure]:
    began = time.monotonic()
    await asyncio.to_thread(place.start)
    await _until(lambda: _leads(place), "the fleet to serve")
    taken = time.monotonic() - began
    await _calm(place)
    for name in place.pids:
        yield Figure(f"{name} takes over {many}: longest stretch", place.longest(name, began), "ms", note=STRETCH)
    yield Figure(f"fleet serves {many} after its start", taken, "s")
    async for one in _at_rest(place, many, alone):
        yield one
    progress(f"claims beside {many}")
    async with _phase(place) as since:
        turns = [(await _claims(place), await _claims(alone)) for _ in range(TURNS)]
    for name in place.pids:
        yield Figure(
            f"claims beside {many}: longest stretch of the {name}", place.longest(name, since), "ms", note=STRETCH
        )
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        value, base = (quantile(list(chain.from_iterable(one)), share) * 1e3 for one in zip(*turns, strict=True))
        ratios = sorted(quantile(ours, share) / quantile(theirs, share) for ours, theirs in turns)
        note = f"beside the same without a crowd; ≤ 1.3; {ratios[0]:.2f} to {ratios[-1]:.2f} in a turn"
        yield Figure(f"claim at {RATE}/s beside {many}, {label}", value, "ms", base, note)
    async with _phase(place) as since:
        before = place.cpu()["operator"]
        await _touch_template(place)
        await _calm(place)
        spent = place.cpu()["operator"] - before
    yield Figure(f"operator looks at {many}: longest stretch", place.longest("operator", since), "ms", note=STRETCH)
    yield Figure(f"operator's look at rest, of {many}", spent / many * 1e3, "ms", note="≤ 0.3; of the whole process")


async def _at_rest(place: Place, many: int, alone: Place) -> AsyncIterator[Figure]:
    async with _phase(place) as since:
        before = place.cpu()
        await asyncio.sleep(REST)
        spent = {name: (now - before[name]) / REST * 1e3 for name, now in place.cpu().items()}
    for name, pid in place.pids.items():
        yield Figure(f"{name} at rest with {many}: longest stretch", place.longest(name, since), "ms", note=STRETCH)
        yield Figure(f"{name} at rest with {many}: processor time", spent[name], "ms/s")
        grown = (memory(pid, "Rss") - memory(alone.pids[name], "Rss")) / MIB / (2 * many / 1000)
        yield Figure(f"{name}'s memory for 1,000 pods, with {many}", grown, "MiB", note="≤ 8; and 500 CodeSandboxes")


@asynccontextmanager
async def _phase(place: Place) -> AsyncIterator[float]:
    """Yields from when on stretches are of this phase, and waits until the last one was seen."""
    await asyncio.sleep(WINDOW + 1)
    yield time.monotonic()
    await asyncio.sleep(2)


async def _claims(place: Place) -> list[float]:
    """Seconds of each claim; what was claimed is released, and the pool is full again."""
    await _until(lambda: place.bench.warm() == POOL, "the pool to be full")
    ca = place.cluster.api.get("ConfigMap", "sandfleet-ca", place.bench.bed.namespace)["data"]["ca.crt"].encode()
    options = [("grpc.ssl_target_name_override", "127.0.0.1"), ("grpc.use_local_subchannel_pool", 1)]
    target, credentials = f"127.0.0.1:{place.bench.bed.port}", grpc.ssl_channel_credentials(ca)
    async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
        place.bench.stub = FleetServiceStub(channel)
        return await poisson(place.bench, RATE, SECONDS, use=1.0)


async def _touch_template(place: Place) -> None:
    """The operator looks at each sandbox of the template, and finds nothing to do."""
    where = f"apis/sandfleet.io/v1alpha1/namespaces/{place.bench.work}/{SANDBOX_TEMPLATE.plural}/python"
    patch = {"metadata": {"annotations": {"bench": secrets.token_hex(4)}}}
    await asyncio.to_thread(place.cluster.api.call, "PATCH", where, patch, "application/merge-patch+json")


def _leads(place: Place) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{place.ports['fleet']}/leadz", timeout=10).close()
    except OSError:
        return False
    return True


async def _calm(place: Place) -> None:
    """Until neither process has much left to do."""
    began = time.monotonic()
    while True:
        before = place.cpu()
        await asyncio.sleep(2)
        busy = {name: (now - before[name]) / 2 for name, now in place.cpu().items()}
        if all(share < CALM[name] for name, share in busy.items()):
            return
        if time.monotonic() - began > 240:
            raise ClusterError(f"the processes do not come to rest: {busy}; {place.operator.log[-2000:]}")


async def _until(holds: Callable[[], bool], what: str) -> None:
    began = time.monotonic()
    while not await asyncio.to_thread(holds):
        if time.monotonic() - began > 240:
            raise ClusterError(f"cannot wait for {what}")
        await asyncio.sleep(0.2)


@dataclass(frozen=True)
class Seeds:
    """A claimed pod, its CodeSandbox and a warm pod, as the API server gives them."""

    claimed: Json
    sandbox: Json
    warm: Json

    @classmethod
    async def of_a_claim(cls, place: Place, kube: Kube) -> "Seeds":
        bench = place.bench
        await _until(
            lambda: place.cluster.api.get("SandboxPool", "idle", bench.work)["status"].get("warm") == 1, "warm"
        )
        ca = place.cluster.api.get("ConfigMap", "sandfleet-ca", bench.bed.namespace)["data"]["ca.crt"].encode()
        options = [("grpc.ssl_target_name_override", "127.0.0.1")]
        target, credentials = f"127.0.0.1:{bench.bed.port}", grpc.ssl_channel_credentials(ca)
        async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
            bench.stub = FleetServiceStub(channel)
            name = (await bench.claim(time.monotonic()))[0].partition("/")[2]
        ref = Ref(CODE_SANDBOX, bench.work, name)

        def settled() -> bool:
            try:
                status = place.cluster.api.get("CodeSandbox", name, bench.work).get("status", {})
            except ClusterError:
                return False
            return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))

        await _until(settled, "the claimed sandbox to be ready")
        await _calm(place)
        sandbox = await kube.get(ref)
        claimed = await kube.get(Ref(POD, bench.work, sandbox["status"]["podName"]))
        (warm,) = (await kube.list(POD, bench.work, f"{names.POOL}=idle")).items
        return cls(claimed, sandbox, warm)

    async def copy(self, kube: Kube, place: Place, numbers: range) -> None:
        slots = asyncio.Semaphore(CALLS)

        async def one(number: int) -> None:
            async with slots:
                await self._session(kube, number, place.nodes)
                await self._warm(kube, number, place.nodes)

        await asyncio.gather(*map(one, numbers))
        spec = {"spec": {"replicas": 1 + numbers.stop}}
        where = f"apis/sandfleet.io/v1alpha1/namespaces/{place.bench.work}/sandboxpools/idle"
        await asyncio.to_thread(place.cluster.api.call, "PATCH", where, spec, "application/merge-patch+json")

        def running() -> bool:
            found = place.cluster.api.list("Pod", place.bench.work)
            return all(one["status"].get("phase") == "Running" for one in found)

        await _until(running, "the pods to run")

    async def _session(self, kube: Kube, number: int, nodes: int) -> None:
        """The pod first, whose uid the CodeSandbox names; then the pod gets its owner."""
        pod, sandbox = self.claimed["metadata"], self.sandbox["metadata"]
        record = json.loads(pod["annotations"][names.CLAIM])
        says = {
            sandbox["name"]: f"session-{number:05d}",
            pod["name"]: f"claimed-{number:05d}",
            json.dumps(json.dumps(record["request"]))[1:-1]: f'\\"r-{number}\\"',
        }
        bare = _bare(self.claimed, says)
        owners = bare["metadata"].pop("ownerReferences")
        bare["spec"]["nodeName"] = f"fake-{number % nodes}"
        made = await kube.create(bare)
        says[pod["uid"]] = made["metadata"]["uid"]
        copy = _bare(self.sandbox, says)
        status = copy.pop("status")
        uid = (await kube.create(copy))["metadata"]["uid"]
        owned = {"metadata": {"ownerReferences": [{**one, "uid": uid} for one in owners]}}
        await kube.merge(_ref(POD, made), owned)
        status["address"] = status.get("address", "")
        await kube.merge(_ref(CODE_SANDBOX, copy), {"status": status}, "status")

    async def _warm(self, kube: Kube, number: int, nodes: int) -> None:
        bare = _bare(self.warm, {self.warm["metadata"]["name"]: f"warm-{number:05d}"})
        bare["spec"]["nodeName"] = f"fake-{(number + nodes // 2) % nodes}"
        await kube.create(bare)


def _bare(obj: Json, says: dict[str, str]) -> Json:
    """A copy under other names, without what the API server adds; a pod without its status."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in ADDED}
    bare = {name: value for name, value in obj.items() if name != "status" or obj["kind"] != POD.kind}
    text = json.dumps({**bare, "metadata": meta})
    for old, new in says.items():
        text = text.replace(old, new)
    copy: Json = json.loads(text)
    return copy


def _ref(kind: Kind, obj: Json) -> Ref:
    return Ref(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
