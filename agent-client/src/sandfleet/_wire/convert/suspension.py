"""Suspended sessions: messages as values. What stands in them comes from executors, which are hostile."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert.variables import items, texts
from sandfleet.values.suspension import KeptContext, Resumption, Suspension

_CONTEXTS_LIMIT = 64
_NAMES_LIMIT = 1_024
_TEXT_LIMIT = 1_024


def suspension(message: api.fleet.SuspendResponse) -> Suspension:
    """Read what was kept."""
    kept = message.suspension
    return Suspension(
        sandbox_id=message.sandbox.sandbox_id,
        until=convert.moment(message.sandbox.suspended_until),
        contexts=tuple(map(_context, kept.contexts[:_CONTEXTS_LIMIT])),
        services=texts(kept.services, _NAMES_LIMIT),
        ended_executions=texts(kept.ended_executions, _NAMES_LIMIT),
        ended_connections=kept.ended_connections,
        tmp_bytes=kept.tmp_bytes,
        known=message.HasField("suspension"),
    )


def resumption(message: api.fleet.ResumeResponse) -> Resumption:
    """Read what has come back."""
    back = message.resumption
    return Resumption(tuple(map(_context, back.contexts[:_CONTEXTS_LIMIT])), texts(back.services, _NAMES_LIMIT))


def _context(message: api.session.KeptContext) -> KeptContext:
    return KeptContext(
        context_id=message.context_id[:_TEXT_LIMIT],
        language=message.language[:_TEXT_LIMIT],
        variables=message.variables,
        missing=items(message.missing),
        omitted=message.missing.omitted,
        reason=message.reason[:_TEXT_LIMIT],
        message=message.message[:_TEXT_LIMIT],
    )
