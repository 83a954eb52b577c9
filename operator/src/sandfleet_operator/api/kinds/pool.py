"""SandboxPool: warm sandboxes of one template."""

from dataclasses import dataclass
from typing import Annotated

from sandfleet_operator.api.kinds.meta import Condition, Meta, meta_of, part
from sandfleet_operator.api.table import Json, at, decode, encode, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Spec of a SandboxPool."""

    template: Annotated[str, at("templateRef.name", required=True)]
    # Sandboxes to keep warm; with a target hit rate the minimum.
    replicas: Annotated[int, at("replicas", required=True)]
    # The share of claims that should find a warm sandbox, from 0.5 to below 1; None: the number is fixed.
    target_hit_rate: Annotated[float | None, at("targetHitRate")] = None
    # The most sandboxes to keep warm for the hit rate; None: no bound of its own.
    max_warm: Annotated[int | None, at("maxWarm")] = None
    # The most, warm and claimed together; None: no bound of its own.
    max_size: Annotated[int | None, at("maxSize")] = None
    # The most starts at the same time; None: no bound of its own.
    max_starting: Annotated[int | None, at("maxStarting")] = None
    # Seconds that a pod has from its creation until its executor answers; None: as the template says.
    start_timeout: Annotated[float | None, at("startTimeoutSeconds", whole)] = None
    # Name or id of a snapshot of the namespace that its sandboxes start from; empty: of none.
    snapshot: Annotated[str, at("snapshot")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """Status of a SandboxPool; the fleet is its only writer."""

    conditions: Annotated[tuple[Condition, ...], at("conditions")] = ()
    observed_generation: Annotated[int, at("observedGeneration")] = 0
    # Target number of warm sandboxes: the replicas, or the number that the hit rate needs within its bounds.
    target_warm: Annotated[int, at("targetWarm")] = 0
    # Label selector of the pods that `replicas` counts, as kubectl writes it.
    selector: Annotated[str, at("selector")] = ""
    warm: Annotated[int, at("warm")] = 0
    starting: Annotated[int, at("starting")] = 0
    claimed: Annotated[int, at("claimed")] = 0
    # Claims that have no sandbox yet.
    waiting: Annotated[int, at("waiting")] = 0
    # The share of recent claims that found a warm sandbox; None: there were none.
    hit_rate: Annotated[float | None, at("hitRate")] = None

    @property
    def replicas(self) -> int:
        return self.warm + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPool:
    meta: Meta
    spec: PoolSpec


def sandbox_pool(value: object) -> SandboxPool:
    """Raises FleetError."""
    return SandboxPool(meta=meta_of(value), spec=decode(PoolSpec, part(value, "spec"), "spec"))


def pool_status_json(status: PoolStatus) -> Json:
    """Every field. The hit rate is rounded to a thousandth, since it changes with each claim."""
    rate = None if status.hit_rate is None else round(status.hit_rate, 3)
    return encode(status) | {"replicas": status.replicas, "hitRate": rate}
