"""Sessions that are parked in a snapshot, resumed and forked, on one machine with the store in a folder.

Beside the same with the volume, in the same run. SANDFLEET_BENCH_SESSION_MB is the data of a session (10; 1000 takes
minutes). SANDFLEET_BENCH_STREAM_MIB is what is saved while claims are measured and the snapshotter's memory is read
(1024; 10240 for the issue's figure).
"""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from figures import Figure, progress, quantile

MB = int(os.environ.get("SANDFLEET_BENCH_SESSION_MB", "10"))
STREAM_MIB = int(os.environ.get("SANDFLEET_BENCH_STREAM_MIB", "1024"))
TIMES, CLAIMS, COPIES = 12, 60, 10
WORKER = "sandfleet_operator.snapshots.worker"
# Half in a variable, half in a file; nothing of it compresses.
MAKE = f"import os; x = os.urandom({MB * 500_000}); _ = open('data', 'wb').write(os.urandom({MB * 500_000}))"
FILL = f"""
import os
for number in range({STREAM_MIB} // 16):
    with open(f'large-{{number}}', 'wb') as file:
        file.write(os.urandom(16 << 20))
"""


def figures() -> Iterator[Figure]:
    from sandfleet._fleets.embedded import Options
    from support.client.served import served_fleet

    with tempfile.TemporaryDirectory() as folder:
        os.environ["SANDFLEET_SNAPSHOTS"] = f"file://{folder}/store"
        os.environ["SANDFLEET_SNAPSHOT_KEYS"] = f"{folder}/keys.json"
        progress(f"sessions of {MB} MB, and {STREAM_MIB} MiB that are saved meanwhile")
        with served_fleet(Options(pool_size=4)) as process, asyncio.Runner() as runner:
            part = measured(process)
            while (found := runner.run(anext(part, None))) is not None:
                yield from found


async def measured(process: Any) -> AsyncIterator[list[Figure]]:
    from sandfleet._fleets.fleet import AsyncFleet

    async with await AsyncFleet.connect(process.address) as fleet:
        volume = [await parked(fleet, "volume") for _ in range(TIMES)]
        snapshot = [await parked(fleet, "snapshot") for _ in range(TIMES)]
        yield [*percentiles(snapshot, volume)]
        yield [await forked(fleet)]
        yield await streamed(fleet, process.pid)


def percentiles(ours: list[list[float]], theirs: list[list[float]]) -> Iterator[Figure]:
    for at, name in enumerate(("suspend into a snapshot", "resume from it", "from the resume to the first cell")):
        mine, other = [one[at] for one in ours], [one[at] for one in theirs]
        for word, share in (("p50", 0.5), ("p99", 0.99)):
            note = f"of {TIMES}, beside the volume" if word == "p50" else ""
            yield Figure(f"{name}, {MB} MB, {word}", quantile(mine, share), "ms", quantile(other, share), note)


async def parked(fleet: Any, to: str) -> list[float]:
    """Milliseconds: the suspension, the resume, and the resume with a first cell."""
    from sandfleet.sandbox import AsyncSandbox

    sandbox = await AsyncSandbox.create(fleet=fleet, timeout=600.0)
    await sandbox.run_code(MAKE)
    start = time.perf_counter()
    await sandbox.suspend(to=to)
    asleep = time.perf_counter()
    again = await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet)
    back = time.perf_counter()
    assert (await again.run_code("len(x)")).text == str(MB * 500_000)
    ran = time.perf_counter()
    await again.kill()
    await sandbox.close()
    return [(asleep - start) * 1e3, (back - asleep) * 1e3, (ran - asleep) * 1e3]


async def forked(fleet: Any) -> Figure:
    from sandfleet.sandbox import AsyncSandbox

    async with AsyncSandbox.create(fleet=fleet, timeout=600.0) as sandbox:
        await sandbox.run_code(MAKE)
        start = time.perf_counter()
        (one,) = await sandbox.fork(1)
        single = time.perf_counter() - start
        await one.kill()
        start = time.perf_counter()
        copies = await sandbox.fork(COPIES)
        took = time.perf_counter() - start
        await asyncio.gather(*(copy.kill() for copy in copies))
    return Figure(f"fork of {COPIES}, {MB} MB each", took * 1e3, "ms", single * 1e3, "beside a fork of one")


async def streamed(fleet: Any, pid: int) -> list[Figure]:
    """Claims while much is saved, and what the snapshotter has had of memory."""
    from sandfleet.sandbox import AsyncSandbox

    async with AsyncSandbox.create(fleet=fleet, timeout=3600.0) as large:
        await large.run_code(FILL, timeout=3000.0)
        quiet = [await claimed(fleet) for _ in range(CLAIMS)]
        small = peak(worker_of(pid))
        saving = asyncio.ensure_future(large.snapshot("large"))
        busy = []
        while not saving.done() or len(busy) < CLAIMS // 4:
            busy.append(await claimed(fleet))
        await saving
        memory = peak(worker_of(pid))
        await fleet.snapshots.delete("large")
    note = f"of {len(busy)} claims while {STREAM_MIB} MiB are saved, beside {CLAIMS} at rest; ≤ 1.3"
    return [
        Figure("claim while data stream, p99", quantile(busy, 0.99), "ms", quantile(quiet, 0.99), note),
        Figure("claim while data stream, p50", quantile(busy, 0.5), "ms", quantile(quiet, 0.5), ""),
        Figure(f"snapshotter's memory, {STREAM_MIB} MiB", memory, "MiB", small, f"beside sessions of {MB} MB: flat"),
    ]


async def claimed(fleet: Any) -> float:
    """Milliseconds until a claim has its sandbox, which then ends."""
    from sandfleet.sandbox import AsyncSandbox

    start = time.perf_counter()
    sandbox = await AsyncSandbox.create(fleet=fleet)
    took = (time.perf_counter() - start) * 1e3
    await sandbox.kill()
    return took


def worker_of(pid: int) -> int:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(one) for one in found if WORKER in Path(f"/proc/{one}/cmdline").read_text())


def peak(pid: int) -> float:
    """MiB of memory that a process has had at most."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024
