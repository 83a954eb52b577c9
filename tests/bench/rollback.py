"""Copies of contexts: what they cost, and what a fork saves. Local here; `pods` runs `measured` in a pod too."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.executor.local import LocalHost

CELLS = 60
TOUCHES = 10
FORKS = 10
HEAP = "heap = bytearray(b'x' * (200 << 20))"
# One byte of each page: what copy-on-write pays for.
TOUCH = "heap[::4096] = b'y' * len(heap[::4096])"


def figures() -> Iterator[Figure]:
    yield from asyncio.run(locally())


async def locally() -> list[Figure]:
    host = LocalHost()
    await host.start()
    try:
        async with executor(host, enabled=True) as with_copies, executor(host, enabled=False) as without:
            return await measured(with_copies, without)
    finally:
        await host.close()


@asynccontextmanager
async def executor(host: LocalHost, *, enabled: bool) -> AsyncIterator[AsyncSandbox]:
    begun = await host.executor(rollback={"enabled": enabled})
    try:
        yield begun.sandbox
    finally:
        await begun.stop()


async def measured(on: AsyncSandbox, off: AsyncSandbox, where: str = "") -> list[Figure]:
    """The same with copies and without, by turns."""
    progress(f"cells with copies of their context{where}")
    idle_on, idle_off, quick_on, quick_off = [], [], [], []
    for _ in range(3):
        for sandbox, idle, quick in ((on, idle_on, quick_on), (off, idle_off, quick_off)):
            idle += [await after_a_pause(sandbox, "1") for _ in range(CELLS // 3)]
            quick += [await timed(sandbox, "1") for _ in range(CELLS // 3)]
    progress(f"a heap of 200 MB with copies{where}")
    touch_on, touch_off = [], []
    for sandbox in (on, off):
        await sandbox.run_code(HEAP)
    for _ in range(TOUCHES):
        touch_on.append(await after_a_pause(on, TOUCH))
        touch_off.append(await after_a_pause(off, TOUCH))
    progress(f"forks of a heap of 200 MB{where}")
    forks, fresh = [], []
    for _ in range(FORKS):
        start = time.perf_counter()
        (fork,) = await on.fork_context()
        forks.append((time.perf_counter() - start) * 1e3)
        await on.delete_context(fork)
        start = time.perf_counter()
        made = await on.create_context()
        await on.run_code(HEAP, context=made)
        fresh.append((time.perf_counter() - start) * 1e3)
        await on.delete_context(made)
    rows = (
        ("cell after a pause, copied", idle_on, idle_off, "beside one without copies"),
        ("cell right after a cell, copied", quick_on, quick_off, "beside one without copies"),
        ("cell that writes to 200 MB, copied", touch_on, touch_off, "beside one without copies: copy-on-write"),
        ("fork of a context with 200 MB", forks, fresh, "beside a fresh context that makes the same heap"),
    )
    return [
        Figure(f"{name}{where}, p50", quantile(ours, 0.5), "ms", quantile(theirs, 0.5), note)
        for name, ours, theirs, note in rows
    ]


async def after_a_pause(sandbox: AsyncSandbox, code: str) -> float:
    """Milliseconds of a cell that comes when the copy of the one before is there."""
    await asyncio.sleep(0.15)
    return await timed(sandbox, code)


async def timed(sandbox: AsyncSandbox, code: str) -> float:
    start = time.perf_counter()
    await sandbox.run_code(code)
    return (time.perf_counter() - start) * 1e3
