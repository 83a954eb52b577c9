"""The numbers that decisions go by. Durations are seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.values import Hold

START_BACKOFF = Backoff(first=0.5, longest=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimits:
    # Whether the fleet itself replaces executors that crash; on Kubernetes the operator does.
    recovers: bool = True
    # Whether the fleet itself keeps workspaces of released sessions; on Kubernetes they are volumes.
    keeps_workspaces: bool = True
    # All sandboxes, warm and ending ones included.
    max_sandboxes: int = 128
    # Starts at the same time, divided fairly between namespaces and pools (starts/shares.py).
    max_starting: int = 4
    max_waiting: int = 4096
    # Of the pools of one namespace together; None: no bound of their own.
    max_waiting_per_namespace: int | None = None
    # Workspaces of released sessions that wait to be claimed again.
    max_kept_workspaces: int = 1024
    # Sessions that are suspended, and for how long one may be.
    max_suspended: int = 1024
    longest_suspension: float = 3600.0
    # Where the pool says nothing else.
    start_timeout: float = 60.0
    # How long a start may stand for each reason before it is given up; no entry: as long as the start itself may take.
    hold_timeouts: Mapping[Hold, float] = field(default_factory=dict)
    # How long the executor has to end by itself at the end of its lease before the fleet ends it.
    lease_grace: float = 5.0
    # How long an executor may leave the question unanswered whether an earlier leader has renewed its lease.
    lease_patience: float = 120.0
    # Whether a suspended session of a queue uses its quota until another writer says that it does not.
    confirms_suspensions: bool = False
    # Wait before the first, second, … replacement; a crash after the last one ends the sandbox.
    recovery_delays: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    # A sandbox that ran for so long starts with a clean record.
    stable_after: float = 60.0
    # Lost rounds of starts in a row after which the waiting claims are refused.
    start_attempts: int = 3
    start_backoff: Backoff = START_BACKOFF
    # Whether the backend says of each start when it is made; starts then begin slowly (starts/health.py).
    confirms_starts: bool = False
