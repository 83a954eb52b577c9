"""Many scripted agents in one process: `python -m support.many_agents '{"sessions": 100, …}'`, the fields of `Load`.

It prints, as JSON: how each task ended, seconds of each execution that the client saw, processor time, and memory.
"""

import asyncio
import json
import random
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sandfleet import AsyncFleet, AsyncSandbox, Outcome
from sandfleet.codeact import CodeActAgent, Conversation, FinalAnswer, RunCode
from sandfleet.driver import AgentTask, Bar, Bounds, DriverOptions, FleetDriver, TaskResult

# Appends to a file of the workspace, so a cell that ran twice would show, and one that was lost too.
CELL = "with open('/workspace/ran', 'a') as ran: ran.write('{} ')\nprint(open('/workspace/ran').read())"


@dataclass(frozen=True)
class Load:
    """sessions at once, tasks in all, steps of each, and the log-normal times between them (median seconds, sigma).

    fleet, namespace, ca, token, pool  where the sandboxes are from; "" is a fleet of this process.
    is_real                            the executors run Python; otherwise each cell is one print.
    collector                          where all spans are sent to.
    lease                              seconds for which a sandbox outlives its driver.
    """

    sessions: int = 100
    tasks: int = 0
    steps: int = 6
    think: float = 8.0
    sigma: float = 0.6
    fleet: str = ""
    namespace: str = ""
    ca: str = ""
    token: str = ""
    pool: str = ""
    is_real: bool = False
    checkpoint: str = ""
    executions: int = 0
    is_shown: bool = False
    collector: str = ""
    lease: float = 120.0


@dataclass
class Found:
    """What is printed."""

    ends: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    ours: int = 0
    samples: list[float] = field(default_factory=list)
    peak: int = 0
    lag: float = 0.0

    def add(self, result: TaskResult, right: str) -> None:
        self.ends[result.end] += 1
        self.keys[result.key] += 1
        self.ours += not result.is_stored
        if result.answer != (right,):
            self.wrong.append(f"{result.key}: {result.end} {result.message} {result.answer}"[:300])


class Loop:
    """An agent's policy: it runs `steps` cells, repeats one that was lost, and answers with all that they printed."""

    def __init__(self, task: AgentTask, load: Load) -> None:
        self.name, self.load = task.key, load
        self.chance = random.Random(task.key)

    async def __call__(self, conversation: Conversation) -> RunCode | FinalAnswer:
        """Think, then run the next cell."""
        await asyncio.sleep(self.chance.lognormvariate(0, self.load.sigma) * self.load.think)
        good = [step.evidence for step in conversation.steps if step.evidence and step.evidence.outcome is Outcome.OK]
        seen = good[-1].output.strip() if good else ""
        if len(good) == self.load.steps:
            return FinalAnswer(seen, good[-1].execution_id)
        mark = f"{self.name}:{len(good)}"
        return RunCode(CELL.format(mark) if self.load.is_real else f"print({f'{seen} {mark}'.strip()!r})")


async def main(load: Load) -> None:
    if load.collector:
        _trace_to(load.collector)
    found, before, began = Found(), _cpu(), time.perf_counter()
    memory = _resident()
    _measure_cells(found.samples)
    place: dict[str, Any] = {"namespace": load.namespace, "ca_file": load.ca, "token_file": load.token}
    fleet = await AsyncFleet.connect(load.fleet or None, **{name: value for name, value in place.items() if value})
    tasks = [AgentTask(f"t{number}", "Print.") for number in range(load.tasks or load.sessions)]
    bounds = Bounds(session=600, retries=5)
    options = DriverOptions(concurrency=load.sessions, executions=load.executions or load.sessions, bounds=bounds)
    bar = Bar() if load.is_shown else None
    driver = FleetDriver(fleet=fleet, options=options, on_progress=bar, pool=load.pool, timeout=load.lease)
    watching = asyncio.create_task(_watch(found))
    results = driver.run(
        lambda sandbox, task: CodeActAgent(Loop(task, load), sandbox, max_steps=50),
        tasks,
        checkpoint=load.checkpoint or None,
    )
    async for result in results:
        found.add(result, " ".join(f"{result.key}:{number}" for number in range(load.steps)))
    watching.cancel()
    await fleet.close()
    said = {"seconds": time.perf_counter() - began, "cpu": _cpu() - before, "memory": found.peak - memory}
    said |= {"ends": found.ends, "doubled": sum(count > 1 for count in found.keys.values())}
    said |= {"lost": len(tasks) - len(found.keys), "wrong": found.wrong[:5], "wrongs": len(found.wrong)}
    print(json.dumps(said | {"ours": found.ours, "lag": found.lag, "samples": found.samples}))


def _measure_cells(samples: list[float]) -> None:
    """Note the seconds of each cell, below the driver's own turns."""
    run_code = AsyncSandbox.run_code

    async def timed(self: AsyncSandbox, code: str, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return await run_code(self, code, **options)
        finally:
            samples.append(time.perf_counter() - began)

    AsyncSandbox.run_code = timed  # type: ignore[method-assign,assignment]  # only here


def _trace_to(collector: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(collector)))
    trace.set_tracer_provider(provider)


async def _watch(found: Found) -> None:
    while True:
        due = time.perf_counter() + 0.5
        await asyncio.sleep(0.5)
        found.lag = max(found.lag, time.perf_counter() - due)
        found.peak = max(found.peak, _resident())


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    asyncio.run(main(Load(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})))
