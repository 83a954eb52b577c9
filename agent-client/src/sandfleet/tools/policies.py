"""Ready-made policies: which calls of tools run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from sandfleet.values.tools import Decision

if TYPE_CHECKING:
    from sandfleet.values.tools import ToolCall, ToolPolicy, ToolSession

ALLOW = Decision(allowed=True)


async def decision_of(policy: ToolPolicy, call: ToolCall, session: ToolSession) -> Decision:
    """What the policy decides, asynchronous or not."""
    decided = policy(call, session)
    return await decided if inspect.isawaitable(decided) else decided


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
