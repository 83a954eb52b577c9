"""One session of the demo: a sandbox, an agent, and the host's judgement."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.codeact import AgentRun, CodeActAgent, Policy, Step
from sandfleet.codeact.policies.scripted import ScriptedPolicy
from sandfleet.demo.task import Task
from sandfleet.demo.tasks import csv_import, exploration, gross_margin, least_squares, unit_tests
from sandfleet.errors import SandfleetError
from sandfleet.observe import tracing
from sandfleet.sandbox import AsyncSandbox

# Failed steps in a row: a messy file has about as many surprises.
_MAX_FAILURES = 6
_MAX_STEPS = 25
# A session that outlives its client for this long ends by itself, in seconds.
_LEASE = 120.0
_LARGEST_KEPT = 10 * 1024 * 1024


class Agent(Protocol):
    """A module of `tasks`."""

    TITLE: str

    def make(self, seed: int, *, chaos: bool = False) -> Task: ...


AGENTS: tuple[Agent, ...] = (csv_import, exploration, unit_tests, least_squares, gross_margin)
CHAOS = AGENTS.index(exploration)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which session this is: agent by number, seed, and whether its interpreter meets with an accident."""

    number: int
    agent: int
    seed: int
    chaos: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """How a session went. `trouble` is empty when it was solved; times are in seconds."""

    plan: Plan
    title: str
    trouble: str
    run: AgentRun | None = None
    answer: str = ""
    isolation: str = ""
    claim_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def solved(self) -> bool:
        return not self.trouble

    @property
    def in_short(self) -> str:
        """The trouble in one line."""
        return " ".join(self.trouble.split())[:300]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all sessions share. `policy` None means each task's script; `output` is where kept files go."""

    fleet: AsyncFleet | None = None
    policy: Policy | None = None
    output: Path | None = None
    timeout: float = 120.0
    on_step: Callable[[Plan, Step], object] = field(default=lambda _plan, _step: None)
    # Names the run in its traces.
    run_id: str = field(default_factory=lambda: f"demo-{os.urandom(4).hex()}")


def plans(sessions: int, *, chaos: bool) -> tuple[Plan, ...]:
    """The sessions of a run: the agents in turn, a new seed for each; the first exploration has the accident."""
    count = len(AGENTS)
    return tuple(
        Plan(number + 1, number % count, number // count, chaos and number == CHAOS) for number in range(sessions)
    )


def check_inputs() -> None:
    """Find what the tasks work on. Raises InputMissing."""
    for agent in AGENTS:
        for seed in range(2):
            agent.make(seed)


async def work(plan: Plan, setting: Setting) -> Report:
    """Run one session to its report, whatever happens in it. Raises only what is wrong with the demo itself."""
    task = AGENTS[plan.agent].make(plan.seed, chaos=plan.chaos)
    began = time.monotonic()
    attributes = {
        "sandfleet.run.id": setting.run_id,
        "sandfleet.task.key": f"{plan.number:03} {AGENTS[plan.agent].TITLE}",
    }
    try:
        with tracing.call("task", attributes) as span:
            report = await _claimed(plan, task, setting)
            end = report.run.end.value if report.run is not None else "platform_failure"
            span.set("sandfleet.run.end", "wrong" if report.trouble and end == "answered" else end)
            span.set("sandfleet.claim.wait_seconds", report.claim_seconds)
    except SandfleetError as error:
        report = Report(plan, task.title, f"the platform failed: {error}")
    return replace(report, seconds=time.monotonic() - began)


async def _claimed(plan: Plan, task: Task, setting: Setting) -> Report:
    began = time.monotonic()
    sandbox = await AsyncSandbox.create(timeout=_LEASE, fleet=setting.fleet)
    claimed = time.monotonic() - began
    async with sandbox:
        return await _in_sandbox(plan, task, sandbox, setting, claimed)


async def _in_sandbox(plan: Plan, task: Task, sandbox: AsyncSandbox, setting: Setting, claimed: float) -> Report:
    isolation = (await sandbox.get_info()).isolation.value
    for name, data in task.files.items():
        await sandbox.files.write(name, data)
    agent = CodeActAgent(
        setting.policy or ScriptedPolicy(AGENTS[plan.agent].TITLE, task.script),
        sandbox,
        max_steps=_MAX_STEPS,
        max_failures=_MAX_FAILURES,
        timeout=setting.timeout,
        name=AGENTS[plan.agent].TITLE,
        on_step=lambda step: setting.on_step(plan, step),
    )
    run = await agent.run(task.prompt)
    # Another one than before, when the first one ended under the agent.
    present = agent.sandbox if isinstance(agent.sandbox, AsyncSandbox) else sandbox
    try:
        values = tuple(str(value) for value in run.answer.values) if run.answer else ()
        trouble = await _judge(task, run, values, present)
        if setting.output is not None and not trouble:
            await _keep(plan, task, present, setting.output)
    finally:
        if present is not sandbox:
            await present.kill()
    return Report(plan, task.title, trouble, run, "; ".join(values), isolation, claimed)


async def _judge(task: Task, run: AgentRun, values: tuple[str, ...], sandbox: AsyncSandbox) -> str:
    if run.answer is None:
        return f"{run.end.value}: {run.message}"
    try:
        return await task.verify(values, sandbox)
    except SandfleetError as error:
        return f"cannot check the answer: {error}"


async def _keep(plan: Plan, task: Task, sandbox: AsyncSandbox, output: Path) -> None:
    for name in task.keep:
        data = await sandbox.files.read(name, format="bytes", limit=_LARGEST_KEPT)
        path = output / f"{plan.number:03}-{name}"
        await asyncio.to_thread(path.write_bytes, data)
