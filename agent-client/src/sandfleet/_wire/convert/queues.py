"""Waiting claims and queues: messages as values."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet._wire.convert.common import seconds_of
from sandfleet.values.fleet import Explanation, Queued, QueueInfo, Quota

_MESSAGE_LIMIT = 4096
_MILLI = 1000


def queued(message: api.fleet.Queued) -> Queued:
    """Read a queued claim."""
    return Queued(
        position=message.position,
        eta=_seconds(message, "eta"),
        reason=message.reason,
        message=message.message[:_MESSAGE_LIMIT],
        eta_p90=_seconds(message, "eta_p90"),
        queue=message.queue,
    )


def queue(message: api.fleet.Queue) -> QueueInfo:
    """Read a queue."""
    return QueueInfo(
        queue_id=message.queue_id,
        weight=message.weight,
        cohort=message.cohort,
        nominal=_quota(message.nominal),
        borrowing_limit=_quota(message.borrowing_limit),
        lending_limit=_quota(message.lending_limit),
        priority_classes=tuple(message.priority_classes),
        stop_policy=message.stop_policy,
        pending=message.pending,
        admitted=message.admitted,
        usage=_quota(message.usage),
        borrowed=_quota(message.borrowed),
        oldest_wait=_seconds(message, "oldest_wait"),
        share=message.share,
        reason=message.reason,
        message=message.message[:_MESSAGE_LIMIT],
        admission_rate=message.admission_rate,
    )


def explanation(message: api.fleet.ExplainResponse) -> Explanation:
    """Read an explanation."""
    return Explanation(
        verdict=message.verdict,
        reason=message.reason,
        message=message.message[:_MESSAGE_LIMIT],
        queue=message.queue,
        position=message.position,
        eta=_seconds(message, "eta"),
        eta_p90=_seconds(message, "eta_p90"),
        ahead={one.queue: one.claims for one in message.ahead},
        missing=_quota(message.missing) if message.HasField("missing") else None,
    )


def _quota(message: api.fleet.Quota) -> Quota:
    return Quota(
        sandboxes=message.sandboxes if message.HasField("sandboxes") else None,
        cpu=message.cpu / _MILLI if message.HasField("cpu") else None,
        memory=message.memory if message.HasField("memory") else None,
    )


def _seconds(message: api.message.Message, field: str) -> float | None:
    return seconds_of(getattr(message, field)) if message.HasField(field) else None
