"""One task of a run, from the claim of its sandbox to its result."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sandfleet._wire.retry import Backoff
from sandfleet.codeact.conversation import AgentRun, Policy
from sandfleet.codeact.loop import CodeActAgent
from sandfleet.driver import actions
from sandfleet.driver.checkpoint import Checkpoint, CheckpointError, NotOurs, Taken
from sandfleet.driver.policy import DrivenPolicy, Gaps
from sandfleet.driver.progress import Progress, Stage
from sandfleet.driver.report import line_of, steps_of
from sandfleet.driver.result import Blame, Spent, TaskEnd, TaskResult
from sandfleet.driver.sandbox import DrivenSandbox
from sandfleet.errors import ClaimError, SandboxEnded, SandfleetError
from sandfleet.observe import tracing
from sandfleet.sandbox import AsyncSandbox

if TYPE_CHECKING:
    from sandfleet._fleets.fleet import AsyncFleet
    from sandfleet.driver.claims import ClaimGate
    from sandfleet.driver.parking import Parking
    from sandfleet.driver.task import AgentTask
    from sandfleet.driver.turns import RetryAllowance, Turns
    from sandfleet.values.fleet import OnQueued, Queued
    from sandfleet.values.options import CreateOptions

# How long the release of a sandbox may take; its lease ends it otherwise. In seconds.
_RELEASE = 15.0
_BACKOFF = Backoff(1.0, 30.0)
_log = logging.getLogger("sandfleet")


class Agent(Protocol):
    """What `make_agent` returns: a `CodeActAgent`, or what runs like one."""

    async def run(self, task: str) -> AgentRun: ...


MakeAgent = Callable[[AsyncSandbox, "AgentTask"], "Agent | Awaitable[Agent]"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in seconds, and counts.

    session  of one session, from the sandbox to the checked result. check: of the checker.
    claim    how long one claim may wait in its queue. retries: further sessions after failures of the platform.
    """

    session: float = 900.0
    check: float = 60.0
    claim: float = 3600.0
    retries: int = 2


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sessions of a run share."""

    fleet: AsyncFleet
    make_agent: MakeAgent
    bounds: Bounds
    template: str
    claim_options: CreateOptions
    gate: ClaimGate
    turns: Turns
    parking: Parking
    allowance: RetryAllowance
    checkpoint: Checkpoint
    progress: Progress
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)
    # Names the run in its traces.
    run_id: str = field(default_factory=lambda: f"run-{os.urandom(4).hex()}")


async def work(task: AgentTask, taken: Taken, shared: Shared) -> TaskResult | None:
    """Carry a task to its result; None when another process has taken it on. Raises CheckpointError."""
    try:
        while True:
            with tracing.call("task", _named(task, taken, shared)) as span:
                session = Session(task, taken, shared)
                result = await session.run()
                # A session whose earlier sandbox was gone is another attempt.
                taken = session.taken
                result = replace(result, trace_id=_trace_id(), attempts=taken.attempt)
                _note(span, result)
            is_platform = result.end is TaskEnd.PLATFORM_FAILURE
            if not is_platform:
                shared.allowance.earn()
            elif session.is_retryable and taken.attempt <= shared.bounds.retries and shared.allowance.take():
                shared.progress.retries += 1
                taken = await shared.checkpoint.again(taken)
                await _paused(shared, taken.attempt)
                continue
            steps = map(line_of, steps_of(result.run)) if result.run else ()
            await shared.checkpoint.finish(task.key, result, steps)
            return result
    except NotOurs:
        return None
    except asyncio.CancelledError:
        await shared.checkpoint.give_back(taken)
        raise


async def _paused(shared: Shared, attempt: int) -> None:
    shared.progress.stages[Stage.PAUSED] += 1
    try:
        await shared.sleep(_BACKOFF.after(attempt - 1))
    finally:
        shared.progress.stages[Stage.PAUSED] -= 1


def _named(task: AgentTask, taken: Taken, shared: Shared) -> dict[str, str]:
    return {
        "sandfleet.run.id": shared.run_id,
        "sandfleet.task.key": task.key,
        "sandfleet.task.attempt": str(taken.attempt),
    }


def _note(span: tracing.Recorder, result: TaskResult) -> None:
    """What a report of the run shows of the task."""
    span.set("sandfleet.run.end", result.end.value)
    span.set("sandfleet.blame", result.blame.value)
    span.set("sandfleet.claim.wait_seconds", result.spent.claim_seconds)
    span.set("gen_ai.usage.input_tokens", result.spent.input_tokens)
    span.set("gen_ai.usage.output_tokens", result.spent.output_tokens)
    if result.sandbox_id:
        span.set("sandfleet.sandbox.id", result.sandbox_id)
    if result.blame is Blame.PLATFORM:
        span.fail(result.end.value)


def _trace_id() -> str:
    parent = tracing.traceparent()
    return parent.split("-")[1] if parent else ""


class Session:
    """One attempt at a task, in one sandbox."""

    def __init__(self, task: AgentTask, taken: Taken, shared: Shared) -> None:
        self._task = task
        self.taken = taken
        self._shared = shared
        self._stage: Stage | None = None
        # Whether a failure of the platform may end another way in another sandbox.
        self.is_retryable = True
        self._journal_head = ""

    async def run(self) -> TaskResult:
        """Return how it ended, whatever happens in it. Raises NotOurs, CheckpointError, and cancellation."""
        began = self._shared.clock()
        try:
            self._enter(Stage.CLAIMING)
            try:
                sandbox = await self._open()
            except CheckpointError:
                raise
            except SandfleetError as error:
                self.is_retryable = error.retryable
                return self._ended(TaskEnd.PLATFORM_FAILURE, f"no sandbox: {error}")
            waited = self._shared.clock() - began
            result = await self._in(sandbox)
            spent = replace(result.spent, claim_seconds=waited, seconds=self._shared.clock() - began - waited)
            return replace(result, spent=spent, journal_head=self._journal_head)
        finally:
            self._enter(None)

    def _enter(self, stage: Stage | None) -> None:
        stages = self._shared.progress.stages
        if self._stage is not None:
            stages[self._stage] -= 1
        if stage is not None:
            stages[stage] += 1
        self._stage = stage

    def _ended(self, end: TaskEnd, message: str = "", **fields: Any) -> TaskResult:
        return TaskResult(self._task.key, end, " ".join(message.split())[:2000], **fields)

    async def _open(self) -> DrivenSandbox:
        """Take the sandbox of an earlier process on, or claim one. Raises SandfleetError."""
        if self.taken.sandbox_id:
            try:
                sandbox = await DrivenSandbox.resume(self.taken.sandbox_id, fleet=self._shared.fleet, keep_alive=True)
            except (SandboxEnded, ClaimError):
                self.taken = await self._shared.checkpoint.again(self.taken)
            else:
                return self._driven(sandbox, is_continued=True)
        options: CreateOptions = {
            "timeout": 120.0,
            "max_wait": self._shared.bounds.claim,
            "keep_alive": True,
            **self._shared.claim_options,
            "request_id": self.taken.request_id,
        }
        return self._driven(await self._claimed(options), is_continued=False)

    async def _claimed(self, options: CreateOptions) -> DrivenSandbox:
        """Claim a sandbox. Cancelled, it leaves none behind. Raises SandfleetError."""
        made: DrivenSandbox | None = None
        own = options.get("on_queued")
        try:
            async with self._shared.gate.claim() as claiming:
                options["on_queued"] = partial(self._heard, claiming.heard, own)
                made = await self._claim(options)
        except asyncio.CancelledError:
            await self._undone(made, options)
            raise
        return made

    async def _claim(self, options: CreateOptions) -> DrivenSandbox:
        return await DrivenSandbox.create(self._shared.template, fleet=self._shared.fleet, **options)

    async def _undone(self, made: DrivenSandbox | None, options: CreateOptions) -> None:
        """Release the sandbox of a claim that was cancelled.

        The fleet undoes a claim whose caller has gone. An answer that it has sent already is lost with the call: the
        same request id, without a wait, gives the sandbox, or says that there is none.
        """
        with suppress(SandfleetError, TimeoutError):
            async with asyncio.timeout(_RELEASE):
                made = made or await self._claim({**options, "max_wait": 0.0, "on_queued": None})
        if made is not None:
            await _released(made, is_ours=True)

    def _heard(self, heard: Callable[[Queued], None], own: OnQueued | None, news: Queued) -> object:
        heard(news)
        self._shared.progress.queued = news
        return own(news) if own is not None else None

    def _driven(self, sandbox: DrivenSandbox, *, is_continued: bool) -> DrivenSandbox:
        sandbox.drive(self._shared.turns, self.taken.request_id[:24], is_continued=is_continued)
        return sandbox

    async def _in(self, sandbox: DrivenSandbox) -> TaskResult:
        """Let the agent work in the sandbox, and release it. Raises NotOurs, CheckpointError, and cancellation."""
        self._enter(Stage.WORKING)
        limit = asyncio.timeout(self._shared.bounds.session)
        used: list[AsyncSandbox] = [sandbox]
        is_ours = True
        try:
            async with limit:
                return await self._worked(sandbox, used)
        except (NotOurs, CheckpointError) as error:
            is_ours = not isinstance(error, NotOurs)
            raise
        except SandfleetError as error:
            return self._ended(TaskEnd.PLATFORM_FAILURE, str(error), sandbox_id=sandbox.sandbox_id)
        except Exception as error:  # noqa: BLE001  what users' factories, policies and agents raise is one task's end
            _log.info("the agent of task %s raised", self._task.key, exc_info=True)
            end, message = TaskEnd.AGENT_ERROR, f"the agent raised {type(error).__name__}: {error}"
            if limit.expired():
                end, message = TaskEnd.TIMED_OUT, f"the session's {self._shared.bounds.session:g} s were over"
            return self._ended(end, message, sandbox_id=sandbox.sandbox_id)
        finally:
            self._enter(Stage.ENDING)
            for one in used:
                await _released(one, is_ours=is_ours)
            # The head of the last call comes with the end of the sandbox's object.
            kept = used[-1].journal.kept_head
            self._journal_head = str(kept.head) if kept is not None else ""

    async def _worked(self, sandbox: DrivenSandbox, used: list[AsyncSandbox]) -> TaskResult:
        """Run the agent to its end; `used` gets the sandbox that it has claimed in the place of its first one."""
        gaps = Gaps(sandbox, self._shared.fleet, self._shared.parking, self._shared.clock)
        agent = await self._agent(sandbox, gaps)
        run = await agent.run(self._task.prompt)
        present = agent.sandbox if isinstance(agent, CodeActAgent) else sandbox
        if isinstance(present, AsyncSandbox) and present is not sandbox:
            used.append(present)
        self._enter(Stage.ENDING)
        result = await self._judged(run, used[-1])
        return replace(result, spent=await self._spent(run, used[-1], gaps))

    async def _agent(self, sandbox: DrivenSandbox, gaps: Gaps) -> Agent:
        recorded = tuple(map(actions.from_json, self.taken.actions)) if sandbox.is_continued else ()
        if not recorded:
            await self._shared.checkpoint.bound(self.taken, sandbox.sandbox_id)
            for path, content in self._task.files.items():
                await sandbox.files.write(path, content)
        made = self._shared.make_agent(sandbox, self._task)
        agent = await made if inspect.isawaitable(made) else made
        if isinstance(agent, CodeActAgent):
            agent.wrap_policy(lambda policy: self._driven_policy(policy, recorded, gaps))
        return agent

    def _driven_policy(self, policy: Policy, recorded: tuple[Any, ...], gaps: Gaps) -> Policy:
        async def record(number: int, action: Any) -> None:
            self._shared.progress.steps += 1
            await self._shared.checkpoint.act(self.taken, number, actions.to_json(action))

        return DrivenPolicy(policy, recorded, record, gaps)

    async def _judged(self, run: AgentRun, sandbox: AsyncSandbox) -> TaskResult:
        # Each end of a run is one of a task, by the same word.
        end, message = TaskEnd(run.end.value), run.message
        answer = tuple(str(value) for value in run.answer.values) if run.answer else ()
        if end is TaskEnd.ANSWERED and self._task.check is not None:
            end, message = await self._checked(run, sandbox)
        counted = {"steps": len(run.steps), "failures": run.failures, "recoveries": run.recoveries, "run": run}
        return self._ended(end, message, answer=answer, sandbox_id=sandbox.sandbox_id, **counted)

    async def _checked(self, run: AgentRun, sandbox: AsyncSandbox) -> tuple[TaskEnd, str]:
        check = self._task.check
        assert check is not None
        try:
            async with asyncio.timeout(self._shared.bounds.check):
                # A plain function runs in a thread: it may take long.
                is_async = inspect.iscoroutinefunction(check)
                said = check(run, sandbox) if is_async else await asyncio.to_thread(check, run, sandbox)
                trouble = await said if inspect.isawaitable(said) else said
        except TimeoutError:
            return TaskEnd.CHECK_FAILED, f"the checker did not return within {self._shared.bounds.check:g} s"
        except SandfleetError as error:
            return TaskEnd.PLATFORM_FAILURE, f"cannot check the answer: {error}"
        except Exception as error:  # noqa: BLE001  what a user's checker raises is one task's end
            _log.info("the checker of task %s raised", self._task.key, exc_info=True)
            return TaskEnd.CHECK_FAILED, f"the checker raised {type(error).__name__}: {error}"
        return (TaskEnd.WRONG, str(trouble)) if trouble else (TaskEnd.ANSWERED, run.message)

    async def _spent(self, run: AgentRun, sandbox: AsyncSandbox, gaps: Gaps) -> Spent:
        tokens = run.tokens
        spent = Spent(
            parks=gaps.parks,
            parked_seconds=gaps.parked_seconds,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
        )
        try:
            usage = await sandbox.usage()
        except SandfleetError:
            return spent  # The sandbox is gone; the result stands without it.
        return replace(spent, cpu_seconds=usage.total_cpu_seconds, peak_memory_bytes=usage.peak_memory_bytes)


async def _released(sandbox: AsyncSandbox, *, is_ours: bool) -> None:
    """End a sandbox; one that another process has taken on is only left."""
    leaving = asyncio.ensure_future(sandbox.kill() if is_ours else sandbox.close())
    # What cannot be released now ends with its lease, which is renewed no more.
    await asyncio.wait({leaving}, timeout=_RELEASE)
    if not leaving.done():
        leaving.cancel()
    elif not leaving.cancelled():
        leaving.exception()
