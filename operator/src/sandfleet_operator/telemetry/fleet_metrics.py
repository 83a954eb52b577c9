"""What a fleet measures of its work: claims, sandboxes, pools, queues, and how good its estimates are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sandfleet_operator.plan.scheduler.actions import Action
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from sandfleet_operator.telemetry.control_plane import ClaimMetrics, SandboxMetrics, pool_gauges, queue_gauges
from sandfleet_operator.telemetry.egress_metrics import EgressMetrics
from sandfleet_operator.telemetry.estimate_metrics import estimate_gauges
from sandfleet_operator.telemetry.metrics import Family
from sandfleet_operator.telemetry.session_metrics import ReviewMetrics, SessionMetrics
from sandfleet_operator.telemetry.snapshot_metrics import SnapshotMetrics


class Views(Protocol):
    """Of queues: each with its name and summary."""

    def all(self) -> Sequence[Any]: ...


class Fleet(Protocol):
    """What is measured: a FleetDriver."""

    noted: Callable[[Action], None]

    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def queue_views(self) -> Views: ...
    def now(self) -> float: ...
    def pools(self) -> list[tuple[Pool, PoolSummary]]: ...


class FleetMetrics:
    """Of one fleet, on one machine or on Kubernetes. A standby names its metrics and has no values."""

    def __init__(self, fleet: Fleet, waiting: Callable[[], Mapping[str, Sequence[Any]]] = dict) -> None:
        """`waiting`: by sandbox, the requests that wait for a person."""
        self._fleet = fleet
        self.claims, self._sandboxes = ClaimMetrics(), SandboxMetrics()
        self.sessions, self.reviews = SessionMetrics(fleet.now), ReviewMetrics(waiting)
        self.snapshots = SnapshotMetrics()
        self.egress = EgressMetrics()

    def begin(self) -> None:
        """From now on it sees the actions of the fleet, before those who saw them until now."""
        before = self._fleet.noted

        def note(action: Action) -> None:
            self._sandboxes.note(action)
            self.sessions.note(action)
            before(action)

        self._fleet.noted = note

    def families(self) -> list[Family]:
        """As they are now."""
        scheduler, pools = self._fleet.scheduler, self._fleet.pools()
        queues = [(one.name, one.summary) for one in self._fleet.queue_views.all()]
        errors = {pool.name: scheduler.standing.eta_errors(pool.name) for pool, _ in pools}
        counted = [*self.claims.families(), *self._sandboxes.families()]
        counted += [
            *self.sessions.families(),
            *self.reviews.families(),
            *self.snapshots.families(),
            *self.egress.families(),
        ]
        return [*counted, *pool_gauges(pools), *queue_gauges(queues), *estimate_gauges(errors)]
