"""What a session has received from tools, and which tools that keeps from running.

The fleet keeps the marks of a session, not this process: a second host, a resumed session and a restarted program start
from them. Marks are only ever added. What cannot be read counts as untrusted, and what cannot be marked is not given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from sandfleet.errors import SandfleetError
from sandfleet.tools.ledger import Answer, Failure, Kind
from sandfleet.values.tools import Decision

if TYPE_CHECKING:
    from sandfleet.values.tools import Tool

UNTRUSTED, TRUSTED = "untrusted", "trusted"


UNTRUSTED_SESSION = Decision(allowed=False, ask=True, why="the session has received untrusted content")


# Adds marks to the session, which the fleet keeps, and gives all that it has. Raises SandfleetError.
Note = Callable[[Sequence[str]], Awaitable[frozenset[str]]]


class Flow:
    """The flow of information through the tools of one session. It costs no call where no tool is labelled."""

    def __init__(self, note: Note, tools: Sequence[Tool]) -> None:
        self._note = note
        self._is_used = any(tool.gives or tool.needs for tool in tools)
        # What this host knows; the fleet may know more.
        self.received: frozenset[str] = frozenset()

    async def begin(self) -> None:
        """Learn what the session has received before this host served it."""
        if self._is_used:
            await self._learn()

    async def decided(self, tool: Tool, decision: Decision) -> Decision:
        """Turn what a policy allows into a question, where the tool needs a session without untrusted content."""
        if tool.needs != TRUSTED or not decision.allowed:
            return decision
        if UNTRUSTED not in self.received:
            # Another host may have given it some since.
            await self._learn()
        if UNTRUSTED not in self.received:
            return decision
        return UNTRUSTED_SESSION

    async def given(self, tool: Tool, answer: Answer) -> Answer:
        """Mark the session with what the answer brings. Return what the code may get: not what could not be marked."""
        if not tool.gives or tool.gives in self.received:
            return answer
        try:
            self.received |= await self._note([tool.gives])
        except SandfleetError as error:
            why = f"{tool.name} has run, but its result is held back: the session cannot be marked ({error.message})"
            return Failure(Kind.UNAVAILABLE, "NotMarked", why[:500], may_have_run=True)
        return answer

    async def _learn(self) -> None:
        try:
            self.received |= await self._note(())
        except SandfleetError:
            # For this decision; the next one asks again.
            self.received |= {UNTRUSTED}
