"""Suspended sessions: messages as values. What stands in them comes from executors, which are hostile."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert.variables import items, texts
from sandfleet.values.suspension import KeptContext, Resumption, Suspension

CONTEXTS_LIMIT = 64
NAMES_LIMIT = 1_024
TEXT_LIMIT = 1_024


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
