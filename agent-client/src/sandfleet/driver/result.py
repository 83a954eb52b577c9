"""How a task ended: frozen values, and their form in a checkpoint. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sandfleet.codeact.conversation import AgentRun


class TaskEnd(StrEnum):
    """How a task ended."""

    # An answer that stands, and that the task's checker has accepted.
    ANSWERED = "answered"
    # An answer that the task's checker has rejected.
    WRONG = "wrong"
    OUT_OF_STEPS = "out_of_steps"
    GAVE_UP = "gave_up"
    POLICY_FAILED = "policy_failed"
    # `make_agent`, the policy or the agent raised what no platform raises.
    AGENT_ERROR = "agent_error"
    # The session's time was over.
    TIMED_OUT = "timed_out"
    # The checker raised, or did not return in time.
    CHECK_FAILED = "check_failed"
    # The platform lost the session, or gave none, as often as the driver tries.
    PLATFORM_FAILURE = "platform_failure"
    # The list has the key twice, or a checkpoint knows it with another content.
    REFUSED = "refused"


class Blame(StrEnum):
    """Whose failure an end is."""

    NONE = "none"
    AGENT = "agent"
    # The program around the agents: its tasks, its checkers.
    PROGRAM = "program"
    PLATFORM = "platform"


_BLAMES = {
    TaskEnd.ANSWERED: Blame.NONE,
    TaskEnd.CHECK_FAILED: Blame.PROGRAM,
    TaskEnd.REFUSED: Blame.PROGRAM,
    TaskEnd.PLATFORM_FAILURE: Blame.PLATFORM,
}


@dataclass(frozen=True, slots=True)
class Spent:
    """What a task has cost.

    claim_seconds   from the claim to the sandbox, the wait in the queue included.
    seconds         of the session, from the sandbox to the end.
    parked_seconds  of them while the session was suspended; `parks` times.
    cpu_seconds     of all code in the sandbox, by the executor's own count; peak_memory_bytes too.
    """

    claim_seconds: float = 0.0
    seconds: float = 0.0
    parks: int = 0
    parked_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How one task of a run ended.

    message       why, in one sentence; "" where nothing is to be said.
    answer        the values of the final answer, as text.
    steps, failures, recoveries  of the agent: turns, those that failed, and replacements of its sandbox.
    attempts      sessions that the task took; more than one after failures of the platform.
    trace_id      of the OpenTelemetry trace, in hex; "" without a trace.
    journal_head  the newest head of the session's journal, "NUMBER:HASH"; "" where the sandbox has no journal.
    run           all steps; None where the result comes from a checkpoint, or there was no run.
    is_stored     it comes from the checkpoint: this process has not run the task.
    """

    key: str
    end: TaskEnd
    message: str = ""
    answer: tuple[str, ...] = ()
    steps: int = 0
    failures: int = 0
    recoveries: int = 0
    attempts: int = 1
    sandbox_id: str = ""
    trace_id: str = ""
    journal_head: str = ""
    spent: Spent = field(default_factory=Spent)
    run: AgentRun | None = field(default=None, compare=False, repr=False)
    is_stored: bool = field(default=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the task was solved."""
        return self.end is TaskEnd.ANSWERED

    @property
    def blame(self) -> Blame:
        """Whose failure it is."""
        return _BLAMES.get(self.end, Blame.AGENT)

    def to_json(self) -> dict[str, Any]:
        """Return all but `run` as JSON has it."""
        return asdict(replace(self, run=None)) | {"end": self.end.value, "answer": list(self.answer)}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Self:
        """Read what `to_json` has written. Raises ValueError, KeyError, TypeError for anything else."""
        known = {one.name for one in fields(cls)} - {"run", "is_stored"}
        own = {name: value for name, value in said.items() if name in known}
        spent = {name: value for name, value in own.pop("spent", {}).items() if name in Spent.__dataclass_fields__}
        end, answer = TaskEnd(own.pop("end")), tuple(map(str, own.pop("answer", ())))
        return cls(**own, end=end, answer=answer, spent=Spent(**spent), is_stored=True)
