"""The CodeAct loop: policy → check of the environment → execution → observation → policy, until a typed end."""

import asyncio
import inspect
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from os import PathLike

from sandfleet.codeact import decide, observe, tracing
from sandfleet.codeact.conversation import (
    Action,
    AgentRun,
    Conversation,
    End,
    FinalAnswer,
    GiveUp,
    Judge,
    NoAction,
    Policy,
    PolicyError,
    RunCode,
    RunCommand,
    Step,
    Verdict,
    next_action,
)
from sandfleet.codeact.environment import (
    WITH_EXECUTOR,
    Claim,
    Environment,
    EnvironmentGone,
    HostTools,
    Replaced,
    Watched,
    claiming,
    skills_of,
)
from sandfleet.codeact.evidence import Evidence, of_command, of_execution, told_once
from sandfleet.errors import InvalidArgument, SandfleetError
from sandfleet.observe.intent import intent
from sandfleet.values.execution import Outcome
from sandfleet.values.tools import AnyTool, ToolPolicy

# What an executor gets beyond the deadline of an execution before its silence counts as a loss, in seconds.
_PATIENCE = 30.0


class CodeActAgent:
    """Drives one sandbox with one policy.

    policy        what to do next, from the conversation so far.
    sandbox       an `AsyncSandbox`. When it ends under the agent, another one is claimed on its workspace where that
                  was kept (`AsyncSandbox.create(keep_workspace=True)`); `agent.sandbox` is the present one, and the
                  caller's to kill.
    max_steps     steps in all. max_failures: failed steps in a row that end the run (the last of them included).
    timeout       deadline of each execution, in seconds.
    on_step       called after each step.
    judge         what decides on an answer instead of the evidence: a function, async or not, of the answer and the
                  conversation, that returns why the answer is rejected, in words for the model, or None. For answers
                  that are no values.
    claim         how another sandbox is had when the present one has ended.
    tools         functions of this process and MCP servers whose tools the code calls, as `Sandbox.serve_tools` has
                  them: the sandbox is a brokered one. The policy is shown them as Python stubs.
    tool_policy   decides about each call. on_tool_ask: decides, as a person says, where the policy wants one asked;
                  without it the call waits as a review. tool_calls_file: keeps what this process knows of their calls,
                  as `calls_file` of `serve_tools`. A sandbox that is claimed in the place of one that has ended gets
                  a file of its own beside it.
    """

    def __init__(
        self,
        policy: Policy,
        sandbox: Environment,
        *,
        max_steps: int = 20,
        max_failures: int = 3,
        timeout: float = 60.0,
        name: str = "codeact",
        sizes: observe.Sizes | None = None,
        on_step: Callable[[Step], object] | None = None,
        judge: Judge | None = None,
        claim: Claim | None = None,
        tools: Sequence[AnyTool] = (),
        tool_policy: ToolPolicy | None = None,
        on_tool_ask: ToolPolicy | None = None,
        tool_calls_file: str | PathLike[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._policy = policy
        self._tools = HostTools(tools, tool_policy, on_tool_ask, tool_calls_file)
        self._watched = Watched(sandbox, claim or claiming(sandbox, brokered=bool(tools)), sleep)
        self._bounds = decide.Bounds(max_steps, max_failures)
        self._timeout = timeout
        self._name = name
        self._sizes = sizes or observe.Sizes()
        self._on_step = on_step
        self._judge = judge
        self._clock = clock
        self._recoveries = 0
        # Whether anything was run in the present environment.
        self._used = False
        # What the last observation said was lost.
        self._told: tuple[str, ...] = ()

    @property
    def sandbox(self) -> Environment:
        """The present sandbox: the one that was given, or the one that was claimed in its place."""
        return self._watched.environment

    def wrap_policy(self, wrap: Callable[[Policy], Policy]) -> None:
        """Put another policy in the place of this agent's: what `wrap` makes of it."""
        self._policy = wrap(self._policy)

    async def run(self, task: str) -> AgentRun:
        """Work on a task to a typed end. Raises only what is wrong in the program around it (and cancellation)."""
        began, self._recoveries = self._clock(), 0
        with tracing.run(self._name, uuid.uuid4().hex) as span:
            # A sandbox whose code can call no tools is the program's mistake, and said before the policy is asked.
            await self._tools.serve(self.sandbox)
            begun = Conversation(
                task, needs_evidence=self._judge is None, tools=self._tools.stubs, skills=skills_of(self.sandbox)
            )
            conversation, stop = await self._to_the_end(begun)
            span.set("sandfleet.run.end", stop.end.value)
            span.set("sandfleet.run.steps", len(conversation.steps))
            span.tell("sandfleet.run.task", task)
            span.tell("sandfleet.run.message", stop.message)
            last = conversation.last.action if conversation.last else None
            answer = last if isinstance(last, FinalAnswer) and stop.end is End.ANSWERED else None
            span.tell("sandfleet.run.answer", "; ".join(map(str, answer.values)) if answer else "")
        return AgentRun(
            task=task,
            end=stop.end,
            message=observe.encodable(stop.message),
            steps=conversation.steps,
            answer=answer,
            error=stop.error,
            recoveries=self._recoveries,
            seconds=self._clock() - began,
        )

    async def _to_the_end(self, conversation: Conversation) -> tuple[Conversation, decide.Stop]:
        progress, stop = decide.Progress(), None
        while stop is None:
            try:
                action = await next_action(self._policy, conversation)
            except PolicyError as error:
                return conversation, decide.Stop(End.POLICY_FAILED, f"the policy failed: {error}", error)
            try:
                step = await self._step(conversation, action)
                progress = decide.advance(progress, step.verdict)
                stop = decide.stop_after(self._bounds, progress, step)
            except EnvironmentGone as error:
                step = Step(len(conversation.steps) + 1, action, Verdict.LOST, observe.encodable(str(error)))
                stop = decide.Stop(End.PLATFORM_FAILURE, str(error))
            conversation = replace(conversation, steps=(*conversation.steps, step))
            if self._on_step is not None:
                self._on_step(step)
        return conversation, stop

    async def _step(self, conversation: Conversation, action: Action) -> Step:
        number, began = len(conversation.steps) + 1, self._clock()
        with tracing.step(self._name, action) as span:
            step = await self._act(conversation, number, action)
            tracing.end_step(span, step)
        remark = action.said.remark if action.said is not None else ""
        text = observe.encodable(observe.remarked(step.observation, remark))
        return replace(step, observation=text, seconds=self._clock() - began)

    async def _act(self, conversation: Conversation, number: int, action: Action) -> Step:
        match action:
            case FinalAnswer():
                return await self._judged(conversation, number, action)
            case GiveUp():
                return Step(number, action, Verdict.GAVE_UP, action.reason)
            case NoAction():
                return Step(number, action, Verdict.FAILED, observe.nothing_to_run(number, action.reason))
            case RunCode() | RunCommand():
                return await self._execute(number, action)
        kinds = "RunCode(…), RunCommand(…), FinalAnswer(…) or GiveUp(…)"
        raise TypeError(f"cannot act: the policy returned {type(action).__name__}, which is no action: return {kinds}")

    async def _judged(self, conversation: Conversation, number: int, answer: FinalAnswer) -> Step:
        if self._judge is None:
            objection = decide.objection_to(answer, conversation)
        else:
            said = self._judge(answer, conversation)
            objection = await said if inspect.isawaitable(said) else said
        if objection is None:
            return Step(number, answer, Verdict.ACCEPTED, f"[step {number}] ANSWER ACCEPTED")
        return Step(number, answer, Verdict.FAILED, observe.answer_rejected(number, objection))

    async def _execute(self, number: int, action: RunCode | RunCommand) -> Step:
        if why := _unsendable(action):
            return Step(number, action, Verdict.FAILED, observe.refused(number, why))
        replaced = await self._replaced(self._watched.check())
        if replaced is not None:
            return _not_run(number, action, replaced.reason, replaced)
        try:
            await self._tools.serve(self.sandbox)
            evidence = told_once(await self._run(action), self._told)
        except InvalidArgument as error:
            return Step(number, action, Verdict.FAILED, observe.refused(number, str(error)))
        except (SandfleetError, OSError) as error:
            reason = str(error) or "it did not answer in time"
            return _not_run(number, action, reason, await self._replaced(self._watched.recover(reason)))
        if (preemption := self._watched.preempted()) is not None:
            evidence = replace(evidence, notices=(observe.preempted(preemption), *evidence.notices))
        self._used, self._told = True, (*evidence.lost, evidence.restored)
        if evidence.outcome is Outcome.LOST or set(WITH_EXECUTOR) <= set(evidence.lost):
            # The evidence says what was lost; here the new environment only has to be known.
            replaced = await self._replaced(self._watched.recover(evidence.message))
            if replaced is not None and replaced.restored:
                evidence = replace(evidence, lost=replaced.lost, restored=replaced.restored)
            self._told = (*evidence.lost, evidence.restored)
        kept = replaced is None or replaced.workspace_kept
        text = observe.observation(number, evidence, self._sizes, workspace_kept=kept)
        return Step(number, action, decide.verdict_on(evidence), text, evidence)

    async def _run(self, action: RunCode | RunCommand) -> Evidence:
        # The executor keeps the deadline. This limit is for an executor that is silent altogether; a reviewer may take
        # any time.
        limit = None if self._watched.is_reviewed else self._timeout + _PATIENCE
        async with asyncio.timeout(limit):
            with intent(action.intent or None):
                return await self._sent(action)

    async def _sent(self, action: RunCode | RunCommand) -> Evidence:
        if isinstance(action, RunCode):
            execution = await self.sandbox.run_code(action.code, language=action.language, timeout=self._timeout)
            return of_execution(execution)
        command = action.command if isinstance(action.command, str) else list(action.command)
        return of_command(await self.sandbox.commands.run(command, timeout=self._timeout))

    async def _replaced(self, look: Awaitable[Replaced | None]) -> Replaced | None:
        """Count a replacement in; None when there was none, or nothing was lost."""
        replaced, used = await look, self._used
        if replaced is None:
            return None
        self._recoveries += 1
        self._used, self._told = False, (*replaced.lost, replaced.restored)
        return replaced if used or not replaced.workspace_kept else None


def _unsendable(action: RunCode | RunCommand) -> str:
    """Why an action cannot be sent to any sandbox; "" when it can."""
    texts = {"code": action.code, "language": action.language} if isinstance(action, RunCode) else {}
    if isinstance(action, RunCommand):
        texts["command"] = action.command if isinstance(action.command, str) else "\0".join(action.command)
    wrong = ((name, observe.lone_surrogate(text)) for name, text in texts.items())
    return next((f"cannot run the {name}: {why}" for name, why in wrong if why), "")


def _not_run(number: int, action: Action, reason: str, replaced: Replaced | None) -> Step:
    if replaced is None:
        return Step(number, action, Verdict.LOST, observe.not_run(number, reason, ()))
    text = observe.not_run(number, reason, replaced.lost, replaced.restored, workspace_kept=replaced.workspace_kept)
    return Step(number, action, Verdict.LOST, text)
