"""What a claim costs while it is only its pod, and with its CodeSandbox written at once: processor time and API writes.

Refill is held back. Processor time is that of all processes of the bed: the node's (API server, etcd, controllers and
pretended nodes), the fleet's and the operator's, without what they use at rest. SANDFLEET_SHORT is how many claims.
"""

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
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
CLAIMED_WITHIN = 3.5
# Seconds of rest before the claims, and after which nothing is left to do for them.
REST, CALM = 10.0, 10.0
# What is measured, the seconds for which its claims are young, and the target in milliseconds.
KINDS = (("without an object", 3600.0, 10), ("with one", 0.0, 20))


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no cluster is up."""
    try:
        cluster = running_cluster()
    except ClusterError as error:
        progress(f"skipped the figures of short sessions: {error}")
        return
    for what, young, target in KINDS:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            bench = stack.enter_context(a_bench(cluster, folder, {"youngClaimSeconds": young}))
            yield from asyncio.run(measure(bench, what, target))


async def measure(bench: Bench, what: str, target: int) -> list[Figure]:
    async with connected(bench):
        bench.pool(replicas=CLAIMS, maxSize=CLAIMS)
        found = []
        for part in (processor_time, short_sessions):
            await bench.filled(CLAIMS, 600)
            await asyncio.sleep(5)
            found.append(await part(bench, what, target))
        return found


async def processor_time(bench: Bench, what: str, target: int) -> Figure:
    progress(f"short: the processor time of {CLAIMS} claims {what}")
    spent = _cpu(bench)
    await asyncio.sleep(REST)
    at_rest = {who: (seconds - spent[who]) / REST for who, seconds in _cpu(bench).items()}
    before, begin = _cpu(bench), time.monotonic()
    names = await _claimed(bench, begin)
    await asyncio.sleep(CALM)
    passed, now = time.monotonic() - begin, _cpu(bench)
    each = {who: (now[who] - before[who] - at_rest[who] * passed) / CLAIMS * 1e3 for who in now}
    listed = ", ".join(f"{who} {ms:.1f}" for who, ms in each.items())
    there = len(bench.cluster.api.list("CodeSandbox", bench.work))
    for name in names:
        await bench.release(name)
    note = f"{listed}; {there} objects; ≤ {target} ms"
    return Figure(f"processor time of a claim {what}", sum(each.values()), "ms", note=note)


async def short_sessions(bench: Bench, what: str, _target: int) -> Figure:
    progress(f"short: API writes of {CLAIMS} short sessions {what}")
    before = written(bench.cluster)
    for name in await _claimed(bench, time.monotonic()):
        await bench.release(name)
    await bench.filled(CLAIMS)
    await asyncio.sleep(8)
    change: Counter[tuple[str, str]] = written(bench.cluster) - before
    said = {key: count for key, count in change.items() if count >= CLAIMS / 10}
    listed = ", ".join(f"{verb} {what} {count / CLAIMS:.1f}" for (verb, what), count in sorted(said.items()))
    total = sum(said.values()) / CLAIMS
    return Figure(f"API writes of a short session {what}", total, "writes", note=f"{listed}; young: ≤ 4 of ours")


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
