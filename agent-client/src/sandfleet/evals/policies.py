"""The policies that an evaluation compares, by their names on the command line."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from sandfleet.codeact import Action, Conversation, FinalAnswer, GiveUp, Policy, RunCode
from sandfleet.codeact.policies.openai import OpenAIPolicy
from sandfleet.errors import InvalidArgument
from sandfleet.evals.task import EvalTask

# Makes the policy of one sample of a task; samples count from 1.
PolicyOf = Callable[[EvalTask, int], Policy]
_HELP = '"scripted:careful", "scripted:hasty", "openai:MODEL", or "module:function" of your own'


@dataclass(frozen=True, slots=True)
class Named:
    """A policy as it was asked for."""

    name: str
    policy_of: PolicyOf


def named(name: str) -> Named:
    """Find a policy. Raises InvalidArgument.

    "module:function" imports a function of the task and the number of the sample that returns a policy, from the
    working directory too.
    """
    kind, _, rest = name.partition(":")
    if name in ("scripted:careful", "scripted:hasty"):
        return Named(name, scripted(is_hasty=rest == "hasty"))
    if kind == "openai" and rest:
        model = OpenAIPolicy(rest)
        return Named(name, lambda _task, _sample: model)
    if kind in ("", "scripted", "openai") or not rest:
        raise InvalidArgument(f"cannot use the policy {name!r}: it is {_HELP}")
    return Named(name, _imported(name, kind, rest))


def _imported(name: str, module: str, function: str) -> PolicyOf:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: PolicyOf = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"cannot use the policy {name!r}: {error}") from error
    return found


def scripted(*, is_hasty: bool) -> PolicyOf:
    """Play the code that the tasks bring along; no model.

    The careful one runs each `solution`. The hasty one runs `wrong` instead, where there is one: in all samples of a
    part of the tasks, and in half of the samples of another part. Which is decided by key and sample, so that the same
    evaluation twice has the same results.
    """

    def policy_of(task: EvalTask, sample: int) -> Policy:
        is_wrong = is_hasty and bool(task.wrong) and _slips(task.key, sample)

        async def policy(conversation: Conversation) -> Action:
            return _move(conversation, task, task.wrong if is_wrong else task.solution)

        return policy

    return policy_of


def _slips(key: str, sample: int) -> bool:
    digest = hashlib.sha256(key.encode()).digest()
    return digest[0] % 4 == 0 or (digest[0] % 4 == 1 and (digest[1] + sample) % 2 == 0)


def _move(conversation: Conversation, task: EvalTask, code: str) -> Action:
    if not code:
        return GiveUp(f"the task {task.key} has no solution for a scripted policy")
    if conversation.last is None:
        return RunCode(code, intent="solve the task")
    evidence = conversation.last.evidence
    printed = evidence.stdout.strip() if evidence is not None else ""
    if evidence is None or not printed:
        return GiveUp("the code has printed no answer")
    return FinalAnswer(tuple(printed.splitlines()[-1].split()), evidence.execution_id)
