"""The show `fork`: a tree search over one dataset, loaded once; each attempt has its own interpreter."""

import asyncio
import sys
import time
from dataclasses import asdict, dataclass

from sandfleet.demo.stage import Stage, print_json
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Context

ROUNDS = 4
BRANCHES = 6
_BAR = 32
_LOAD = """
import math, random
source = random.Random(7)
points = [(x / 2000, math.sin(3 * x / 2000) + 0.3 * math.cos(11 * x / 2000) + source.gauss(0, 0.05)) for x in range(60_000)]
heavy = bytearray(b"x" * (100 << 20))
model = [1.0, 1.0, 1.0, 1.0]
def loss(m):
    return math.fsum((y - m[0] * math.sin(m[1] * x) - m[2] * math.cos(m[3] * x)) ** 2 for x, y in points[::97])
def step(scale):
    trial = [value + random.gauss(0, scale) for value in model]
    return trial if loss(trial) < loss(model) else model
len(points)
"""
# Each attempt draws other numbers, because a fork seeds them from its name.
_ATTEMPT = "for _ in range(60): model = step({scale})\nloss(model)"


@dataclass(frozen=True, slots=True)
class Round:
    """One level of the tree: how long its forks took, and what each attempt came to."""

    number: int
    fork_seconds: float
    losses: tuple[float, ...]
    best: int


def main(*, as_json: bool) -> int:
    stage = Stage.on(sys.stdout, as_json=as_json)
    load_seconds, first, rounds = asyncio.run(_run(stage))
    last = min(rounds[-1].losses)
    if as_json:
        print_json(
            {
                "ok": last < first,
                "load_seconds": load_seconds,
                "first_loss": first,
                "last_loss": last,
                "rounds": [asdict(each) for each in rounds],
            }
        )
    each = sum(one.fork_seconds for one in rounds) / len(rounds) / BRANCHES
    stage.say(
        f"\n{ROUNDS * BRANCHES} attempts, dataset loaded once in {load_seconds * 1e3:.0f} ms; a fork took {each * 1e3:.1f} ms: "
        + stage.paint(f"loss {first:.1f} → {last:.1f}", "green")
    )
    return 0 if last < first else 1


async def _run(stage: Stage) -> tuple[float, float, list[Round]]:
    async with await AsyncSandbox.create() as sandbox:
        stage.say(stage.paint("One dataset and 100 MB of ballast, loaded once", "bold"))
        began = time.monotonic()
        loaded = await sandbox.run_code(_LOAD)
        load_seconds = time.monotonic() - began
        first = float((await sandbox.run_code("loss(model)")).text or "nan")
        stage.say(f"  {loaded.text} points, loss {first:.1f}\n")
        trunk, rounds = "default", []
        for number in range(ROUNDS):
            found, trunk = await _round(stage, sandbox, trunk, number, first)
            rounds.append(found)
        return round(load_seconds, 4), first, rounds


async def _round(stage: Stage, sandbox: AsyncSandbox, trunk: str, number: int, first: float) -> tuple[Round, str]:
    """Forks, lets each try, keeps the best as the next trunk."""
    began = time.monotonic()
    forks = await sandbox.fork_context(
        trunk, BRANCHES, context_ids=[f"r{number}-{branch}" for branch in range(BRANCHES)]
    )
    seconds = time.monotonic() - began
    stage.say(f"round {number + 1}: {BRANCHES} forks of {trunk} in {seconds * 1e3:.0f} ms")
    losses: list[float | None] = [None] * BRANCHES
    drawn = stage.redraw(_picture(stage, losses, first), 0)

    async def attempt(branch: int, fork: Context) -> None:
        nonlocal drawn
        execution = await sandbox.run_code(_ATTEMPT.format(scale=0.6 / (number + 1)), context=fork)
        losses[branch] = float(execution.text or "inf")
        drawn = stage.redraw(_picture(stage, losses, first), drawn)

    async with asyncio.TaskGroup() as group:
        for branch, fork in enumerate(forks):
            group.create_task(attempt(branch, fork))
    known = tuple(value for value in losses if value is not None)
    best = known.index(min(known))
    if not stage.live:
        for line in _picture(stage, losses, first):
            stage.say(line)
    for branch, fork in enumerate(forks):
        if branch != best:
            await sandbox.delete_context(fork)
    if trunk != "default":
        await sandbox.delete_context(trunk)
    return Round(number + 1, round(seconds, 4), known, best), forks[best].context_id


def _picture(stage: Stage, losses: list[float | None], first: float) -> list[str]:
    """A bar for each attempt, as long as its loss; the best so far in green."""
    known = [value for value in losses if value is not None]
    lines = []
    for branch, value in enumerate(losses):
        twig = "└" if branch == len(losses) - 1 else "├"
        if value is None:
            lines.append(f"  {twig}─ {branch} " + stage.paint("trying …", "dim"))
            continue
        bar = "█" * max(1, round(_BAR * min(1.0, value / first)))
        style = ("green", "bold") if value == min(known) else ("dim",)
        lines.append(f"  {twig}─ {branch} " + stage.paint(f"{bar:<{_BAR}} {value:9.2f}", *style))
    return lines
