"""Cells and contexts beside ipykernel."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator

import processes
from figures import Figure, progress, quantile, repeat
from jupyter_client.manager import start_new_kernel
from sandfleet import AsyncSandbox, Sandbox

RUNS = 300
STARTS = 15


def figures() -> Iterator[Figure]:
    progress("trivial cell, and ipykernel's")
    ours, bare, starts = asyncio.run(measure())
    with Sandbox.create() as sandbox:
        threaded = repeat(lambda: sandbox.run_code("1"), RUNS, warm_up=20)
    manager, client = start_new_kernel()
    try:
        theirs = repeat(lambda: client.execute_interactive("1", silent=False, output_hook=lambda _: None), RUNS)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    for share in (0.5, 0.99):
        name = f"trivial cell, p{share * 100:g}"
        yield Figure(
            name, quantile(ours, share), "ms", quantile(theirs, share), "beside ipykernel; p50 ≤ 2 ms and ≤ 0.25"
        )
    note = "beside an RPC that only asks the spawner whether it lives: what gRPC costs here"
    yield Figure("trivial cell over a bare call, p50", quantile(ours, 0.5), "ms", quantile(bare, 0.5), note)
    note = "beside ipykernel; the façade adds two changes of thread"
    yield Figure("trivial cell by the sync client, p50", quantile(threaded, 0.5), "ms", quantile(theirs, 0.5), note)
    progress("new context, and ipykernel's start")
    theirs = repeat(start_kernel, 5, warm_up=1)
    yield Figure(
        "new context, p50", quantile(starts, 0.5), "ms", quantile(theirs, 0.5), "beside an ipykernel; p50 ≤ 30 ms"
    )
    yield from asyncio.run(processor_time())
    yield from changes()
    yield from asyncio.run(watched())


async def measure() -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of cells, of bare calls and of new contexts."""
    async with await AsyncSandbox.create() as sandbox:
        await timed(lambda: sandbox.run_code("1"), 20)
        cells, calls = [], []
        # By turns, so that both see the same noise.
        for _ in range(10):
            cells += await timed(lambda: sandbox.run_code("1"), RUNS // 10)
            calls += await timed(sandbox.health, RUNS // 10)
        return cells, calls, await timed(sandbox.create_context, STARTS)


async def processor_time() -> list[Figure]:
    """Of one cell beside a bare call, by process: it tells versions apart on a machine that does other work as well."""
    progress("processor time of a trivial cell")
    async with await AsyncSandbox.create() as sandbox:
        await timed(lambda: sandbox.run_code("1"), 20)
        # Those that wait for the next sandbox are idle.
        executors = processes.executors()
        cells, calls = [], []
        for _ in range(5):
            cells.append(await spent(executors, lambda: sandbox.run_code("1")))
            calls.append(await spent(executors, sandbox.health))
    note = "beside a bare call; least of 5 runs, everything idle included"
    return [
        Figure(f"processor time of a trivial cell: {part}", min(one), "ms", min(other), note)
        for part, one, other in zip(
            ("executor", "context and spawner", "client"),
            zip(*cells, strict=True),
            zip(*calls, strict=True),
            strict=True,
        )
    ]


async def spent(executors: list[int], work: Callable[[], Awaitable[object]]) -> list[float]:
    """Milliseconds of processor time of one call: the executors', of what runs below them, and this process's."""

    def now() -> list[float]:
        below = {pid for each in executors for pid in processes.descendants(each)} - set(executors)
        groups = (executors, below, [os.getpid()])
        return [sum(map(processes.cpu_seconds, pids)) for pids in groups]

    before = now()
    await timed(work, RUNS)
    return [(after - first) * 1e3 / RUNS for first, after in zip(before, now(), strict=True)]


async def timed(work: Callable[[], Awaitable[object]], times: int) -> list[float]:
    samples = []
    for _ in range(times):
        start = time.perf_counter()
        await work()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


async def watched() -> list[Figure]:
    progress("trivial cell while its usage is watched every 0.1 s")
    async with await AsyncSandbox.create() as sandbox, await AsyncSandbox.create() as alone:
        begun = asyncio.Event()

        async def watch() -> None:
            async for _ in sandbox.watch_usage(0.1):
                begun.set()

        task = asyncio.create_task(watch())
        await begun.wait()
        one, other = [], []
        # By turns, so that both see the same noise.
        for _ in range(10):
            one += await timed(lambda: alone.run_code("1"), RUNS // 10)
            other += await timed(lambda: sandbox.run_code("1"), RUNS // 10)
        task.cancel()
        asked = await timed(sandbox.usage, RUNS // 10)
        bare = await timed(sandbox.health, RUNS // 10)
    note = "beside a sandbox without a watcher; ≤ 1.2"
    return [
        Figure("trivial cell, watched every 0.1 s, p50", quantile(other, 0.5), "ms", quantile(one, 0.5), note),
        Figure("usage of a sandbox, p50", quantile(asked, 0.5), "ms", quantile(bare, 0.5), "beside a bare call"),
    ]


def start_kernel() -> None:
    manager, client = start_new_kernel()
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def changes() -> Iterator[Figure]:
    progress("trivial cell with 10,000 files in the workspace")
    with Sandbox.create() as empty, Sandbox.create() as full:
        full.run_code(
            "import pathlib\n"
            "for i in range(100):\n"
            "    folder = pathlib.Path(f'd{i}'); folder.mkdir()\n"
            "    for j in range(100): (folder / f'f{j}').write_text('x')"
        )
        one, other = [], []
        # By turns, so that both see the same noise.
        for _ in range(10):
            one += repeat(lambda: empty.run_code("1"), RUNS // 10)
            other += repeat(lambda: full.run_code("1"), RUNS // 10)
    note = "beside an empty workspace; ≤ 1.2"
    yield Figure("trivial cell, 10,000 files, p50", quantile(other, 0.5), "ms", quantile(one, 0.5), note)
