"""SandboxQueue: where claims wait, in Kueue's words."""

from dataclasses import dataclass
from typing import Annotated

from sandfleet_operator.api.kinds.meta import Meta, meta_of, part
from sandfleet_operator.api.table import at, decode, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Spec of a SandboxQueue. Quotas count sandboxes."""

    weight: Annotated[float, at("weight", whole)] = 1.0
    cohort: Annotated[str, at("cohort")] = ""
    nominal_quota: Annotated[int, at("nominalQuota", required=True)]
    # More than the nominal quota that it may take from its cohort; None: without bound.
    borrowing_limit: Annotated[int | None, at("borrowingLimit")] = None
    # The most of its nominal quota that it lends; None: all.
    lending_limit: Annotated[int | None, at("lendingLimit")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxQueue:
    meta: Meta
    spec: QueueSpec


def sandbox_queue(value: object) -> SandboxQueue:
    """Raises FleetError."""
    return SandboxQueue(meta=meta_of(value), spec=decode(QueueSpec, part(value, "spec"), "spec"))
