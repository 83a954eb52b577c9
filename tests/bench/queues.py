"""The scheduler's engine alone: cycles with many waiting claims, floods, fairness, estimates. No fleet, no cluster.

A world of events stands for the fleet: starts take 0.5 s, sessions 10 s on average (exponential); time is simulated.
What the engine takes is processor time, so that other work on the machine does not count.
"""

import gc
import heapq
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from figures import Figure, progress, quantile

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from sandfleet_operator.api.kinds.queue import QueueSpec, Quota
from sandfleet_operator.api.values import Claim, Exit, RequestKey, Template
from sandfleet_operator.fleet.driver import STANDINGS_PART
from sandfleet_operator.plan.scheduler.actions import Action, Answer, Bind, Start, Stop
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.queues.fair_queue import FAIR, Policy
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from simulate import text_of
from simulation.load import read_load, sessions
from simulation.policies import FIRST_COME_FIRST_SERVED
from simulation.replay import replay

NOW, POOL = 1_000_000.0, "python"
START_SECONDS, SESSION_SECONDS = 0.5, 10.0
GONE = Exit(code=0)


@dataclass
class World:
    """Carries out what the scheduler decides, in simulated time."""

    scheduler: Scheduler
    now: float = NOW
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    session: float = SESSION_SECONDS
    events: list[tuple[float, int, str, str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    asked: dict[RequestKey, tuple[float, str]] = field(default_factory=dict)
    # Queue → seconds that each served claim waited.
    waits: dict[str, list[float]] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)

    def claim(self, queue: str, holder: str = "alice", workspace: str = "") -> None:
        key = RequestKey(holder, f"r{next(self.numbers)}", POOL)
        self.asked[key] = self.now, queue
        claim = Claim(key=key, pool=POOL, queue=queue, workspace_id=workspace, max_wait=3600.0)
        self.do(self.scheduler.ask(claim, self.now))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(sandbox):
                    self.later(START_SECONDS, "ready", sandbox.sandbox_uid)
                case Bind(sandbox):
                    self.later(0.005, "bound", sandbox.sandbox_uid)
                case Stop(sandbox):
                    self.later(0.05, "exited", sandbox.sandbox_uid)
                case Answer(key, result):
                    asked, queue = self.asked.pop(key)
                    self.waits.setdefault(queue, []).append(self.now - asked)
                    self.served.append(queue)
                    self.later(self.chance.expovariate(1 / self.session), "release", result.sandbox_id)

    def later(self, seconds: float, event: str, subject: str) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), event, subject))

    def run(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, event, subject = heapq.heappop(self.events)
            match event:
                case "release":
                    self.do(self.scheduler.release(subject, self.now))
                case "exited":
                    self.do(self.scheduler.exited(subject, GONE, self.now))
                case "ready":
                    self.do(self.scheduler.ready(subject, self.now))
                case _:
                    self.do(self.scheduler.bound(subject, self.now))
        self.now = until
        self.do(self.scheduler.tick(self.now))


def a_world(queues: dict[str, QueueSpec], warm: int, policy: Policy = FAIR, **changes: float) -> World:
    limits = FleetLimits(max_sandboxes=1_000_000, max_starting=300, max_waiting=1_000_000)
    numbers = itertools.count()
    pool = Pool(name=POOL, template=Template(), target_warm=warm, most=warm)
    scheduler = Scheduler([pool], limits, new_id=lambda _: f"s{next(numbers)}", policy=policy)
    world = World(scheduler, **changes)
    for name, spec in queues.items():
        world.do(scheduler.queues.put(name, spec, world.now))
    world.do(scheduler.tick(world.now))
    world.run(world.now + 30 + warm / 300)
    return world


def figures() -> Iterator[Figure]:
    yield from cycles()
    yield from warm_claims()
    yield from flood()
    yield from fairness()
    yield from estimates()
    yield from simulations()


def cycles() -> Iterator[Figure]:
    """A release with all that follows, and the publication of standings, with claims waiting in 100 queues.

    What follows is the end of the process, which frees quota, the binding of the next claim, and a look at deadlines.
    """
    last: float | None = None
    for waiting in (1_000, 10_000, 100_000):
        progress(f"a cycle with {waiting} waiting claims in 100 queues")
        names = [f"q{number}" for number in range(100)]
        spec = QueueSpec(nominal=Quota(sandboxes=1), cohort="all")
        world = a_world(dict.fromkeys(names, spec), warm=100, session=1e9)
        before = memory_of_filling(world, names, waiting)
        samples, standings = [], []
        for sandbox in [one for one in world.scheduler.inventory.all() if one.bound][:50]:
            start = time.process_time()
            world.do(world.scheduler.release(sandbox.sandbox_id, world.now))
            world.run(world.now + 0.1)
            samples.append((time.process_time() - start) * 1e3)
            world.run(world.now + 1.0)
        start = time.process_time()
        for _ in world.scheduler.standing.parts(STANDINGS_PART, lambda now=world.now: now):
            standings.append((time.process_time() - start) * 1e3)
            start = time.process_time()
        note = "a release with all that follows; ≤ 10 ms at 10,000; beside a tenth of the claims"
        yield Figure(f"cycle, {waiting:,} waiting, p50", statistics.median(samples), "ms", last, note)
        yield Figure(f"cycle, {waiting:,} waiting, p99", quantile(samples, 0.99), "ms")
        last = statistics.median(samples)
        yield Figure(f"standings of {waiting:,} claims", sum(standings), "ms")
        yield Figure(f"longest part of them, of {waiting:,}", max(standings), "ms", None, "other calls wait so long")
        yield Figure(f"memory of a waiting claim, of {waiting:,}", before / waiting, "bytes")


def fill(world: World, names: list[str], waiting: int) -> None:
    for number in range(waiting + 100):
        world.claim(names[number % len(names)], holder=f"h{number % 7}")
    world.run(world.now + 1.0)


def memory_of_filling(world: World, names: list[str], waiting: int) -> int:
    """Bytes that the claims take."""
    gc.collect()
    before = resident()
    fill(world, names, waiting)
    return resident() - before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def warm_claims() -> Iterator[Figure]:
    """What a queue adds to a claim that finds a warm sandbox and quota."""
    progress("a warm claim with a queue and without")
    times = {}
    for queue in ("", "team"):
        world = a_world(
            {"team": QueueSpec(nominal=Quota(sandboxes=5000), cohort="all"), "other": QueueSpec(cohort="all")}, 3000
        )
        samples = []
        for _ in range(2000):
            start = time.process_time()
            world.claim(queue)
            samples.append((time.process_time() - start) * 1e3)
        times[queue] = statistics.median(samples)
    yield Figure(
        "warm claim in the engine, with a queue", times["team"], "ms", times[""], "beside one without; ≤ 0.2 ms more"
    )


def flood() -> Iterator[Figure]:
    """How many claims the engine admits in a second, releases and refill included."""
    progress("a flood of claims through the engine")
    names = [f"q{number}" for number in range(100)]
    world = a_world(dict.fromkeys(names, QueueSpec(nominal=Quota(sandboxes=5), cohort="all")), 500, session=1.0)
    for number in range(10_000):
        world.claim(names[number % 7])
    start, served = time.process_time(), len(world.served)
    while world.asked:
        world.run(world.now + 0.25)
    seconds = time.process_time() - start
    yield Figure("flood of 10,000 claims, admitted", (len(world.served) - served) / seconds, "claims/s", None, "≥ 300")


def fairness() -> Iterator[Figure]:
    """Ten teams with equal weights: one floods with 10,000 claims, the others ask for 60 each."""
    progress("fairness under a flood")
    names = [f"team{number}" for number in range(10)]
    found = {}
    for label, policy in (("fair", FAIR), ("fifo", FIRST_COME_FIRST_SERVED)):
        world = a_world(dict.fromkeys(names, QueueSpec()), 100, policy, session=5.0)
        for _ in range(10_000):
            world.claim(names[0])
        world.run(world.now + 1.0)
        begin = len(world.served)
        for _ in range(60):
            for name in names[1:]:
                world.claim(name)
            world.run(world.now + 0.01)
        while any(one[1] != names[0] for one in world.asked.values()) and world.now < NOW + 3000:
            world.run(world.now + 0.25)
        # What each got while all wanted more.
        shares = [world.served[begin : begin + 400].count(name) for name in names]
        others = [wait for name in names[1:] for wait in world.waits.get(name, [])]
        found[label] = jain(shares), quantile(others, 0.99)
    yield Figure("Jain's index under a flood of 10,000", found["fair"][0], "", found["fifo"][0], "≥ 0.95; beside FIFO")
    yield Figure("p99 wait of the other teams, simulated", found["fair"][1], "s", found["fifo"][1], "beside FIFO")


def jain(shares: list[int]) -> float:
    """Jain, Chiu and Hawe 1984: 1 where all have the same, 1/n where one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(one * one for one in shares)) if any(shares) else 0.0


def estimates() -> Iterator[Figure]:
    """Poisson arrivals in three queues with quotas, at nine tenths of what the pool can serve, with bursts."""
    progress("estimates of waits")
    names = {"a": 20, "b": 10, "c": 5}
    world = a_world({name: QueueSpec(nominal=Quota(sandboxes=many)) for name, many in names.items()}, 60)
    for second in range(900):
        for name, many in names.items():
            rate = many / SESSION_SECONDS * (3.0 if second % 120 < 20 else 0.7)
            for _ in range(poisson(world.chance, rate)):
                world.claim(name)
        world.run(world.now + 1.0)
    errors = world.scheduler.standing.eta_errors(POOL)
    yield Figure("error of the estimated wait, p50", errors.p50 * 100, "%", None, "|actual - p50| / actual, at arrival")
    yield Figure("error of the estimated wait, p90", errors.p90 * 100, "%")
    yield Figure("claims served within the estimated p90", errors.within_p90 * 100, "%", None, "90 would be honest")


def simulations() -> Iterator[Figure]:
    """Calls of the scheduler that a simulation makes in a second, of loads that come with it."""
    for name in ("rl-rollout", "hostile-tenant"):
        progress(f"simulation of {name}")
        load = read_load(yaml.safe_load(text_of(name)))
        rates = []
        for policy in (FAIR, FIRST_COME_FIRST_SERVED):
            arrivals = sessions(load)
            start = time.process_time()
            rates.append(replay(load, arrivals, policy).events / (time.process_time() - start))
        yield Figure(f"simulation of {name}", rates[0], "events/s", rates[1], "≥ 100,000 events/s; beside FIFO")


def poisson(chance: random.Random, mean: float) -> int:
    many, left = 0, chance.expovariate(1.0)
    while left < mean:
        many, left = many + 1, left + chance.expovariate(1.0)
    return many
