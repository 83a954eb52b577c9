"""Thousands of sandboxes: how long fleet and operator keep their event loops from everything else, and their memory.

SANDFLEET_SCALE is the number of sandboxes (5,000); there are twice as many pods. The API server is in memory and gives
JSON; each part runs in a process of its own. Times are the loop thread's processor time, measured by the loop itself,
so that other work on the machine does not count. Beside each figure stands the same with a fifth of the sandboxes: a
ratio of 1 is one that does not grow, 5 one that grows as they do.
"""

import asyncio
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from figures import Figure, progress

sys.path.insert(0, str(Path(__file__).parents[1]))

import crowd
import queues
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.kinds.queue import QueueSpec, Quota
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_POOL, SANDBOX_QUEUE, SANDBOX_TEMPLATE, Json, Kind
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.cluster.clock import SteadyClock, wall_clock
from sandfleet_operator.cluster.reflector import TURN
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.cluster.tasks import in_turns, shorten_collections
from sandfleet_operator.fleet.driver import STANDINGS_PART
from sandfleet_operator.fleet.kubernetes.api import KubernetesFleetApi
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.plan.sandbox.observed import Contact
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from sandfleet_operator.reconciler.operator import Operator
from sandfleet_operator.telemetry.loop_times import LoopTimes
from support.kubernetes.world import LEASE_REF, SETTINGS, TEAM, Pretended
from support.operator import builders

SCALE = int(os.environ.get("SANDFLEET_SCALE", "5000"))
WATCHERS, CHANGES = 50, 200
# Seconds for which a fleet is left alone.
REST = 4.0
FIFTH, CLAIMS = 5, 100
PAGE = 100
TARGET = "no callback above 20 ms"
MIB = 1 << 20


def figures() -> Iterator[Figure]:
    for part in (_of_the_fleet, _of_the_operator, _of_the_scheduler):
        few, many = (_alone(part, number) for number in (SCALE // FIFTH, SCALE))
        before = {one.name: one.value for one in few}
        yield from (replace(one, baseline=before.get(one.name)) for one in many)


def _alone(part: Callable[[int], list[Figure]], many: int) -> list[Figure]:
    """In a process of its own."""
    progress(f"{part.__name__.removeprefix('_of_the_')} with {many} sandboxes")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(part, (many,))


class Measured:
    """One loop and what it was kept busy with. `many`: the sandboxes."""

    def __init__(self, many: int) -> None:
        self.many = many
        self.times = LoopTimes(time.thread_time)
        self.found: list[Figure] = []

    def run(self, work: Callable[["Measured"], Awaitable[None]]) -> list[Figure]:
        with asyncio.Runner(loop_factory=self.times.new_loop) as runner:
            runner.run(_once(work, self))
        return self.found

    async def longest(self, name: str, work: Awaitable[object], note: str = TARGET) -> float:
        """Yields the longest stretch of the work in milliseconds; returns its seconds in all."""
        await asyncio.sleep(0)
        self.times.take()
        await work
        longest, total = self.times.take()
        self.say(f"{name}: longest stretch of the loop", longest * 1e3, "ms", note)
        return total

    def say(self, name: str, value: float, unit: str, note: str = "") -> None:
        self.found.append(Figure(name, value, unit, note=note))


async def _once(work: Callable[[Measured], Awaitable[None]], measured: Measured) -> None:
    await work(measured)


# The fleet.


def _of_the_fleet(many: int) -> list[Figure]:
    return Measured(many).run(_fleet)


async def _fleet(measured: Measured) -> None:
    shorten_collections()
    served = await asyncio.to_thread(crowd.fleets, measured.many)
    fleet = KubernetesFleet(
        served,
        SETTINGS,
        lambda _: Pretended(),
        lease=LEASE_REF,
        leading=lambda: 2,
        clock=SteadyClock(),
        wall_clock=wall_clock,
        listens=lambda pod: pod.ready,
    )
    before = _settled_memory()
    following = asyncio.create_task(fleet.follow())
    await measured.longest("fleet's first list", fleet.numbers_seen())
    measured.say(
        "fleet's memory for 1,000 pods, first list",
        (_settled_memory() - before) / MIB / (2 * measured.many / 1000),
        "MiB",
        "≤ 8; with half as many CodeSandboxes",
    )
    leading = asyncio.create_task(fleet.lead(2))

    async def taken_over() -> None:
        await _until(lambda: fleet.serving)
        # The first rounds after it look at everything, too.
        await asyncio.sleep(1)

    await measured.longest("fleet's takeover", taken_over())
    measured.say(
        "fleet's memory for 1,000 pods, serving",
        (_settled_memory() - before) / MIB / (2 * measured.many / 1000),
        "MiB",
        "≤ 8; with half as many CodeSandboxes",
    )
    await asyncio.sleep(REST)
    total = await measured.longest("fleet at rest", asyncio.sleep(REST))
    measured.say("fleet at rest: processor time", total / REST * 1e3, "ms/s")
    await _claims(measured, fleet)
    await _callers(measured, fleet, served)
    await _edits(measured, fleet, served)
    await measured.longest("fleet's resync", fleet._reflectors.refresh())
    measured.say("fleet's memory at its peak", _peak() / MIB, "MiB", "the chart's limit is 1,024")
    for task in (leading, following):
        task.cancel()
    await asyncio.gather(leading, following, return_exceptions=True)


async def _claims(measured: Measured, fleet: KubernetesFleet) -> None:
    """One after the other, each released at once, beside all the sandboxes at rest. There is no TLS, HTTP or gRPC."""
    pool = f"{TEAM}/fast"

    async def claims() -> None:
        for number in range(CLAIMS):
            watch = fleet.fleet.claim(Claim(key=RequestKey("alice", f"bench-{number}", pool), pool=pool, max_wait=60.0))
            while isinstance(news := await watch.next(), Queued):
                pass
            watch.leave()
            fleet.note_session(news)
            await fleet.fleet.release(news.sandbox_id)

    total = await measured.longest("claims and releases", claims())
    measured.say("a claim and its release: processor time", total / CLAIMS * 1e3, "ms", "a ratio of 1.3 at most")


async def _callers(measured: Measured, fleet: KubernetesFleet, served: crowd.Crowd) -> None:
    api = KubernetesFleetApi(served, _Allowed(), None, fleet, None)  # type: ignore[arg-type] # they give no access
    caller = Caller("alice", "", (), {})

    async def page(token: str = "") -> str:
        request = fleet_pb2.ListRequest(namespace=TEAM, page_size=PAGE, page_token=token)
        answer = await api.list(caller, request)
        answer.SerializeToString()
        return answer.next_page_token

    async def watch(messages: int) -> None:
        seen = 0
        async for response in await api.watch(caller, fleet_pb2.WatchRequest(namespace=TEAM)):
            response.SerializeToString()
            seen += not response.synced
            begun.append(response.synced)
            if seen >= messages:
                return

    begun: list[bool] = []
    total = await measured.longest("a first Watch", watch(measured.many))
    measured.say("a first Watch: processor time", total * 1e3, "ms")
    total = await measured.longest("another Watch", watch(measured.many))
    measured.say("another Watch: processor time", total * 1e3, "ms")
    following = await page()
    total = await measured.longest("a List page", page(following))
    measured.say("a List page: processor time", total * 1e3, "ms", f"of {PAGE} sandboxes")

    async def pages() -> None:
        following = await page()
        while following:
            following = await page(following)

    total = await measured.longest("all pages of a List", pages())
    measured.say("all pages of a List: processor time", total / measured.many * 1e6, "µs", "for each sandbox")
    begun.clear()
    readers = [asyncio.create_task(watch(measured.many + CHANGES)) for _ in range(WATCHERS)]
    await _until(lambda: sum(begun) == WATCHERS)
    made = served.some(CODE_SANDBOX, CHANGES)
    for one in made:
        one["status"]["restarts"] = 1

    async def changes() -> None:
        # An API server sends them one after the other, too.
        async for one in in_turns(made, TURN):
            served.add(CODE_SANDBOX, one)
        await asyncio.gather(*readers)

    # The change itself, as an API server would send it.
    total = await measured.longest(f"{CHANGES} changes to {WATCHERS} watchers", changes())
    measured.say(
        f"{CHANGES} changes to {WATCHERS} watchers: processor time", total * 1e3, "ms", "gRPC's own part is not in it"
    )


async def _edits(measured: Measured, fleet: KubernetesFleet, served: crowd.Crowd) -> None:
    """What one write of a tenant makes the fleet do for all its sandboxes."""
    (template,) = served.some(SANDBOX_TEMPLATE, 1)
    edited = {**template, "metadata": {**template["metadata"], "labels": {"edited": "yes"}, "generation": 9}}
    queue = {"apiVersion": template["apiVersion"], "kind": SANDBOX_QUEUE.kind, "spec": {}}
    queue["metadata"] = {"name": "new", "namespace": TEAM, "uid": "new", "generation": 1}
    (pool,) = served.some(SANDBOX_POOL, 1)
    empty = {**pool, "spec": {**pool["spec"], "replicas": 0}}
    edits = (
        ("a template is edited", SANDBOX_TEMPLATE, edited),
        ("a queue is made", SANDBOX_QUEUE, queue),
        ("a pool of as many warm sandboxes is emptied", SANDBOX_POOL, empty),
    )
    for name, kind, obj in edits:
        await measured.longest(name, _shown(served, kind, obj))


async def _shown(served: crowd.Crowd, kind: Kind, *objects: Json) -> None:
    """Changes that a watch shows together, and what they set off."""
    for obj in objects:
        served.add(kind, obj)
    await asyncio.sleep(REST)


class _Allowed:
    async def authorize(self, *_: object, **__: object) -> None:
        pass


# The operator.


def _of_the_operator(many: int) -> list[Figure]:
    return Measured(many).run(_operator)


async def _operator(measured: Measured) -> None:
    shorten_collections()
    served, now = await asyncio.to_thread(crowd.operators, measured.many)

    async def greet(_sandbox: object, action: object) -> Contact:
        return Contact(pod_uid=action.pod_uid, at=now, runtime="gvisor")  # type: ignore[attr-defined]

    async def ask(_whom: object) -> tuple[object, ...]:
        return ()

    operator = Operator(
        served, builders.SETTINGS, greet=greet, ask=ask, keys=lambda: "{}", leading=lambda: 1, clock=lambda: now
    )
    before = _settled_memory()
    await measured.longest("operator's first list", operator.resync())
    measured.say(
        "operator's memory for 1,000 pods",
        (_settled_memory() - before) / MIB / (measured.many / 1000),
        "MiB",
        "≤ 8; with as many CodeSandboxes and volume claims",
    )
    working = asyncio.create_task(operator.queue.run())
    await measured.longest("operator's first look at each", _until(lambda: not len(operator.queue)))
    await asyncio.sleep(0.5)
    await _until(lambda: not len(operator.queue))
    written = served.writes

    async def look() -> None:
        async for one in in_turns(operator.store.all(CODE_SANDBOX), TURN):
            operator._wake(CODE_SANDBOX, one)
        await _until(lambda: not len(operator.queue))

    total = await measured.longest("operator's look at each, at rest", look())
    measured.say("operator's look at rest", total / measured.many * 1e3, "ms", "≤ 0.3")
    measured.say("writes of a look at rest", (served.writes - written) / measured.many, "writes", "0")
    await measured.longest("operator's resync", operator.resync())
    measured.say("operator's memory at its peak", _peak() / MIB, "MiB", "the chart's limit is 512")
    working.cancel()
    await operator.close()


# The scheduler.


def _of_the_scheduler(many: int) -> list[Figure]:
    """Claims that wait: in ten queues, in one queue that each has another holder in, and on earlier workspaces."""
    names, quota = [f"q{number}" for number in range(10)], QueueSpec(nominal=Quota(sandboxes=1))
    usual = queues.a_world(dict.fromkeys(names, quota), warm=10, session=1e9)
    queues.fill(usual, names, many)
    holders, returning = (queues.a_world({"q": quota}, warm=10, session=1e9) for _ in range(2))
    for number in range(many):
        holders.claim("q", f"h{number}")
    returning.scheduler.inventory.kept_workspaces |= {f"w{number}" for number in range(many)}
    for number in range(64):
        returning.claim("q", f"h{number}")
    for number in range(many):
        returning.claim("q", f"h{number % 64}", workspace=f"w{number}")
    worlds = (("", usual), (" of as many holders", holders), (" on earlier workspaces", returning))
    found = [one for what, world in worlds for one in _standings(f"standings of waiting claims{what}", world)]
    warm = queues.a_world({}, warm=many, session=1e9)
    began = time.thread_time()
    warm.scheduler.tick(warm.now)
    return [*found, Figure("deadlines of all sandboxes", (time.thread_time() - began) * 1e3, "ms", note=TARGET)]


def _standings(name: str, world: queues.World) -> list[Figure]:
    parts, began = [], time.thread_time()
    for _ in world.scheduler.standing.parts(STANDINGS_PART, lambda: world.now):
        parts.append((time.thread_time() - began) * 1e3)
        began = time.thread_time()
    return [Figure(f"{name}: longest part", max(parts), "ms", note=TARGET), Figure(f"{name}: all", sum(parts), "ms")]


async def _until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def _settled_memory() -> int:
    gc.collect()
    return _resident()


def _resident() -> int:
    return _of_status("VmRSS")


def _peak() -> int:
    return _of_status("VmHWM")


def _of_status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
