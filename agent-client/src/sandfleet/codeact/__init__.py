"""CodeAct: an agent that acts by writing code, as a loop around a sandbox.

    async with await AsyncSandbox.create() as sandbox:
        run = await CodeActAgent(policy, sandbox).run("How many orders are there?")
        print(run.end, run.answer)

A policy is an async callable from the conversation so far to the next action. Two are shipped: `policies.scripted` and
`policies.openai`.
"""

from sandfleet.codeact.conversation import (
    Action,
    AgentRun,
    Call,
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
    Said,
    Step,
    Tokens,
    Verdict,
)
from sandfleet.codeact.environment import Environment
from sandfleet.codeact.evidence import Evidence, Image
from sandfleet.codeact.loop import CodeActAgent

__all__ = [
    "Action",
    "AgentRun",
    "Call",
    "CodeActAgent",
    "Conversation",
    "End",
    "Environment",
    "Evidence",
    "FinalAnswer",
    "GiveUp",
    "Image",
    "Judge",
    "NoAction",
    "Policy",
    "PolicyError",
    "RunCode",
    "RunCommand",
    "Said",
    "Step",
    "Tokens",
    "Verdict",
]
