"""The client through the gateway beside a direct connection to the same executor, and claims beside a loaded gateway.

The second part needs a cluster (`make cluster`), whose API server is real; its pods and executors are pretended. All
share the machine. The scheduler gives the gateway what the chart's requests give its pod, and what sends and reads
through it, which is elsewhere in a cluster, only what the others leave.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import claims
import grpc
import load
from figures import Figure, progress, quantile
from pods import running_cluster
from processes import cpu_seconds
from sandfleet import AsyncSandbox
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.access_bed import a_grant, an_object
from cluster.harness.api import path_of
from cluster.harness.layout import ClusterError
from contract.executor.local import LocalHost
from contract.executor.plane import Plane, isolation, whom
from sandfleet._fleets.cluster import Place
from sandfleet._fleets.fleet import AsyncFleet
from support.fleet.gateway import GatewayBed, gateway_bed
from support.fleet.on_kubernetes import Known

MIB = 1 << 20
CELLS, BULK, OPENINGS, ROUNDS = 300, 64 * MIB, 25, 5
DIRECT = "beside a direct connection to the same executor, both by TLS"
# A round needs one pool for its three loads.
RATE, SECONDS, LOAD_ROUNDS, LOAD = 20, 4.5, 9, 100
# Of a session's processes together; a step is a factor of 1.25. The chart requests 50m for the gateway, and 200m for
# fleet and operator, which are both of the session of the bench.
GATEWAY_NICE = 6


def figures() -> Iterator[Figure]:
    progress("the gateway, and a direct connection")
    yield from asyncio.run(_beside_direct())
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped claims beside a loaded gateway: {error}")
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = stack.enter_context(claims.a_bench(cluster, folder))
        yield from asyncio.run(_claims(bench, folder))


async def _beside_direct() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        async with _reached(Path(name)) as (through, direct):
            ours, theirs = ([[], [], []], [[], [], []])
            # By turns, so that both see the same noise.
            for _ in range(ROUNDS):
                for connect, samples in ((through, ours), (direct, theirs)):
                    samples[0] += [await _first_cell(connect) for _ in range(OPENINGS // ROUNDS)]
                    async with await connect() as sandbox:
                        samples[1] += await _cells(sandbox)
                        samples[2].append(await _throughput(sandbox))
    return [
        Figure("trivial cell through the gateway, p50", quantile(ours[1], 0.5), "ms", quantile(theirs[1], 0.5), DIRECT),
        Figure(
            "trivial cell through the gateway, p99", quantile(ours[1], 0.99), "ms", quantile(theirs[1], 0.99), DIRECT
        ),
        Figure(
            "connect and first cell through it, p50", quantile(ours[0], 0.5), "ms", quantile(theirs[0], 0.5), DIRECT
        ),
        Figure("a file read through it", quantile(ours[2], 0.5), "MB/s", quantile(theirs[2], 0.5), DIRECT),
    ]


Connect = Callable[[], Awaitable[AsyncSandbox]]


@contextlib.asynccontextmanager
async def _reached(folder: Path) -> AsyncIterator[tuple[Connect, Connect]]:
    """Two ways to one executor: through a gateway in a process of its own, and directly."""
    host = LocalHost()
    await host.start()
    executor = await host.executor(session=None, port=True, signed=False)
    try:
        async with gateway_bed(folder, signing=Plane(host.key)) as bed:
            bed.allow()
            bed.world.kube.allowed.add(("alice", "get", "team", "one"))
            one = whom(executor, session_id="team.one")
            await bed.world.signing.contacts.contact(one, isolation=isolation(host), first=True)
            await bed.world.signing.contacts.open(one, lease=3600)
            await bed.world.add("one", status=False)
            config = executor.config
            await bed.world.say("one", address=config["listen"], podUID=config["sandbox_uid"])
            with load.gateway(folder, bed.world.port) as gateway:
                yield _connector(bed, gateway.port), _connector(bed, None)
    finally:
        await executor.stop()
        await host.close()


def _connector(bed: GatewayBed, port: int | None) -> Connect:
    address, ca = f"127.0.0.1:{bed.world.port}", bed.world.signing.authority.pem
    place = Place(address, ca, "localhost", Known("alice"))
    if port is not None:
        place = dataclasses.replace(place, gateway=lambda: f"127.0.0.1:{port}", forwarded=True)
    fleet = AsyncFleet(address, place)
    bed.world.fleets.append(fleet)
    return lambda: AsyncSandbox.connect("team/one", fleet=fleet)


async def _first_cell(connect: Connect) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    async with await connect() as sandbox:
        await sandbox.run_code("1")
        return (time.perf_counter() - start) * 1e3


async def _cells(sandbox: AsyncSandbox) -> list[float]:
    """Milliseconds of each."""
    samples = []
    for _ in range(CELLS // ROUNDS):
        start = time.perf_counter()
        await sandbox.run_code("1")
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


async def _throughput(sandbox: AsyncSandbox) -> float:
    """MB/s of a file that is read."""
    await sandbox.run_code(f"_ = open('bulk', 'wb').write(bytes({BULK}))")
    start = time.perf_counter()
    read = len(await sandbox.files.read("bulk", format="bytes"))
    return read / 1e6 / (time.perf_counter() - start)


# How claims are measured, by turns.
IDLE, DIRECTLY, THROUGH = "no load", "direct load", "the gateway's load"


@dataclasses.dataclass
class Rounds:
    """What was measured beside each load: seconds of the claims of each round, and bytes of each second."""

    claims: dict[str, list[list[float]]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    rates: dict[str, list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    # Seconds of processor time for 100 MB, a round.
    costs: dict[str, list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))

    def carried(self, beside: str) -> float:
        """MB/s."""
        return statistics.median(self.rates[beside]) / 1e6


async def _claims(bench: claims.Bench, folder: Path) -> list[Figure]:
    """Claims by turns without a load, with one through the gateway, and with the same bytes sent directly; no refill
    while they are measured.
    """
    progress(f"claims beside {LOAD} MB/s, through the gateway and directly")
    api, ca = bench.cluster.api, folder / "ca.crt"
    ca.write_text(api.get("ConfigMap", "sandfleet-ca", bench.bed.namespace)["data"]["ca.crt"])
    _one_sandbox(bench, folder)
    options = [("grpc.ssl_target_name_override", "127.0.0.1")]
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    found = Rounds()
    async with contextlib.AsyncExitStack() as stack:
        port = stack.enter_context(load.source())
        gateway = stack.enter_context(load.gateway(folder, bench.bed.port, GATEWAY_NICE))
        sender = stack.enter_context(load.sender(folder))
        carriers = {THROUGH: gateway, IDLE: None, DIRECTLY: sender}
        _says_where(bench, port)
        bench.pool(replicas=claims.POOL, maxSize=claims.POOL)
        target = f"127.0.0.1:{bench.bed.port}"
        channel = await stack.enter_async_context(grpc.aio.secure_channel(target, credentials, options=options))
        bench.stub = FleetServiceStub(channel)
        orders = itertools.cycle(itertools.permutations(carriers))
        for order in itertools.islice(orders, LOAD_ROUNDS):
            await _round(bench, found, carriers, order)
    return [*_costs(found), *_beside(found)]


async def _round(
    bench: claims.Bench, found: Rounds, carriers: dict[str, load.Carrier | None], order: tuple[str, ...]
) -> None:
    """All of one pool: a refill between two loads would be a load of its own."""
    await bench.filled(claims.POOL)
    names: list[str] = []
    for beside in order:
        with contextlib.ExitStack() as stack:
            if (carrier := carriers[beside]) is not None:
                stack.enter_context(_loaded(bench, found, carrier, beside))
            times, claimed = await claims.claimed_at(bench, RATE, SECONDS, most=claims.POOL // len(order))
        found.claims[beside].append(times)
        names += claimed
    await claims.give_back(bench, names)


@contextlib.contextmanager
def _loaded(bench: claims.Bench, found: Rounds, carrier: load.Carrier, beside: str) -> Iterator[None]:
    # As much directly as the gateway has carried.
    rate = found.carried(THROUGH) if beside == DIRECTLY and found.rates[THROUGH] else LOAD
    with load.reader(carrier, bench.token, f"{bench.bed.namespace}/source", rate) as read:
        busy = cpu_seconds(carrier.pid)
        yield
        busy = cpu_seconds(carrier.pid) - busy
    found.rates[beside] += read
    found.costs[beside].append(busy / (sum(read) / 1e8))


def _costs(found: Rounds) -> list[Figure]:
    name, theirs = "processor time of a gateway, for 100 MB", statistics.median(found.costs[DIRECTLY])
    note = "beside a sender that does it all: makes the bytes, TLS and gRPC"
    return [Figure(name, statistics.median(found.costs[THROUGH]), "s", theirs, note)]


def _beside(found: Rounds) -> Iterator[Figure]:
    """Of all claims of all rounds, with the median ratio of the rounds and the quarters beside it."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        for one, other in ((THROUGH, IDLE), (DIRECTLY, IDLE), (THROUGH, DIRECTLY)):
            pairs = zip(found.claims[one], found.claims[other], strict=True)
            ratios = [quantile(mine, share) / quantile(theirs, share) for mine, theirs in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            note = f"beside {other}; rounds {middle:.2f} ({low:.2f} to {high:.2f})"
            note += f"; {found.carried(one):.0f} MB/s through {load.TUNNELS} streams"
            note += "; ≤ 1.3 times" if (one, other, name) == (THROUGH, IDLE, "p99") else ""
            mine, theirs = (
                quantile(list(itertools.chain(*found.claims[beside])), share) * 1e3 for beside in (one, other)
            )
            yield Figure(f"claim at {RATE}/s with {one}, {name}", mine, "ms", theirs, note)


def _one_sandbox(bench: claims.Bench, folder: Path) -> None:
    """In the control plane's namespace, where no operator looks; and the gateway's account with its one right."""
    home = bench.bed.namespace
    right = [{"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/gateway"], "verbs": ["create"]}]
    connect = [{"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/connect"], "verbs": ["create"]}]
    bench.bed.apply(
        an_object("v1", "ServiceAccount", "gateway", home),
        *a_grant("", "gateway", right, (home, "gateway"), home),
        *a_grant("", "reader", connect, (bench.work, "agent"), home),
        an_object("sandfleet.io/v1alpha1", "CodeSandbox", "source", home, spec={"templateRef": {"name": "none"}}),
    )
    (folder / "token").write_text(bench.bed.token(home, "gateway", "--duration", "3h"))


def _says_where(bench: claims.Bench, port: int) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "ExecutorAnswers", "message": ""}
    status = {"podName": "source", "podUID": secrets.token_hex(8), "address": f"127.0.0.1:{port}", "runtime": "gvisor"}
    status["conditions"] = [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    path = f"{path_of('CodeSandbox', bench.bed.namespace, 'source')}/status"
    bench.cluster.api.call("PATCH", path, {"status": status}, "application/merge-patch+json")
