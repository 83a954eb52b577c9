"""Sessions in gVisor pods that are parked in a snapshot, resumed and forked; the store is an S3 server of this machine.

Beside the same with the volume, in the same run. SANDFLEET_BENCH_LARGE_MB is the workspace of a large session (1000),
SANDFLEET_BENCH_STREAM_MIB what is saved while claims are measured and the snapshotter's memory is read (1024; 10240 for
the issue's figure, which needs twice as much disk).
"""

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from figures import Figure, progress, quantile
from pods import running_cluster

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.harness.layout import ClusterError
from cluster.operators import install_kinds
from cluster.snapshot_bed import SnapshotBed, connected, s3_server, snapshot_bed
from sandfleet import AsyncFleet, AsyncSandbox

SMALL_MB = int(os.environ.get("SANDFLEET_BENCH_SESSION_MB", "10"))
LARGE_MB = int(os.environ.get("SANDFLEET_BENCH_LARGE_MB", "1000"))
STREAM_MIB = int(os.environ.get("SANDFLEET_BENCH_STREAM_MIB", "1024"))
# Sessions of each size, claims, and copies.
TIMES, LARGE_TIMES, CLAIMS, COPIES = 12, 2, 40, 10
POOL = {"replicas": 4, "maxSize": 24}
# Between two claims, in seconds: the next pod of the pool, of 3.6 s of processor time, begins meanwhile on two cores.
# With less the pool runs dry, and it is its refill that is measured.
APART = 5.0
# What the chart requests for the snapshotter, as the kubelet writes it. The S3 server stands for another machine.
SHARES = 102
PATIENCE = 400.0
# Nothing of it compresses.
MAKE = """
import os
x = os.urandom(1_000_000)
for number in range({mb} // 10):
    with open(f'data-{{number}}', 'wb') as file:
        file.write(os.urandom(10_000_000 if number else 9_000_000))
"""
READ = """
import glob, time
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    for path in glob.glob('data-*'):
        with open(path, 'rb') as file:
            while time.monotonic() < end and file.read(1 << 18):
                pass
"""
SEEN = "len(x), sum(entry.stat().st_size for entry in os.scandir('.') if entry.name.startswith('data-'))"


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures of sessions that are parked on a cluster: {error}")
        return
    install_kinds(cluster.api)
    workspace = {"size": f"{max(1, 2 * max(LARGE_MB, STREAM_MIB) // 1000)}Gi"}
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3)]
        server = stack.enter_context(s3_server(folders[0]))
        bed = stack.enter_context(snapshot_bed(cluster, server, folders[1], POOL, workspace=workspace))
        for name, pid in (("snapshotter", bed.snapshotter.pid), ("s3", server.pid)):
            stack.enter_context(cpu_shares(f"sandfleet-bench-{name}", pid))
        with asyncio.Runner() as runner:
            part = measured(bed, folders[2])
            while (found := runner.run(anext(part, None))) is not None:
                yield from found


async def measured(bed: SnapshotBed, folder: Path) -> AsyncIterator[list[Figure]]:
    async with connected(bed, folder) as fleet:
        for mb, times in ((SMALL_MB, TIMES), (LARGE_MB, LARGE_TIMES)):
            progress(f"parked on a cluster: {times} sessions of {mb} MB")
            volume = [await parked(bed, fleet, mb, "volume") for _ in range(times)]
            snapshot = [await parked(bed, fleet, mb, "snapshot") for _ in range(times)]
            yield [*percentiles(snapshot, volume, mb)]
            if mb == SMALL_MB:
                small = peak(bed)
                yield [await forked(fleet)]
        yield await streamed(fleet, bed, small)


def percentiles(ours: list[list[float]], theirs: list[list[float]], mb: int) -> Iterator[Figure]:
    names = ("suspend into a snapshot", "resume from it", "from the resume to the first cell")
    for at, name in enumerate(names):
        mine, other = [one[at] for one in ours], [one[at] for one in theirs]
        for word, share in (("p50", 0.5), ("p99", 0.99)):
            note = f"of {len(ours)}, beside the volume" if word == "p50" else ""
            value, baseline = quantile(mine, share), quantile(other, share)
            yield Figure(f"{name} in a pod, {mb} MB, {word}", value, "ms", baseline, note)


async def parked(bed: SnapshotBed, fleet: AsyncFleet, mb: int, to: Any) -> list[float]:
    """Milliseconds: the suspension, the resume, and the resume with a first cell.

    The session is resumed as after a night: nothing is left of its last pod, and its pool has a warm one.
    """
    sandbox = await begun(fleet)
    await made(sandbox, mb)
    start = time.perf_counter()
    await sandbox.suspend(to=to)
    slept = time.perf_counter()
    await asyncio.to_thread(settled, bed, sandbox.sandbox_id)
    asleep = time.perf_counter()
    again = await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet, max_wait=PATIENCE)
    back = time.perf_counter()
    said = (await again.run_code(SEEN)).text
    ran = time.perf_counter()
    assert said == str((1_000_000, mb // 10 * 10_000_000 - 1_000_000)), said
    await again.kill()
    await sandbox.close()
    return [(slept - start) * 1e3, (back - asleep) * 1e3, (ran - asleep) * 1e3]


def settled(bed: SnapshotBed, sandbox_id: str) -> None:
    api, deadline = bed.cluster.api, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        said = api.get("CodeSandbox", sandbox_id.partition("/")[2], bed.work)["status"]
        is_left = said.get("podName") or (said.get("restoresFrom") and said.get("workspaceClaimName"))
        if not is_left and api.get("SandboxPool", "fast", bed.work)["status"].get("warm"):
            return
        time.sleep(0.5)
    raise TimeoutError(f"cannot resume {sandbox_id}: its last pod or volume has not gone")


async def forked(fleet: AsyncFleet) -> Figure:
    progress(f"parked on a cluster: a fork of {COPIES}")
    sandbox = await begun(fleet)
    await made(sandbox, SMALL_MB)
    start = time.perf_counter()
    (one,) = await sandbox.fork(1)
    single = time.perf_counter() - start
    await one.kill()
    start = time.perf_counter()
    copies = await sandbox.fork(COPIES)
    took = time.perf_counter() - start
    await asyncio.gather(*(copy.kill() for copy in (sandbox, *copies)))
    name = f"fork of {COPIES} in pods, {SMALL_MB} MB each"
    return Figure(name, took * 1e3, "ms", single * 1e3, "beside a fork of one")


async def streamed(fleet: AsyncFleet, bed: SnapshotBed, small: float) -> list[Figure]:
    """Claims while much is saved, and what the snapshotter has had of memory."""
    large = await begun(fleet)
    progress(f"parked on a cluster: {STREAM_MIB} MiB are made")
    await made(large, STREAM_MIB * 1024 * 1024 // 10_000_000 * 10)
    quiet = [await claimed(fleet) for _ in range(CLAIMS)]
    progress(f"parked on a cluster: {STREAM_MIB} MiB are saved")
    start = time.perf_counter()
    busy = await claims_beside(fleet, large.snapshot("large"))
    took, memory = time.perf_counter() - start, peak(bed)
    progress("parked on a cluster: the same sandbox reads its files")
    reading = await claims_beside(fleet, large.run_code(READ.format(seconds=took), timeout=took + 60.0))
    await fleet.snapshots.delete("large")
    await large.kill()
    note = f"of {len(busy)} claims while {STREAM_MIB} MiB are saved in {took:.0f} s, beside {CLAIMS} at rest; ≤ 1.3"
    return [
        Figure("claim of a pod while data stream, p99", quantile(busy, 0.99), "ms", quantile(quiet, 0.99), note),
        Figure("claim of a pod while data stream, p50", quantile(busy, 0.5), "ms", quantile(quiet, 0.5), ""),
        *(
            Figure(
                f"claim of a pod while a cell reads files, p{share * 100:.0f}",
                quantile(reading, share),
                "ms",
                quantile(quiet, share),
                "what one busy sandbox alone costs a claim on this machine",
            )
            for share in (0.99, 0.5)
        ),
        Figure(
            f"memory of a cluster's snapshotter, {STREAM_MIB} MiB",
            memory,
            "MiB",
            small,
            f"at most, beside sessions of {SMALL_MB} MB: flat",
        ),
    ]


async def claims_beside(fleet: AsyncFleet, work: Coroutine[Any, Any, object]) -> list[float]:
    """Milliseconds of each claim while the work goes on."""
    working, took = asyncio.ensure_future(work), []
    while not working.done():
        took.append(await claimed(fleet))
    await working
    return took


async def claimed(fleet: AsyncFleet) -> float:
    """Milliseconds until a claim has its sandbox, which then ends."""
    await asyncio.sleep(APART)
    start = time.perf_counter()
    sandbox = await begun(fleet)
    took = (time.perf_counter() - start) * 1e3
    await sandbox.kill()
    return took


async def begun(fleet: AsyncFleet) -> AsyncSandbox:
    return await AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=PATIENCE, timeout=3600.0)


async def made(sandbox: AsyncSandbox, mb: int) -> None:
    done = await sandbox.run_code(MAKE.format(mb=mb), timeout=3000.0)
    assert done.outcome == "ok", done


@contextmanager
def cpu_shares(name: str, pid: int) -> Iterator[None]:
    """The process in a cgroup (version 1) of its own, as in a pod; where there is none, where it was."""
    top = Path("/sys/fs/cgroup/cpu")
    if not top.is_dir():
        progress(f"{name}: no cgroups of version 1 here, so its processor time is not weighted")
        yield
        return
    own = top / name
    own.mkdir(exist_ok=True)
    (own / "cpu.shares").write_text(str(SHARES))
    (own / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        for member in (own / "cgroup.procs").read_text().split():
            (top / "cgroup.procs").write_text(member)
        own.rmdir()


def peak(bed: SnapshotBed) -> float:
    """MiB of memory that the snapshotter has had at most."""
    status = Path(f"/proc/{bed.snapshotter.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1024
