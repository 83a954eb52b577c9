"""What a policy sees and what it may answer: frozen values. Pure."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from sandfleet.codeact.answers import AnswerValue
from sandfleet.codeact.evidence import Evidence
from sandfleet.errors import SandfleetError


class End(StrEnum):
    """How a run of the loop ended."""

    ANSWERED = "answered"
    OUT_OF_STEPS = "out_of_steps"
    GAVE_UP = "gave_up"
    PLATFORM_FAILURE = "platform_failure"
    # The policy could not come to an action, because its model's endpoint failed. `AgentRun.error` is why.
    POLICY_FAILED = "policy_failed"


class Verdict(StrEnum):
    """What one step came to."""

    OK = "ok"
    # The code, a limit or a rejected answer: the model's to repair.
    FAILED = "failed"
    # The platform lost the execution or the environment: never the model's failure.
    LOST = "lost"
    ACCEPTED = "accepted"
    GAVE_UP = "gave_up"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the replies of a model have cost, in tokens; zero where the endpoint does not say."""

    input: int = 0
    output: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.input + other.input, self.output + other.output)


@dataclass(frozen=True, slots=True)
class Call:
    """A function that a model has called: its name and its arguments as the model wrote them, and the endpoint's id."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A model's own words, so that the history can show them to it unchanged.

    text       the reply with everything in it. calls: the functions that it called.
    reasoning  thinking that the endpoint has handed over apart from the text.
    remark     what the model has to be told of its reply, beside what came of the action ("2 blocks were not run").
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    remark: str = ""
    tokens: Tokens = Tokens()


# `said` takes no part in comparisons: two actions are equal when they do the same.
@dataclass(frozen=True, slots=True)
class RunCode:
    """Run a cell in the session's live interpreter."""

    code: str
    language: str = "python"
    intent: str = ""
    said: Said | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run a command: a line for the shell, or a program with its arguments."""

    command: str | tuple[str, ...]
    intent: str = ""
    said: Said | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """The answer, and the execution whose output it stands in.

    `value` is what is checked: one value or several. `text` is for people and is not checked. Where the agent has a
    judge of its own, no execution needs to be named.
    """

    value: AnswerValue | tuple[AnswerValue, ...]
    execution_id: str = ""
    text: str = ""
    intent: str = ""
    said: Said | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> tuple[AnswerValue, ...]:
        return self.value if isinstance(self.value, tuple) else (self.value,)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """There is no way on."""

    reason: str
    intent: str = ""
    said: Said | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NoAction:
    """A reply in which there is nothing to run and no answer. `reason` says why, for the model to repair it."""

    reason: str
    intent: str = ""
    said: Said | None = field(default=None, compare=False, repr=False)


Action = RunCode | RunCommand | FinalAnswer | GiveUp | NoAction


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: what was wanted, what was done, what was seen."""

    # From 1. Models name executions by it.
    number: int
    action: Action
    verdict: Verdict
    observation: str
    # None where nothing was run.
    evidence: Evidence | None = None
    # From the check of the environment to the observation; the policy's thinking is not in it.
    seconds: float = 0.0

    @property
    def intent(self) -> str:
        return self.action.intent


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that a policy decides on."""

    task: str
    steps: tuple[Step, ...] = ()
    # Whether an answer has to stand in the output of an execution. Without it the agent's own judge decides.
    needs_evidence: bool = True
    # The host's tools that Python code can call, as stubs in Python.
    tools: tuple[str, ...] = ()
    # The skills that were loaded into the sandbox, the same way.
    skills: tuple[str, ...] = ()

    @property
    def last(self) -> Step | None:
        return self.steps[-1] if self.steps else None

    def evidence_of(self, execution_id: str) -> Evidence | None:
        """What an execution of this run left behind; None when there was none of that id."""
        found = (step.evidence for step in self.steps if step.evidence is not None)
        return next((evidence for evidence in found if evidence.execution_id == execution_id), None)


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A finished run with all its steps."""

    task: str
    end: End
    # Why it ended so, in one sentence.
    message: str
    steps: tuple[Step, ...]
    answer: FinalAnswer | None = None
    # Why there was no further action, where the run ended as `policy_failed`.
    error: "PolicyError | None" = None
    # Times that the environment was replaced under the agent.
    recoveries: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        said = "; ".join(map(str, self.answer.values)) if self.answer else self.message
        return f"{self.end.value}: {said} ({len(self.steps)} step{'s' * (len(self.steps) != 1)}, {self.seconds:.1f} s)"

    @property
    def failures(self) -> int:
        """Steps that failed by the model's doing, repaired later or not."""
        return sum(step.verdict is Verdict.FAILED for step in self.steps)

    @property
    def tokens(self) -> Tokens:
        """What the model's replies have cost in all."""
        return sum((step.action.said.tokens for step in self.steps if step.action.said is not None), Tokens())


class PolicyError(SandfleetError):
    """The policy could not come to an action (its model's endpoint failed, say). The run ends as `policy_failed`."""


# A plain function runs in a thread.
Policy = Callable[[Conversation], "Awaitable[Action] | Action"]


async def next_action(policy: Policy, conversation: Conversation) -> Action:
    """Ask a policy for its next action. Raises what it raises."""
    call = policy if inspect.isroutine(policy) else getattr(policy, "__call__", policy)  # noqa: B004 - to look at it
    if inspect.iscoroutinefunction(call):
        answer = policy(conversation)
    else:
        answer = await asyncio.to_thread(policy, conversation)
    return await answer if inspect.isawaitable(answer) else answer


# Why an answer is rejected, in words for the model; None when it stands.
Judge = Callable[[FinalAnswer, Conversation], "Awaitable[str | None] | str | None"]
