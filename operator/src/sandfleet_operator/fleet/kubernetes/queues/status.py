"""The status of each SandboxQueue, which only the fleet writes."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import GrantReason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.queue import QueueSpec, QueueStatus, StopPolicy, UsageStatus
from sandfleet_operator.api.kube import SANDBOX_QUEUE, Json, KubeError, Ref
from sandfleet_operator.api.quantities import bytes_text, cores_text
from sandfleet_operator.api.table import encode
from sandfleet_operator.api.values import Amount
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.fleet.kubernetes.catalog import key_of
from sandfleet_operator.plan.scheduler.queues.quota import vector
from sandfleet_operator.plan.scheduler.queues.summary import QueueSummary

ACTIVE = "Active"
MAX_MESSAGE = 1024
# Writes at each look: many busy queues leave the API server to the sandboxes.
WRITES_AT_ONCE = 10
# In percent, of what has no quota and is used.
MOST_SHOWN = 999

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLevel:
    """A SandboxQueue and how full it is. `problem`: why it cannot be read. `rate` is in admissions per second."""

    obj: Json
    spec: QueueSpec
    summary: QueueSummary
    problem: str
    rate: float


class QueueStatuses:
    """`leading` gives the fencing number, None when leadership may be over; `wall_clock` is the epoch's."""

    def __init__(self, kube: KubeApi, leading: Callable[[], int | None], wall_clock: Callable[[], float]) -> None:
        self._kube = kube
        self._leading = leading
        self._clock = wall_clock
        # Queue → its uid and the status that was written. The first one was looked at the longest time ago.
        self._written: dict[str, tuple[str, QueueStatus]] = {}

    async def write(self, levels: Iterable[QueueLevel]) -> None:
        """To be called every second or so."""
        found = {key_of(one.obj): one for one in levels}
        self._written = {name: one for name, one in self._written.items() if name in found}
        left = WRITES_AT_ONCE
        for name in [*(name for name in found if name not in self._written), *self._written]:
            if left and await self._has_written(name, found[name]):
                left -= 1

    async def _has_written(self, name: str, level: QueueLevel) -> bool:
        meta = level.obj["metadata"]
        known = self._written.get(name)
        before = known[1] if known is not None and known[0] == meta["uid"] else None
        status = status_of(level, before, self._clock())
        if status == before or self._leading() is None:
            return False
        said = {"metadata": {"uid": meta["uid"]}, "status": encode(status)}
        try:
            await self._kube.merge(Ref(SANDBOX_QUEUE, meta["namespace"], meta["name"]), said, "status")
        except KubeError as error:
            _LOG.info("cannot write the status of queue %s: %s", name, error)
        else:
            self._written.pop(name, None)
            self._written[name] = meta["uid"], status
        return True


def status_of(level: QueueLevel, before: QueueStatus | None, now: float) -> QueueStatus:
    """`before` is what was written last."""
    summary, generation = level.summary, level.obj["metadata"].get("generation", 0)
    active = _active(level, now, generation)
    old = next((one for one in before.conditions if one.type == ACTIVE), None) if before else None
    if old is not None and old.status == active.status:
        active = replace(active, changed=old.changed)
    usage = UsageStatus(
        sandboxes=summary.usage.sandboxes,
        cpu=cores_text(summary.usage.cpu / 1000),
        memory=bytes_text(summary.usage.memory),
    )
    return QueueStatus(
        conditions=(active,),
        observed_generation=generation,
        pending=summary.pending,
        admitted=summary.admitted,
        borrowed=summary.borrowed.sandboxes,
        usage=usage,
        used=_used(level.spec, summary.usage),
        share=_percent(summary.share) if level.spec.cohort else "",
        admissions=round(60 * level.rate),
        # To the second: it is the time of an arrival, which does not change from look to look.
        oldest=None if summary.oldest_wait is None else float(math.floor(now - summary.oldest_wait)),
    )


def _active(level: QueueLevel, now: float, generation: int) -> Condition:
    stop, said = level.spec.stop, level.summary.reason
    if level.problem:
        reason, message = GrantReason.UNREADABLE, level.problem
    elif stop is not StopPolicy.NONE:
        reason = GrantReason.DRAINING if stop is StopPolicy.HOLD_AND_DRAIN else GrantReason.HELD
        message = reason.meaning
    else:
        full = {one.value: one for one in (GrantReason.QUOTA_REACHED, GrantReason.COHORT_EXHAUSTED)}
        reason = full.get(said, GrantReason.ADMITTING)
        message = level.summary.message if said in full else reason.meaning
    stopped = reason in {GrantReason.UNREADABLE, GrantReason.HELD, GrantReason.DRAINING}
    return Condition(
        type=ACTIVE,
        status="False" if stopped else "True",
        reason=reason.value,
        message=message[:MAX_MESSAGE],
        changed=now,
        observed_generation=generation,
    )


def _used(spec: QueueSpec, usage: Amount) -> str:
    """Of the resource of which the largest part is used; empty without any bound."""
    parts = [
        used / most if most else float(used > 0) * MOST_SHOWN
        for used, most in zip(vector(usage), vector(spec.nominal, -1.0), strict=True)
        if most >= 0
    ]
    return _percent(max(parts)) if parts else ""


def _percent(part: float) -> str:
    return f"{min(MOST_SHOWN, round(100 * part))}%"
