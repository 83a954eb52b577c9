"""What follows a step. Pure."""

from dataclasses import dataclass, replace

from sandfleet.codeact.answers import is_empty, missing_values
from sandfleet.codeact.conversation import Conversation, End, FinalAnswer, PolicyError, Step, Verdict
from sandfleet.codeact.evidence import Evidence
from sandfleet.values.execution import Blame, Outcome

# Characters of an observation in a message.
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one run: steps in all, failures in a row, losses by the platform in a row."""

    max_steps: int
    max_failures: int
    max_losses: int = 3

    def __post_init__(self) -> None:
        if min(self.max_steps, self.max_failures, self.max_losses) < 1:
            raise ValueError("cannot bound a run: max_steps, max_failures and max_losses are at least 1")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    steps: int = 0
    failures_in_a_row: int = 0
    losses_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    end: End
    message: str
    error: PolicyError | None = None


def verdict_on(evidence: Evidence) -> Verdict:
    """What an execution means for the loop: the platform's failures are never the code's."""
    if evidence.outcome is Outcome.OK:
        return Verdict.OK
    # Code that fails for want of what the platform lost did nothing wrong.
    lost_by_platform = evidence.blame is Blame.CODE and "tmp" in evidence.lost
    if lost_by_platform or evidence.outcome is Outcome.LOST or evidence.blame is Blame.PLATFORM:
        return Verdict.LOST
    return Verdict.FAILED


def advance(progress: Progress, verdict: Verdict) -> Progress:
    """Counts a step in. A success ends both rows; a loss leaves the row of failures as it is."""
    steps = progress.steps + 1
    match verdict:
        case Verdict.FAILED:
            return Progress(steps, progress.failures_in_a_row + 1, 0)
        case Verdict.LOST:
            return replace(progress, steps=steps, losses_in_a_row=progress.losses_in_a_row + 1)
        case _:
            return Progress(steps)


def stop_after(bounds: Bounds, progress: Progress, step: Step) -> Stop | None:
    """How the run ends after a step, or None when it goes on."""
    if step.verdict is Verdict.ACCEPTED:
        return Stop(End.ANSWERED, "the answer was accepted")
    if step.verdict is Verdict.GAVE_UP:
        return Stop(End.GAVE_UP, f"the policy gave up: {step.observation}")
    if progress.losses_in_a_row >= bounds.max_losses:
        return Stop(End.PLATFORM_FAILURE, f"the environment was lost {progress.losses_in_a_row} times in a row")
    if progress.failures_in_a_row >= bounds.max_failures:
        last = step.observation.partition("\n")[0][:_SHOWN]
        return Stop(End.GAVE_UP, f"{progress.failures_in_a_row} steps failed in a row; the last one: {last}")
    if progress.steps >= bounds.max_steps:
        return Stop(End.OUT_OF_STEPS, f"no answer within {bounds.max_steps} steps")
    return None


def objection_to(answer: FinalAnswer, conversation: Conversation) -> str | None:
    """Why an answer is rejected, in words for a model; None when it stands."""
    if not answer.execution_id:
        return "it names no execution. An answer names the execution whose output it stands in."
    evidence = conversation.evidence_of(answer.execution_id)
    if evidence is None:
        return f"no execution {answer.execution_id!r} in this run. An answer names the execution whose output it stands in."
    if evidence.outcome is not Outcome.OK:
        return f"the execution that it names ended with outcome {evidence.outcome.value}. Rest it on one that ended ok."
    if is_empty(answer.values):
        return "it is empty."
    if not (missing := missing_values(answer.values, evidence.output)):
        return None
    cut = " A part of that output was dropped: print less." if evidence.dropped_bytes else ""
    return f"not in the output of the execution that it names: {_listed(missing)}. Print the value, then answer with what was printed.{cut}"


def _listed(values: tuple[str, ...]) -> str:
    shown = ", ".join(repr(value[:80]) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
