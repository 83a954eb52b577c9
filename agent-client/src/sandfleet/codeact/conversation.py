"""What a policy sees and what it may answer: frozen values. Pure."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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
class RunCode:
    """Run a cell in the session's live interpreter."""

    code: str
    language: str = "python"
    intent: str = ""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run a command: a line for the shell, or a program with its arguments."""

    command: str | tuple[str, ...]
    intent: str = ""


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """The answer, and the execution whose output it stands in.

    `value` is what is checked: one value or several. `text` is for people and is not checked.
    """

    value: AnswerValue | tuple[AnswerValue, ...]
    execution_id: str
    text: str = ""
    intent: str = ""

    @property
    def values(self) -> tuple[AnswerValue, ...]:
        return self.value if isinstance(self.value, tuple) else (self.value,)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """There is no way on."""

    reason: str
    intent: str = ""


Action = RunCode | RunCommand | FinalAnswer | GiveUp


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
    # Times that the environment was replaced under the agent.
    recoveries: int = 0
    seconds: float = 0.0

    @property
    def failures(self) -> int:
        """Steps that failed by the model's doing, repaired later or not."""
        return sum(step.verdict is Verdict.FAILED for step in self.steps)


class PolicyError(SandfleetError):
    """The policy could not come to an action (its model's endpoint failed, say). The run ends as `gave_up`."""


Policy = Callable[[Conversation], Awaitable[Action]]
