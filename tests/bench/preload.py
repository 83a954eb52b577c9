"""The first `import pandas` of eight sandboxes at once, with and without `preload`."""

import asyncio
import re
import time
from collections.abc import Iterator

from figures import Figure, progress
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet._fleets.embedded import Options, Process

SANDBOXES = 8
MODULE = "pandas"
# Of the context itself: seconds for the import, and its memory that no other process shares, in MiB.
CELL = f"""
import re, time
begun = time.perf_counter()
import {MODULE}
taken = time.perf_counter() - begun
found = re.search(r"Private_Dirty: *(\\d+)", open("/proc/self/smaps_rollup").read())
print(taken, int(found[1]) / 1024)
"""


def figures() -> Iterator[Figure]:
    progress(f"the first import of {MODULE} in {SANDBOXES} sandboxes at once, with and without preload")
    plain = asyncio.run(measure(()))
    ahead = asyncio.run(measure((MODULE,)))
    note = f"the slowest of {SANDBOXES} at once, beside the same without preload; target ≤ 50 ms"
    yield Figure(f"first import of {MODULE}, preloaded", ahead["import"], "ms", plain["import"], note)
    note = "from the claims until all have imported it, sandboxes not warm; beside the same without preload"
    yield Figure(f"{SANDBOXES} sandboxes with {MODULE}, preloaded", ahead["all"], "ms", plain["all"], note)
    note = "of a context after the import, shared with no other process; beside the same without preload"
    yield Figure("private memory of a context, preloaded", ahead["private"], "MiB", plain["private"], note)


async def measure(modules: tuple[str, ...]) -> dict[str, float]:
    process = await asyncio.to_thread(Process, Options(pool_size=0, preload=modules))
    try:
        async with await AsyncFleet.connect(process.address) as fleet:
            begun = time.perf_counter()
            taken = await asyncio.gather(*(first(fleet) for _ in range(SANDBOXES)))
            return {
                "import": max(seconds for seconds, _ in taken) * 1e3,
                "private": max(private for _, private in taken),
                "all": (time.perf_counter() - begun) * 1e3,
            }
    finally:
        await asyncio.to_thread(process.stop)


async def first(fleet: AsyncFleet) -> tuple[float, float]:
    """Seconds of the import, and the context's private memory (MiB)."""
    async with await AsyncSandbox.create(fleet=fleet, max_wait=300) as sandbox:
        said = (await sandbox.run_code(CELL, timeout=300)).raise_for_error().logs.stdout
    seconds, private = map(float, re.findall(r"\S+", said))
    return seconds, private
