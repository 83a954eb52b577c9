"""Queues and explanations as the API has them."""

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.kinds.queue import Quota
from sandfleet_operator.api.values import Amount
from sandfleet_operator.executors.calls import duration
from sandfleet_operator.fleet.queue_views import QueueView
from sandfleet_operator.plan.scheduler.queues.standing.standings import Explanation


def queue_message(view: QueueView) -> fleet_pb2.Queue:
    spec, found = view.spec, view.summary
    return fleet_pb2.Queue(
        queue_id=view.name,
        weight=spec.weight,
        cohort=spec.cohort,
        nominal=_quota(spec.nominal),
        borrowing_limit=_quota(spec.borrowing),
        lending_limit=_quota(spec.lending),
        priority_classes=[one.name for one in spec.priority_classes],
        stop_policy=spec.stop.value,
        pending=found.pending,
        admitted=found.admitted,
        usage=_quota(found.usage),
        borrowed=_quota(found.borrowed),
        oldest_wait=None if found.oldest_wait is None else duration(found.oldest_wait),
        share=found.share,
        reason=found.reason,
        message=found.message,
        admission_rate=view.admission_rate,
    )


def explanation_message(explanation: Explanation) -> fleet_pb2.ExplainResponse:
    queued = explanation.queued
    eta = queued.eta if queued else None
    return fleet_pb2.ExplainResponse(
        verdict=explanation.fate.value,
        reason=explanation.reason,
        message=explanation.message,
        queue=queued.queue if queued else "",
        position=queued.position if queued else 0,
        eta=duration(eta.p50) if eta else None,
        eta_p90=duration(eta.p90) if eta else None,
        ahead=[fleet_pb2.Ahead(queue=queue, claims=claims) for queue, claims in explanation.ahead.items()],
        missing=None if explanation.missing is None else _quota(explanation.missing),
    )


def _quota(quota: Quota | Amount) -> fleet_pb2.Quota:
    return fleet_pb2.Quota(sandboxes=quota.sandboxes, cpu=quota.cpu, memory=quota.memory)
