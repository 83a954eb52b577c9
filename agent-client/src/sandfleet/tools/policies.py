"""Ready-made policies: which calls of tools run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from sandfleet.errors import InvalidArgument
from sandfleet.values.tools import Decision

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sandfleet.values.tools import ToolCall, ToolPolicy, ToolSession

ALLOW = Decision(allowed=True)


async def decision_of(policy: ToolPolicy, call: ToolCall, session: ToolSession) -> Decision:
    """Ask the policy, asynchronous or not. Raises TypeError for an answer that is no decision."""
    return await decided(policy(call, session))


async def decided(answer: Decision | Awaitable[Decision]) -> Decision:
    """Take the answer of a policy, asynchronous or not. Raises TypeError for an answer that is no decision."""
    decision = await answer if inspect.isawaitable(answer) else answer
    if not isinstance(decision, Decision):
        raise TypeError(f"a policy has to return a Decision, as Decision(allowed=True), and returned {decision!r:.80}")
    return decision


def check(policy: ToolPolicy | None, name: str) -> None:
    """Raise InvalidArgument for a policy that cannot be called with a call and the session."""
    try:
        if policy is not None:
            inspect.signature(policy).bind(None, None)
    except ValueError:
        return  # A function without a signature, of C.
    except TypeError as error:
        raise InvalidArgument(f"cannot serve tools: {name} has to take two arguments, call and session") from error


def allow_all(call: ToolCall, session: ToolSession) -> Decision:  # noqa: ARG001  as every policy
    """Allow each call."""
    return ALLOW


def only(*tools: str) -> ToolPolicy:
    """Allow calls of these tools and no others."""
    return lambda call, _: ALLOW if call.tool in tools else Decision(allowed=False, why="the policy does not allow it")


def never(*tools: str) -> ToolPolicy:
    """Refuse calls of these tools."""
    return lambda call, _: Decision(allowed=False, why="the policy forbids it") if call.tool in tools else ALLOW


def ask(*tools: str) -> ToolPolicy:
    """Let a person decide about calls of these tools: the `on_ask` of `serve_tools`, or the session's reviewers."""
    asks = Decision(allowed=False, why="a person has to approve it", ask=True)
    return lambda call, _: asks if call.tool in tools else ALLOW


def unless_secret(*tools: str) -> ToolPolicy:
    """Let a person decide about calls of these tools once the session has received secrets."""
    asks = Decision(allowed=False, why="the session has received secrets", ask=True)
    return lambda call, session: asks if call.tool in tools and "secret" in session.received else ALLOW


def all_of(*policies: ToolPolicy) -> ToolPolicy:
    """Allow a call that each of the policies allows. They are asked in their order, up to the first that refuses.

    Where none refuses and one wants a person to decide, the person decides.
    """

    async def decide(call: ToolCall, session: ToolSession) -> Decision:
        found = ALLOW
        for policy in policies:
            decision = await decision_of(policy, call, session)
            if not decision.allowed and not decision.ask:
                return decision
            found = found if decision.allowed or found.ask else decision
        return found

    return decide
