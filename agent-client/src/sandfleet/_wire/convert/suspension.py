"""Suspended sessions: messages as values. What stands in them comes from executors, which are hostile."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert.variables import items, texts
from sandfleet.errors import InvalidArgument
from sandfleet.values.suspension import KeptContext, Resumption, Suspension

CONTEXTS_LIMIT = 64
NAMES_LIMIT = 1_024
TEXT_LIMIT = 1_024


def suspend_request(sandbox_id: str, *, force: bool, timeout: float | None, to: str) -> api.fleet.SuspendRequest:
    """Build the request of `Sandbox.suspend`. Raises InvalidArgument."""
    places = {"volume": api.fleet.SUSPEND_TO_VOLUME, "snapshot": api.fleet.SUSPEND_TO_SNAPSHOT}
    if to not in places:
        raise InvalidArgument(f"cannot suspend to {to!r}: only to a volume or a snapshot", reason="InvalidArgument")
    return api.fleet.SuspendRequest(sandbox_id=sandbox_id, force=force, timeout=convert.seconds(timeout), to=places[to])


def suspension(message: api.fleet.SuspendResponse) -> Suspension:
    """Read what was kept."""
    kept = message.suspension
    return Suspension(
        sandbox_id=message.sandbox.sandbox_id,
        until=convert.moment(message.sandbox.suspended_until),
        contexts=tuple(map(context, kept.contexts[:CONTEXTS_LIMIT])),
        services=texts(kept.services, NAMES_LIMIT),
        ended_executions=texts(kept.ended_executions, NAMES_LIMIT),
        ended_connections=kept.ended_connections,
        tmp_bytes=kept.tmp_bytes,
        known=message.HasField("suspension"),
        snapshot_id=message.snapshot_id,
    )


def resumption(message: api.fleet.ResumeResponse) -> Resumption:
    """Read what has come back."""
    back = message.resumption
    return Resumption(tuple(map(context, back.contexts[:CONTEXTS_LIMIT])), texts(back.services, NAMES_LIMIT))


def context(message: api.session.KeptContext) -> KeptContext:
    """Read what is kept of a context."""
    return KeptContext(
        context_id=message.context_id[:TEXT_LIMIT],
        language=message.language[:TEXT_LIMIT],
        variables=message.variables,
        missing=items(message.missing),
        omitted=message.missing.omitted,
        reason=message.reason[:TEXT_LIMIT],
        message=message.message[:TEXT_LIMIT],
    )
