"""Decides which calls run: the policy, the flow of information, and a person where one of them wants one asked."""

from __future__ import annotations

import base64
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sandfleet_rules.tool_values import BYTES

from sandfleet.errors import SandfleetError
from sandfleet.tools import policies
from sandfleet.tools.flow import UNTRUSTED_SESSION, Flow
from sandfleet.tools.ledger import Failure, Received, denied
from sandfleet.tools.policies import ALLOW, decided, decision_of
from sandfleet.tools.values import encode
from sandfleet.values.tools import Decision, ToolCall, ToolSession

if TYPE_CHECKING:
    from sandfleet.tools.threads import ToolThreads
    from sandfleet.values.tools import Tool, ToolPolicy

# Asks the reviewers of the session about a call (shown to them, why). Raises SandfleetError.
AskReviewers = Callable[[Received, bytes, str], Awaitable[Decision]]
_MAX_WHY = 2000
_log = logging.getLogger("sandfleet")


class Approval:
    """Of the calls of one session."""

    def __init__(
        self,
        sandbox_id: str,
        deciders: tuple[ToolPolicy | None, ToolPolicy | None],
        flow: Flow,
        ask: AskReviewers,
        threads: ToolThreads,
    ) -> None:
        """`deciders` are the policy, and the `on_ask` that is asked where the policy wants a person asked."""
        policy, on_ask = deciders
        policies.check(policy, "the policy")
        policies.check(on_ask, "on_ask")
        self._sandbox_id = sandbox_id
        self._threads = threads
        self._policy = policy
        self._on_ask = on_ask
        self._flow = flow
        self._ask = ask

    async def refusal(
        self, call: Received, tool: Tool, arguments: Mapping[str, Any], ran: Mapping[str, int]
    ) -> Failure | None:
        """Why the call does not run; None: it does. A policy that fails allows nothing. `ran`: calls by tool."""
        if self._policy is None and not tool.needs:
            return None
        asked = ToolCall(call.tool, arguments, call.execution_id, call.context_id, call.service)
        before = {**ran, call.tool: ran.get(call.tool, 1) - 1}
        try:
            session = ToolSession(self._sandbox_id, before, self._flow.received)
            own = ALLOW if self._policy is None else await decision_of(self._policy, asked, session)
            decision = await self._flow.decided(tool, own)
            if decision.ask and not decision.allowed:
                return await self._unless_approved(call, asked, session, decision)
        except Exception as error:  # noqa: BLE001  closed where it fails
            # The code in the sandbox gets nothing but the name of the error.
            _log.exception("the policy, or on_ask, of tool %s has failed in sandbox %s", call.tool, self._sandbox_id)
            return denied(call.tool, "PolicyFailed", f"the policy has failed ({type(error).__name__})")
        return None if decision.allowed else denied(call.tool, "Policy", decision.why or "the policy does not allow it")

    async def _unless_approved(
        self, call: Received, asked: ToolCall, session: ToolSession, decision: Decision
    ) -> Failure | None:
        """What the person decides whom the policy wants asked; None: the call may run. Raises what `on_ask` raises."""
        if self._on_ask is not None:
            answer = await self._person(self._on_ask, asked, session)
        else:
            answer = await self._reviewed(call, asked.arguments, decision.why)
        if answer.allowed:
            return None
        # The flow of information asks, or the policy does.
        reason = "NotTrusted" if decision is UNTRUSTED_SESSION else "NotApproved"
        return denied(call.tool, reason, answer.why or decision.why or "a person has not approved it")

    async def _person(self, on_ask: ToolPolicy, asked: ToolCall, session: ToolSession) -> Decision:
        if inspect.iscoroutinefunction(on_ask):
            return await decision_of(on_ask, asked, session)
        # A person takes time, and may be asked by `input`, which blocks.
        work = partial(on_ask, asked, session)
        return await decided(await self._threads.run(work, _nothing, _nothing))

    async def _reviewed(self, call: Received, arguments: Mapping[str, Any], why: str) -> Decision:
        try:
            return await self._ask(call, shown(arguments), why[:_MAX_WHY])
        except SandfleetError as error:
            said = f"{why or 'a person has to approve it'}, and no reviewer can be asked: {error.message}"
            return Decision(allowed=False, why=said)


def _nothing() -> None:
    """For a question, which is no call of a tool."""


def shown(arguments: Mapping[str, Any]) -> bytes:
    """The arguments as a reviewer sees them: JSON, tables as rows, byte strings as base64. Different ones differ."""
    wire = encode(arguments)
    return json.dumps(_shown(json.loads(wire.json), wire.blobs), indent=2, ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )


def _shown(plain: Any, blobs: tuple[bytes, ...]) -> Any:
    if isinstance(plain, list):
        return [_shown(each, blobs) for each in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {BYTES}:
        return {BYTES: base64.b64encode(blobs[plain[BYTES]]).decode("ascii")}
    return {name: _shown(each, blobs) for name, each in plain.items()}
