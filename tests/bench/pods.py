"""The same figures in gVisor pods of a running cluster, beside this machine without gVisor."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import files
import languages
import rollback
import services
import state
import streams
import terminals
import tunnels
from figures import Figure, progress, quantile
from nodes import container_age, pod_memory
from sandfleet import AsyncSandbox

import tools

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.harness import binaries, images
from cluster.harness.api import Api
from cluster.harness.layout import ClusterError, Layout, cache, directory
from cluster.harness.plan import recorded
from cluster.harness.testing import Cluster
from contract.executor.harness import until
from contract.executor.pod import IMAGE, PodExecutor, PodHost

ROUNDS, CELLS, COMMANDS, CONTEXTS = 10, 30, 6, 2
MIB = 1 << 20
FLOOD, WATCHED_FLOOD = 1024 * MIB, 256 * MIB
STARTS = 5
SETTLED_SECONDS = 3.0
# Until the context that is forked ahead has been let go.
IDLE_SECONDS = 35.0
SLEEP = ["python3", "-c", "import time; time.sleep(1e6)"]
HERE = "beside this machine without gVisor"
BARE = "beside a pod of the same image that sleeps"


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures in pods: {error}")
        return
    with asyncio.Runner() as runner:
        parts = measure(PodHost(cluster))
        while (found := runner.run(anext(parts, None))) is not None:
            yield from found


def running_cluster() -> Cluster:
    """Raises ClusterError, which says what is missing."""
    layout = Layout(directory())
    if recorded(layout) is None:
        raise ClusterError("no cluster runs (make cluster)")
    programs = binaries.provide(cache(), progress)
    if not images.has(layout, programs["ctr"], IMAGE):
        raise ClusterError(f"the cluster has no image {IMAGE} (make image)")
    return Cluster(layout.kubeconfig, Api(json.loads(layout.kubeconfig.read_text())), programs, layout)


async def measure(host: PodHost) -> AsyncIterator[list[Figure]]:
    await host.start()
    try:
        async with running(host) as executor, await AsyncSandbox.create() as here:
            yield await latencies(executor.sandbox, here)
            yield await languages.cells(executor.sandbox, where=" in a pod")
            yield await floods(executor, here)
        yield await starts(host)
        yield await idle(host)
        yield await copies(host)
        yield await tool_calls(host)
        async for found in others(host):
            yield found
    finally:
        await host.close()


@asynccontextmanager
async def running(host: PodHost, **options: object) -> AsyncIterator[PodExecutor]:
    executor = await host.executor(**options)
    try:
        yield executor
    finally:
        await executor.stop()


async def copies(host: PodHost) -> list[Figure]:
    async with (
        running(host, rollback={"enabled": True}) as on,
        running(host, rollback={"enabled": False}) as off,
    ):
        return await rollback.measured(on.sandbox, off.sandbox, " in a pod")


async def tool_calls(host: PodHost) -> list[Figure]:
    progress("in a pod: tool calls")
    async with (
        running(host, contract="brokered") as executor,
        running(host) as autonomous,
        await executor.sandbox.serve_tools([tools.echo]),
    ):
        found = await tools.calls(executor.sandbox, " in a pod", "≤ 4 ms under gVisor")
        return [*found, await tools.idle_broker(executor.sandbox, autonomous.sandbox, " in a pod")]


async def others(host: PodHost) -> AsyncIterator[list[Figure]]:
    """The parts that measure any sandbox, with the baselines that they have of themselves."""

    async def create(*, autosave: bool = False) -> AsyncSandbox:
        return (await host.executor()).client(autosave=autosave)

    for part in (streams, state, services, tunnels, terminals, files):
        progress(f"in a pod: {part.__name__}")
        yield [replace(figure, name=f"{figure.name}, in a pod") for figure in await part.measure(create)]


async def latencies(there: AsyncSandbox, here: AsyncSandbox) -> list[Figure]:
    progress("in a pod: cells, commands, contexts")
    work: tuple[tuple[Callable[[AsyncSandbox], Awaitable[float]], int], ...] = (
        (cell, CELLS),
        (first_byte, COMMANDS),
        (new_context, CONTEXTS),
    )
    for sandbox in (there, here):
        for _ in range(20):
            await cell(sandbox)
    samples: dict[tuple[object, bool], list[float]] = {}
    # By turns, so that both see the same noise.
    for _ in range(ROUNDS):
        for sandbox in (there, here):
            for measured, times in work:
                taken = [await measured(sandbox) for _ in range(times)]
                samples.setdefault((measured, sandbox is there), []).extend(taken)
    rows = (
        ("trivial cell in a pod, p50", cell, 0.5, "; ≤ 5 ms"),
        ("trivial cell in a pod, p99", cell, 0.99, ""),
        ("first byte of a command in a pod, p50", first_byte, 0.5, "; ≤ 25 ms"),
        ("new context in a pod, p50", new_context, 0.5, "; ≤ 30 ms"),
    )
    return [
        Figure(
            name,
            quantile(samples[measured, True], share),
            "ms",
            quantile(samples[measured, False], share),
            HERE + target,
        )
        for name, measured, share, target in rows
    ]


async def cell(sandbox: AsyncSandbox) -> float:
    """Milliseconds, as of the next two."""
    start = time.perf_counter()
    await sandbox.run_code("1")
    return (time.perf_counter() - start) * 1e3


async def first_byte(sandbox: AsyncSandbox) -> float:
    came: list[float] = []
    start = time.perf_counter()
    await sandbox.commands.run(["/bin/echo", "x"], on_stdout=lambda _: came.append(time.perf_counter()))
    return (came[0] - start) * 1e3


async def new_context(sandbox: AsyncSandbox) -> float:
    start = time.perf_counter()
    context = await sandbox.create_context()
    taken = (time.perf_counter() - start) * 1e3
    await sandbox.delete_context(context)
    return taken


async def floods(executor: PodExecutor, here: AsyncSandbox) -> list[Figure]:
    progress("in a pod: a flood, and one that is watched")
    there = executor.sandbox
    fast, native = await flood(there, FLOOD), await flood(here, FLOOD)
    executor.restart_peak()
    idle_bytes = executor.memory()
    await flood(there, WATCHED_FLOOD)
    growth = executor.peak_memory() - idle_bytes
    return [
        Figure("output of one stream from a pod", fast, "MB/s", native, f"{HERE}; ≥ 60 MB/s"),
        Figure("executor memory growth in a flood in a pod", growth / 1e6, "MB", note="flat: a few windows of 4 MB"),
    ]


async def flood(sandbox: AsyncSandbox, size: int) -> float:
    """MB/s."""
    start = time.perf_counter()
    handle = await sandbox.commands.run(f"head -c {size} /dev/zero", background=True, output_limit=2 * size)
    received = 0
    async for chunk in handle:
        received += len(chunk.data)
    assert received == size, received
    return size / 1e6 / (time.perf_counter() - start)


async def idle(host: PodHost) -> list[Figure]:
    progress("an idle pod, sentry and all")
    async with running(host) as executor:
        await executor.sandbox.run_code("1")
        await asyncio.sleep(SETTLED_SECONDS)
        early = pod_memory(executor.config["sandbox_uid"])
        await asyncio.sleep(IDLE_SECONDS)
        ours = pod_memory(executor.config["sandbox_uid"])
    uid, _ = await bare(host, "idle")
    await asyncio.sleep(SETTLED_SECONDS)
    theirs = pod_memory(uid)
    await host.do(host.cluster.api.delete, "Pod", "idle", host.namespace)
    note = f"its cgroup without file cache, {BARE}"
    return [
        Figure("pod right after its first cell", early / 1e6, "MB", theirs / 1e6, f"{note}; with a context ahead"),
        Figure("idle pod", ours / 1e6, "MB", theirs / 1e6, f"{note}; ≤ 150 MB"),
    ]


async def starts(host: PodHost) -> list[Figure]:
    progress("pods from their creation to the first answer")
    ours, own, theirs = [], [], []
    for number in range(STARTS):
        start = time.perf_counter()
        executor = await host.executor(session=None, signed=True)
        ours.append(time.perf_counter() - start)
        own.append(container_age(executor.container))
        await executor.stop()
        theirs.append((await bare(host, f"bare-{number}"))[1])
        await host.do(host.cluster.api.delete, "Pod", f"bare-{number}", host.namespace)
    return [
        Figure("pod created to its executor signed, p50", quantile(ours, 0.5), "s", quantile(theirs, 0.5), BARE),
        Figure(
            "container started to its executor signed, p50",
            quantile(own, 0.5),
            "s",
            note="from the start of its gofer on the node; ≤ 1.5 s",
        ),
    ]


async def bare(host: PodHost, name: str) -> tuple[str, float]:
    """A pod that only sleeps: its uid, and the seconds from its creation until it is seen running."""
    pod = host.pod(name, {"limits": {}}, restarts=False, workspace=None)
    container = pod["spec"]["containers"][0]
    container["command"] = SLEEP
    del container["readinessProbe"]
    start = time.perf_counter()
    uid = (await host.do(host.cluster.api.create, pod))["metadata"]["uid"]

    async def runs() -> bool:
        seen = await host.do(host.cluster.api.get, "Pod", name, host.namespace)
        return bool(seen["status"]["phase"] == "Running")

    await until(runs)
    return str(uid), time.perf_counter() - start
