"""Runs an evaluation through the driver, and shows it."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet.cli import FAILED, OK
from sandfleet.codeact import CodeActAgent
from sandfleet.driver import AgentTask, Bar, Bounds, DriverOptions, FleetDriver, MakeAgent
from sandfleet.errors import InvalidArgument
from sandfleet.evals import page, show
from sandfleet.evals.checks import checker
from sandfleet.evals.evaluation import Evaluation, Sample
from sandfleet.evals.policies import Named, named
from sandfleet.evals.task import EvalTask, load

if TYPE_CHECKING:
    from sandfleet.sandbox import AsyncSandbox
    from sandfleet.values.options import CreateOptions

_DEFAULT_POLICY = "scripted:careful"


def main(options: Namespace) -> int:
    """The evaluation, from parsed arguments to the exit code."""
    tasks = load(options.tasks)
    policies = tuple(map(named, options.policies or [_DEFAULT_POLICY]))
    if len({policy.name for policy in policies}) < len(policies):
        raise InvalidArgument("cannot compare a policy with itself: name each one once")
    samples = asyncio.run(_run(options, tasks, policies))
    order = tuple(task.key for task in tasks)
    found = Evaluation(order, tuple(policy.name for policy in policies), tuple(samples))
    if options.report:
        Path(options.report).write_text(page.html(found, options.tasks), encoding="utf-8")
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        print("\n".join(show.lines(found)))
        if options.report:
            print(f"\nThe report is in {options.report}.")
    return OK if found.is_complete else FAILED


async def _run(options: Namespace, tasks: Sequence[EvalTask], policies: Sequence[Named]) -> list[Sample]:
    by_name = {policy.name: policy for policy in policies}
    by_key = {task.key: task for task in tasks}
    planned = [
        _agent_task(task, policy.name, number)
        for number in range(1, options.samples + 1)
        for task in tasks
        for policy in policies
    ]
    bar = None if options.json else Bar()
    driver = FleetDriver(
        options=DriverOptions(concurrency=options.concurrency, bounds=Bounds(session=options.timeout)),
        on_progress=bar,
        template=options.template,
        **_claim(options),
    )
    samples = []
    async with driver:
        make_agent = _maker(by_name, by_key, options.max_steps)
        async for result in driver.run(make_agent, planned, checkpoint=options.checkpoint):
            policy, key, number = json.loads(result.key)
            samples.append(Sample(policy, key, number, result))
    if bar is not None:
        bar.close()
        print(file=sys.stderr)
    return samples


def _agent_task(task: EvalTask, policy: str, number: int) -> AgentTask:
    # Words of JSON: names may have any character.
    key = json.dumps([policy, task.key, number], ensure_ascii=False)
    return AgentTask(key, task.prompt, files=task.files, check=checker(task), data={"tolerance": task.tolerance})


def _claim(options: Namespace) -> CreateOptions:
    claim: CreateOptions = {"pool": options.pool, "queue": options.queue, "priority": options.priority}
    if options.namespace is not None:
        claim["namespace"] = options.namespace
    return claim


def _maker(policies: dict[str, Named], tasks: dict[str, EvalTask], max_steps: int) -> MakeAgent:
    def make(sandbox: AsyncSandbox, given: AgentTask) -> CodeActAgent:
        name, key, number = json.loads(given.key)
        task = tasks[key]
        return CodeActAgent(
            policies[name].policy_of(task, number),
            sandbox,
            max_steps=max_steps,
            name=name,
            # Where only the test decides, any answer will do.
            judge=(lambda _answer, _conversation: None) if task.is_judged_by_test else None,
        )

    return make
