"""What a claim costs while it is only its pod, and what its CodeSandbox adds: processor time and API writes.

Refill is held back. Processor time is that of all processes of the bed: the node's (API server, etcd, controllers and
pretended nodes), the fleet's and the operator's, without what they use at rest. SANDFLEET_SHORT is how many claims.
"""

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

from claims import Bench, a_bench, connected
from cluster.harness.layout import ClusterError
from cluster.harness.plan import recorded
from figures import Figure, progress
from pods import running_cluster
from processes import cpu_seconds, descendants
from reconciler import written

CLAIMS = int(os.environ.get("SANDFLEET_SHORT", "120"))
# All are younger than 5 s when they are counted.
CLAIMED_WITHIN = 3.5
YOUNG, WRITTEN, REST = 4.5, 30.0, 15.0


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures of short sessions: {error}")
        return
    with ExitStack() as stack:
        bench = stack.enter_context(a_bench(cluster, Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        with asyncio.Runner() as runner:
            part = measure(bench)
            while (found := runner.run(anext(part, None))) is not None:
                yield from found


async def measure(bench: Bench) -> AsyncIterator[list[Figure]]:
    async with connected(bench):
        bench.pool(replicas=CLAIMS, maxSize=CLAIMS)
        for part in (processor_time, short_sessions):
            await bench.filled(CLAIMS, 600)
            await asyncio.sleep(5)
            yield await part(bench)


async def processor_time(bench: Bench) -> list[Figure]:
    progress(f"short: the processor time of {CLAIMS} claims")
    spent = _cpu(bench)
    await asyncio.sleep(REST)
    at_rest = {who: (seconds - spent[who]) / REST for who, seconds in _cpu(bench).items()}
    before, begin = _cpu(bench), time.monotonic()
    names = await _claimed(bench, begin)
    found = []
    for what, until, target in (("without an object", YOUNG, 10), ("with one", WRITTEN, 20)):
        await asyncio.sleep(max(0.0, begin + until - time.monotonic()))
        passed, now = time.monotonic() - begin, _cpu(bench)
        each = {who: (now[who] - before[who] - at_rest[who] * passed) / CLAIMS * 1e3 for who in now}
        listed = ", ".join(f"{who} {ms:.1f}" for who, ms in each.items())
        there = len(bench.cluster.api.list("CodeSandbox", bench.work))
        note = f"{listed}; {there} objects after {passed:.1f} s; ≤ {target} ms"
        found.append(Figure(f"processor time of a claim {what}", sum(each.values()), "ms", note=note))
    for name in names:
        await bench.release(name)
    return found


async def short_sessions(bench: Bench) -> list[Figure]:
    progress(f"short: API writes of {CLAIMS} sessions that end young")
    before = written(bench.cluster)
    for name in await _claimed(bench, time.monotonic()):
        await bench.release(name)
    await bench.filled(CLAIMS)
    await asyncio.sleep(8)
    change: Counter[tuple[str, str]] = written(bench.cluster) - before
    said = {key: count for key, count in change.items() if count >= CLAIMS / 10}
    listed = ", ".join(f"{verb} {what} {count / CLAIMS:.1f}" for (verb, what), count in sorted(said.items()))
    total = sum(said.values()) / CLAIMS
    return [Figure("API writes of a session that ends young", total, "writes", note=f"{listed}; ≤ 4 of ours")]


async def _claimed(bench: Bench, begin: float) -> list[str]:
    """The names of claims that come by and by. Each caller sees its own sandbox."""
    chance = random.Random(1)
    dues = [begin + chance.random() * CLAIMED_WITHIN for _ in range(CLAIMS)]

    async def one(due: float) -> str:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        return (await bench.claim(due))[0]

    return list(await asyncio.gather(*map(one, dues)))


def _cpu(bench: Bench) -> dict[str, float]:
    """Seconds by process, of all that lives."""
    layout = bench.cluster.layout
    node = recorded(layout) if layout else None
    assert node is not None
    assert bench.operator is not None
    assert bench.operator.process is not None
    ours = {"fleet": bench.bed.fleet.pid, "operator": bench.operator.process.pid}
    return {"node": sum(map(cpu_seconds, descendants(node.pid)))} | {who: cpu_seconds(pid) for who, pid in ours.items()}
