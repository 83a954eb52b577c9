"""The driver of agent loops: fifty tasks on sandboxes that have to be started, and parking on simulated loads.

With SANDFLEET_PLOTS=FOLDER it draws `parking.svg` there.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from figures import Figure, progress
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet._fleets.embedded import Options, Process
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
from sandfleet.driver import DriverOptions, FixedParking, FleetDriver, LearnedParking, NoParking, Parking

TASKS = 50
GAPS = 5000
# Seconds of a suspension with its resumption, in the simulation.
COST = 2.0
WEIGHT = 1.0
# Gaps of a model's calls in seconds: chat models answer in seconds, some wait for a person, some run for minutes.
LOADS: dict[str, Callable[[Random], float]] = {
    "chat": lambda chance: chance.lognormvariate(1.2, 0.6),
    "with people": lambda chance: (
        chance.lognormvariate(1.2, 0.6) if chance.random() < 0.8 else chance.expovariate(1 / 300)
    ),
    "reasoning": lambda chance: chance.lognormvariate(4.0, 0.8),
}


def figures() -> Iterator[Figure]:
    progress(f"{TASKS} sandboxes that have to be started: claimed at once, and by the driver")
    plain = asyncio.run(measured(claimed_at_once))
    driven = asyncio.run(measured(driven_tasks))
    yield Figure(f"{TASKS} sessions, not warm, one cell each", driven[0], "s", plain[0], "beside claims all at once")
    yield Figure(f"words of the fleet on {TASKS} waiting claims", driven[1], "", plain[1], "the same")
    progress(f"parking on {len(LOADS)} loads of {GAPS} simulated gaps")
    yield from parked()


async def measured(work: Callable[[AsyncFleet], object]) -> tuple[float, float]:
    """Seconds, and how often a claim was told its place."""
    process = await asyncio.to_thread(Process, Options(pool_size=0, max_sandboxes=TASKS))
    try:
        async with await AsyncFleet.connect(process.address) as fleet:
            begun = time.perf_counter()
            told = await work(fleet)
            return time.perf_counter() - begun, told
    finally:
        await asyncio.to_thread(process.stop)


async def claimed_at_once(fleet: AsyncFleet) -> int:
    told = 0

    def hear(_: object) -> None:
        nonlocal told
        told += 1

    async def one() -> None:
        async with await AsyncSandbox.create(fleet=fleet, max_wait=300, on_queued=hear) as sandbox:
            (await sandbox.run_code("print(6 * 7)")).raise_for_error()

    await asyncio.gather(*(one() for _ in range(TASKS)))
    return told


async def driven_tasks(fleet: AsyncFleet) -> int:
    told = 0

    def make(sandbox: AsyncSandbox, _: object) -> CodeActAgent:
        async def policy(conversation: object) -> object:
            if not conversation.steps:
                return RunCode("print(6 * 7)")
            return FinalAnswer(42, conversation.last.evidence.execution_id)

        return CodeActAgent(policy, sandbox)

    def hear(_: object) -> None:
        nonlocal told
        told += 1

    driver = FleetDriver(fleet=fleet, options=DriverOptions(concurrency=TASKS), on_queued=hear)
    results = [result async for result in driver.run(make, [f"task {number}" for number in range(TASKS)])]
    assert all(result.ok for result in results)
    return told


@dataclass(frozen=True)
class Bill:
    """Of one load under one policy: sandbox-seconds that were held, and seconds that agents waited longer."""

    held: float
    waited: float

    @property
    def cost(self) -> float:
        return self.held + WEIGHT * self.waited


def billed(parking: Parking, gaps: list[float]) -> Bill:
    held = waited = 0.0
    for gap in gaps:
        timeout = parking.timeout()
        if gap > timeout:
            held, waited = held + timeout + COST, waited + COST
            parking.saw_parking(COST)
        else:
            held += gap
        parking.saw_gap(gap)
    return Bill(held, waited)


def drawn_gaps(name: str) -> list[float]:
    chance = Random(7)
    return [LOADS[name](chance) for _ in range(GAPS)]


def draw(path: Path) -> None:
    """Draw, for each load, sandbox-hours beside the wait that is added to a gap."""
    from matplotlib.figure import Figure as Picture

    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Picture(figsize=(4 * len(LOADS), 3.6), layout="constrained")
    for axes, name in zip(picture.subplots(1, len(LOADS)), LOADS, strict=True):
        gaps = drawn_gaps(name)
        fixed = {seconds: billed(FixedParking(seconds), gaps) for seconds in (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900)}
        waits = [one.waited / GAPS for one in fixed.values()]
        axes.plot(waits, [one.held / 3600 for one in fixed.values()], "o-", color="#999999", label="fixed timeouts")
        for seconds, one in fixed.items():
            axes.annotate(f"{seconds:g} s", (one.waited / GAPS, one.held / 3600), fontsize=7)
        learned = billed(LearnedParking(latency_weight=WEIGHT, cost=COST), gaps)
        axes.plot([learned.waited / GAPS], [learned.held / 3600], "*", color="#d55e00", markersize=14, label="learned")
        axes.set(title=name, xlabel="added wait, s a gap", ylabel="sandbox-hours", yscale="log")
        axes.legend(fontsize=7)
    picture.savefig(path)


def parked() -> Iterator[Figure]:
    if folder := os.environ.get("SANDFLEET_PLOTS"):
        draw(Path(folder) / "parking.svg")
    for name in LOADS:
        gaps = drawn_gaps(name)
        fixed = {seconds: billed(FixedParking(seconds), gaps) for seconds in (5.0, 30.0, 120.0)}
        never, learned = billed(NoParking(), gaps), billed(LearnedParking(latency_weight=WEIGHT, cost=COST), gaps)
        best = min(fixed, key=lambda seconds: fixed[seconds].cost)
        note = (
            f"beside the best fixed timeout ({best:g} s); never parking costs {never.cost / fixed[best].cost:.2f} of it"
        )
        yield Figure(
            f"cost of gaps, load '{name}', learned parking", learned.cost / 3600, "h", fixed[best].cost / 3600, note
        )
        note = "sandbox-hours beside never parking"
        yield Figure(
            f"sandbox-hours, load '{name}', learned parking", learned.held / 3600, "h", never.held / 3600, note
        )
        yield Figure(
            f"added wait a gap, load '{name}'",
            learned.waited / GAPS,
            "s",
            fixed[best].waited / GAPS,
            "beside the best fixed timeout",
        )
