"""Runs the sessions, shows them, sums them up."""

import asyncio
import json
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import table
from sandfleet.codeact.policies.openai import OpenAIPolicy
from sandfleet.demo.progress import Plain, Progress, Silent, Table
from sandfleet.demo.session import Plan, Report, Setting, check_inputs, plans, work
from sandfleet.demo.stage import Stage
from sandfleet.demo.summary import lines, summarize
from sandfleet.demo.walk import Walk, shown_first
from sandfleet.errors import InvalidArgument
from sandfleet.observe.span_file import write_spans_to

_SCRIPTED = "scripted: written moves that branch on the real output, no model"
_FRAME = 0.1


def main(args: Namespace) -> int:
    """The demo, from parsed arguments to the exit code."""
    with ExitStack() as stack:
        check_inputs()
        setting, policy = _setting(args)
        if args.trace:
            stack.enter_context(_spans(args.trace))
        began = time.monotonic()
        reports = asyncio.run(_run(args, setting, f"policy {policy}"))
    summary = summarize(policy, reports, time.monotonic() - began)
    print(json.dumps(summary.as_json(), indent=2) if args.json else "\n".join(["", *lines(summary)]))
    return 0 if summary.failed == 0 else 1


def _spans(path: str) -> AbstractContextManager[None]:
    if find_spec("opentelemetry.sdk") is None:
        raise InvalidArgument("cannot write spans: their SDK is not installed (pip install 'sandfleet[otel]')")
    return write_spans_to(path)


def _setting(args: Namespace) -> tuple[Setting, str]:
    output = Path(args.output) if args.output else None
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    kind, _, model = args.policy.partition(":")
    if args.policy == "scripted":
        return Setting(output=output), _SCRIPTED
    if kind == "openai" and model:
        policy = OpenAIPolicy(model)
        return Setting(policy=policy, output=output), policy.summary
    raise InvalidArgument(f'cannot use the policy {args.policy!r}: it is "scripted" or "openai:MODEL"')


def _progress(args: Namespace) -> Progress:
    if args.json:
        return Silent()
    return (Plain if table.is_plain(sys.stdout) else Table)(sys.stdout, args.sessions)


async def _run(args: Namespace, setting: Setting, policy: str) -> list[Report]:
    planned = plans(args.sessions, chaos=args.chaos and setting.policy is None)
    progress = _progress(args)
    # The fleet comes first, so that one that cannot start is one error and not one for each session.
    async with await AsyncFleet.connect() as fleet:
        told = replace(setting, fleet=fleet, on_step=progress.stepped)
        if args.json:
            return await _many(args.concurrency, planned, told, progress)
        first = shown_first(planned)
        shown = await _one(first, told, policy)
        rest = tuple(plan for plan in planned if plan is not first)
        print(f"{table.count(args.sessions, 'session')} in all, up to {args.concurrency} at once", flush=True)
        progress.started(first)
        for step in shown.run.steps if shown.run is not None else ():
            progress.stepped(first, step)
        progress.finished(shown)
        async with _drawn(progress):
            reports = await _many(args.concurrency, rest, told, progress)
    return sorted([shown, *reports], key=lambda report: report.plan.number)


async def _one(plan: Plan, setting: Setting, policy: str) -> Report:
    """One session alone, step by step."""
    walk = Walk(Stage.on(sys.stdout, as_json=False))
    asked = setting.policy
    if isinstance(asked, OpenAIPolicy):
        asked = OpenAIPolicy(asked.model, on_token=walk.token)
    walk.begins(plan, policy)
    report = await work(plan, replace(setting, policy=asked, on_step=walk.stepped))
    walk.ends(report)
    return report


async def _many(concurrency: int, planned: tuple[Plan, ...], setting: Setting, progress: Progress) -> list[Report]:
    gate = asyncio.Semaphore(concurrency)

    async def one(plan: Plan) -> Report:
        async with gate:
            progress.started(plan)
            report = await work(plan, setting)
            progress.finished(report)
            return report

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(plan)) for plan in planned]
    return [task.result() for task in tasks]


@asynccontextmanager
async def _drawn(progress: Progress) -> AsyncIterator[None]:
    drawing = asyncio.create_task(_draw(progress))
    try:
        yield
    finally:
        drawing.cancel()
        progress.draw()


async def _draw(progress: Progress) -> None:
    while True:
        progress.draw()
        await asyncio.sleep(_FRAME)
