"""The client through the gateway beside a direct connection to the same executor, and claims beside a loaded gateway.

The second part needs a cluster (`make cluster`), whose API server is real; its pods and executors are pretended. All
share the machine. The scheduler gives the gateway what the chart's requests give its pod, and what sends and reads
through it, which is elsewhere in a cluster, only what the others leave.
"""

import asyncio
import contextlib
import dataclasses
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import claims
import grpc
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
from support.ports import free_port

MIB = 1 << 20
CELLS, BULK, OPENINGS, ROUNDS = 300, 64 * MIB, 25, 5
DIRECT = "beside a direct connection to the same executor, both by TLS"
RATE, SECONDS, LOAD_ROUNDS, LOAD = 20, 14, 3, 100
TUNNELS = 8
# Of a session's processes together; a step is a factor of 1.25. The chart requests 50m for the gateway, and 200m for
# fleet and operator, which are both of the session of the bench.
GATEWAY_NICE, ELSEWHERE_NICE = 6, 19
# Sends without end to each connection that says something.
SOURCE = f"""
import socket, threading
def serve(connection):
    connection.recv(16)
    try:
        while True:
            connection.sendall(bytes({MIB}))
    except OSError:
        pass
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
# Reads so many MB/s through tunnels of the gateway at 127.0.0.1:PORT, and says each second how many bytes.
READER = """
import asyncio, sys, time
import grpc
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayServiceStub
port, ca, token, sandbox, tunnels, rate = sys.argv[1:]
got, begin = 0, 0.0
async def read(stub):
    global got
    call = stub.Tunnel(metadata=(("authorization", "Bearer " + token),), wait_for_ready=True)
    await call.write(pb.TunnelRequest(open=pb.TunnelOpen(sandbox_id=sandbox)))
    await call.read()
    await call.write(pb.TunnelRequest(data=b"go"))
    while (message := await call.read()) is not grpc.aio.EOF:
        got += len(message.data)
        await asyncio.sleep(max(0.0, begin + got / float(rate) / 1e6 - time.monotonic()))
async def main():
    global got, begin
    begin = time.monotonic()
    options = [("grpc.ssl_target_name_override", "sandfleet-gateway")]
    credentials = grpc.ssl_channel_credentials(open(ca, "rb").read())
    async with grpc.aio.secure_channel("127.0.0.1:" + port, credentials, options=options) as channel:
        tasks = [asyncio.ensure_future(read(GatewayServiceStub(channel))) for _ in range(int(tunnels))]
        last = 0
        while not any(task.done() for task in tasks):
            await asyncio.sleep(1)
            print(got - last, flush=True)
            last = got
asyncio.run(main())
"""


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
        bench = stack.enter_context(claims._bench(cluster, folder))
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
            with _gateway(folder, bed.world.port) as gateway:
                yield _connector(bed, gateway.port), _connector(bed, None)
    finally:
        await executor.stop()
        await host.close()


@dataclasses.dataclass(frozen=True)
class Gateway:
    port: int
    pid: int


@contextlib.contextmanager
def _gateway(folder: Path, fleet: int, nice: int = 0) -> Iterator[Gateway]:
    """A gateway's process with the credentials of the folder."""
    port = free_port()
    command = ["-m", "sandfleet_operator", "gateway", "--credentials", str(folder), "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, *command, "--fleet", f"localhost:{fleet}"], stderr=subprocess.DEVNULL, start_new_session=True
    )
    _give_way(process.pid, nice)
    try:
        yield Gateway(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def _give_way(pid: int, nice: int) -> None:
    """Of a process with a session of its own. Linux weighs sessions, and niceness within each."""
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


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


async def _claims(bench: claims.Bench, folder: Path) -> list[Figure]:
    """Claims by turns with and without the load; no refill while they are measured."""
    progress(f"claims beside a gateway with {LOAD} MB/s")
    api, ca = bench.cluster.api, folder / "ca.crt"
    ca.write_text(api.get("ConfigMap", "sandfleet-ca", bench.bed.namespace)["data"]["ca.crt"])
    _one_sandbox(bench, folder)
    options = [("grpc.ssl_target_name_override", "127.0.0.1")]
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    samples: dict[bool, list[float]] = {True: [], False: []}
    rates: list[float] = []
    # Seconds of the gateway for each 100 MB.
    costs: list[float] = []
    with _source() as port, _gateway(folder, bench.bed.port, GATEWAY_NICE) as gateway:
        _says_where(bench, port)
        bench.pool(replicas=claims.POOL, maxSize=claims.POOL)
        async with grpc.aio.secure_channel(f"127.0.0.1:{bench.bed.port}", credentials, options=options) as channel:
            bench.stub = FleetServiceStub(channel)
            for _ in range(LOAD_ROUNDS):
                await bench.filled(claims.POOL)
                samples[False] += await claims._poisson(bench, RATE, SECONDS, most=claims.POOL)
                await bench.filled(claims.POOL)
                with _reader(bench, gateway.port, ca) as read:
                    busy = cpu_seconds(gateway.pid)
                    samples[True] += await claims._poisson(bench, RATE, SECONDS, most=claims.POOL)
                    busy = cpu_seconds(gateway.pid) - busy
                rates += read
                costs.append(busy / (sum(read) / 1e8))
    note = f"beside no load; {statistics.median(rates) / 1e6:.0f} MB/s through {TUNNELS} tunnels; ≤ 1.3 times"
    cost = Figure("processor time of a gateway, for 100 MB", statistics.median(costs), "s")
    return [cost, *_beside(samples, note)]


def _beside(samples: dict[bool, list[float]], note: str) -> list[Figure]:
    return [
        Figure(
            f"claim at {RATE}/s beside a loaded gateway, {name}",
            quantile(samples[True], share) * 1e3,
            "ms",
            quantile(samples[False], share) * 1e3,
            note,
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


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


@contextlib.contextmanager
def _source() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", SOURCE], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        _give_way(process.pid, ELSEWHERE_NICE)
        yield int(process.stdout.readline())
        process.kill()


@contextlib.contextmanager
def _reader(bench: claims.Bench, gateway: int, ca: Path) -> Iterator[list[float]]:
    """Reads through the gateway; the list has the bytes of each second, when it is over."""
    arguments = [str(gateway), str(ca), bench.token, f"{bench.bed.namespace}/source", str(TUNNELS), str(LOAD)]
    command = [sys.executable, "-c", READER, *arguments]
    read: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        _give_way(process.pid, ELSEWHERE_NICE)
        # The first second opens the tunnels.
        process.stdout.readline()
        yield read
        process.kill()
        read += [float(line) for line in process.stdout.read().split()]
