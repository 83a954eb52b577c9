"""Cells one after the other at several paces: what a cell costs that meets the copy of its context.

Here, and in gVisor pods where a cluster is up.
"""

import asyncio
import time
from collections.abc import Iterator

import pods
import rollback
from cells import timed
from cluster.harness.layout import ClusterError
from contract.executor.local import LocalHost
from contract.executor.pod import PodHost
from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

ROUNDS = 3
# Seconds between two cells, and how many cells a round has.
PACES = ((0.0, 100), (0.03, 60), (0.1, 50), (1.0, 4))
CALLS = 30


def figures() -> Iterator[Figure]:
    yield from asyncio.run(here())
    try:
        cluster = pods.running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures in pods: {error}")
        return
    yield from asyncio.run(in_pods(PodHost(cluster)))


async def here() -> list[Figure]:
    host = LocalHost()
    await host.start()
    try:
        async with (
            rollback.executor(host, enabled=True) as on,
            rollback.executor(host, enabled=False) as off,
        ):
            return await measured(on, off)
    finally:
        await host.close()


async def in_pods(host: PodHost) -> list[Figure]:
    await host.start()
    try:
        async with (
            pods.running(host, rollback={"enabled": True}) as on,
            pods.running(host, rollback={"enabled": False}) as off,
        ):
            return await measured(on.sandbox, off.sandbox, " in a pod")
    finally:
        await host.close()


async def measured(on: AsyncSandbox, off: AsyncSandbox, where: str = "") -> list[Figure]:
    """With copies, without, and a bare call, by turns: all see the same noise."""
    progress(f"cells at several paces{where}")
    taken: dict[tuple[float, bool], list[float]] = {}
    bare: list[float] = []
    for sandbox in (on, off):
        await timed(lambda: sandbox.run_code("1"), 20)  # noqa: B023 it is called at once
    for _ in range(ROUNDS):
        for pause, count in PACES:
            for sandbox in (on, off):
                taken.setdefault((pause, sandbox is on), []).extend(await paced(sandbox, pause, count))
        bare += await timed(on.health, CALLS)
    found = [Figure(f"bare call{where}, p50", quantile(bare, 0.5), "ms", note="an RPC that only asks the spawner")]
    for pause, _ in PACES:
        with_copies, without = taken[pause, True], taken[pause, False]
        name = f"cell {pause:g} s after another{where}"
        note = "beside one without copies"
        found += [
            Figure(f"{name}, p{share * 100:g}", quantile(with_copies, share), "ms", quantile(without, share), note)
            for share in (0.5, 0.9, 0.99)
        ]
        median = quantile(with_copies, 0.5)
        found.append(Figure(f"{name}, p90 beside p50", quantile(with_copies, 0.9), "ms", median, "ratio ≤ 2"))
    return found


async def paced(sandbox: AsyncSandbox, pause: float, count: int) -> list[float]:
    """Milliseconds of cells, each of which begins so many seconds after the end of the one before."""
    samples = []
    for _ in range(count):
        await asyncio.sleep(pause)
        start = time.perf_counter()
        await sandbox.run_code("1")
        samples.append((time.perf_counter() - start) * 1e3)
    return samples
