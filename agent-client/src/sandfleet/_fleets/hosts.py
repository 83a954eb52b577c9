"""The part of a fleet that hosts of tools ask: what a session has received, and what its reviewers say of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from sandfleet._wire import api
from sandfleet._wire.convert import marks as received

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection
    from sandfleet.values.tools import Decision

_RPC_TIMEOUT = 30.0


class AnswersHosts:
    """The part of a fleet that hosts of tools ask."""

    _connection: FleetConnection
    _call: Callable[[str, api.message.Message, float], Awaitable[Any]]

    async def note_received(self, sandbox_id: str, marks: Sequence[str] = ()) -> frozenset[str]:
        """Add marks ("untrusted", "secret") that never fall, as tool servers do; return all. Raises SandfleetError."""
        numbers: Any = received.numbers(marks)
        request = api.fleet.NoteReceivedRequest(sandbox_id=sandbox_id, marks=numbers)
        return received.words((await self._call("NoteReceived", request, _RPC_TIMEOUT)).marks)

    async def review_call(self, request: api.fleet.ReviewCallRequest) -> Decision:
        """Wait until reviewers have decided about a call of a tool. Raises SandfleetError."""
        from sandfleet._fleets.reviews import decision

        return await decision(self._connection, request)
