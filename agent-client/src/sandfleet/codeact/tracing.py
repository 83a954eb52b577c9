"""Spans of the loop, named as the GenAI conventions say: one for the run, for each step, for each call of a model.

No code, output or answer goes into them. The spans of the executions themselves are the client's and lie below the
step's.
"""

from contextlib import AbstractContextManager

from sandfleet.codeact.conversation import Action, FinalAnswer, GiveUp, NoAction, RunCode, RunCommand, Step, Verdict
from sandfleet.observe import tracing
from sandfleet.observe.contents import words

_KINDS: dict[type[object], str] = {
    RunCode: "run_code",
    RunCommand: "run_command",
    FinalAnswer: "final_answer",
    GiveUp: "give_up",
    NoAction: "no_action",
}


def kind_of(action: Action) -> str:
    """The word for an action."""
    return _KINDS.get(type(action), "unknown")


def run(agent: str, conversation_id: str) -> AbstractContextManager[tracing.Recorder]:
    """One run of an agent."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": conversation_id,
    }
    return tracing.call(f"invoke_agent {agent}", attributes)


def step(agent: str, action: Action) -> AbstractContextManager[tracing.Recorder]:
    """One step of a run."""
    kind = kind_of(action)
    return tracing.call(f"step {kind}", {"gen_ai.agent.name": agent, "sandfleet.step.kind": kind})


def chat(model: str, host: str) -> AbstractContextManager[tracing.Recorder]:
    """One call of a model."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "server.address": host,
    }
    return tracing.call(f"chat {model}", attributes)


def end_step(span: tracing.Recorder, done: Step) -> None:
    """What a step came to."""
    span.tell("sandfleet.step.intent", getattr(done.action, "intent", "") or getattr(done.action, "reason", ""))
    span.set("sandfleet.step.number", done.number)
    span.set("sandfleet.step.verdict", done.verdict.value)
    if done.evidence is not None:
        span.set("gen_ai.tool.call.id", done.evidence.execution_id)
        span.set("sandfleet.outcome", done.evidence.outcome.value)
        if done.evidence.lost:
            span.set("sandfleet.lost", words(done.evidence.lost))
    if isinstance(done.action, FinalAnswer) and done.action.execution_id:
        # An id: with the journal, a report finds the output in which the answer stands.
        span.set("sandfleet.answer.execution", done.action.execution_id)
    if done.verdict is Verdict.LOST:
        span.fail("environment_lost")
