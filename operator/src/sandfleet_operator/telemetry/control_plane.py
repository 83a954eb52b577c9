"""What fleet and operator measure of their own work. docs/reference/metrics.md lists all of it."""

from collections.abc import Callable, Iterable
from typing import Protocol

from sandfleet_operator.api.kube import Json
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.plan.scheduler.actions import Action, Gone, Start
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.queues.summary import QueueSummary
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.telemetry.loop_times import LoopTimes
from sandfleet_operator.telemetry.metrics import Counter, Family, Gauge, Histogram, Sample

# Of a claim that was not served.
NONE = "none"


class ClaimMetrics:
    """Claims by what became of them. The pool is that of the sandbox: what callers ask for is no label."""

    def __init__(self) -> None:
        self._claims = Counter(
            "sandfleet_claims_total",
            "Claims by their end: bound, refused, or left by their caller.",
            ("namespace", "pool", "outcome", "hit"),
        )
        self._wait = Histogram(
            "sandfleet_claim_wait_seconds",
            "Time from the arrival of a claim to its sandbox.",
            ("namespace", "pool", "hit"),
        )

    def bound(self, sandbox: Sandbox, seconds: float) -> None:
        where, hit = place(sandbox.pool), "warm" if sandbox.warm else "cold"
        self._claims.add(*where, "bound", hit)
        self._wait.observe(seconds, *where, hit)

    def ended(self, outcome: str) -> None:
        """`outcome`: refused, or left."""
        self._claims.add("", "", outcome, NONE)

    def families(self) -> list[Family]:
        return [self._claims, self._wait]


class SandboxMetrics:
    """Starts and ends of sandboxes, as the scheduler decides them."""

    def __init__(self) -> None:
        self._started = Counter(
            "sandfleet_sandbox_starts_total", "Executors whose start was begun.", ("namespace", "pool")
        )
        self._gone = Counter(
            "sandfleet_sandboxes_gone_total",
            "Sandboxes that are gone, by the reason of their end.",
            ("namespace", "pool", "reason"),
        )

    def note(self, action: Action) -> None:
        match action:
            case Start(sandbox):
                self._started.add(*place(sandbox.pool))
            case Gone(sandbox):
                self._gone.add(*place(sandbox.pool), sandbox.ended_reason)

    def families(self) -> list[Family]:
        return [self._started, self._gone]


def pool_gauges(pools: Iterable[tuple[Pool, PoolSummary]]) -> list[Family]:
    """How full each pool is."""
    found = [
        (dict(zip(("namespace", "pool"), place(pool.name), strict=True)), pool, summary) for pool, summary in pools
    ]
    states = [
        Sample(count, {**labels, "state": state})
        for labels, _, one in found
        for state, count in (("warm", one.warm), ("starting", one.starting), ("claimed", one.claimed))
    ]
    return [
        Gauge(name="sandfleet_pool_sandboxes", text="Sandboxes of a pool by state.", samples=tuple(states)),
        Gauge(
            name="sandfleet_pool_target_sandboxes",
            text="Warm sandboxes that a pool is to have.",
            samples=tuple(Sample(pool.target_warm, labels) for labels, pool, _ in found),
        ),
        Gauge(
            name="sandfleet_pool_waiting_claims",
            text="Claims that wait for a sandbox of a pool.",
            samples=tuple(Sample(one.waiting, labels) for labels, _, one in found),
        ),
        Gauge(
            name="sandfleet_pool_start_seconds",
            text="How long the last starts took, as a moving average.",
            samples=tuple(
                Sample(one.start_seconds, labels) for labels, _, one in found if one.start_seconds is not None
            ),
        ),
        Gauge(
            name="sandfleet_pool_shortage",
            text="1 while a pool is below its target or claims wait, with the reason.",
            samples=tuple(Sample(1, {**labels, "reason": one.reason}) for labels, _, one in found if one.reason),
        ),
    ]


def queue_gauges(queues: Iterable[tuple[str, QueueSummary]]) -> list[Family]:
    """How full each queue is."""
    found = [(dict(zip(("namespace", "queue"), place(name), strict=True)), one) for name, one in queues]
    return [
        Gauge(
            name="sandfleet_queue_waiting_claims",
            text="Claims and declared sandboxes that wait in a queue.",
            samples=tuple(Sample(one.pending, labels) for labels, one in found),
        ),
        Gauge(
            name="sandfleet_queue_oldest_wait_seconds",
            text="How long the oldest of them waits; 0 where none waits.",
            samples=tuple(Sample(one.oldest_wait or 0.0, labels) for labels, one in found),
        ),
        Gauge(
            name="sandfleet_queue_sandboxes",
            text="Sandboxes that use the quota of a queue.",
            samples=tuple(Sample(one.admitted, labels) for labels, one in found),
        ),
        Gauge(
            name="sandfleet_queue_borrowed_sandboxes",
            text="Sandboxes of a queue above its nominal quota.",
            samples=tuple(Sample(one.borrowed.sandboxes, labels) for labels, one in found),
        ),
    ]


class Reconciled(Protocol):
    """What a round is about: a sandbox, a template, or a namespace."""

    @property
    def what(self) -> str: ...


class ReconcileMetrics:
    """Rounds of the operator, and its work queue."""

    def __init__(self) -> None:
        self._rounds = Histogram(
            "sandfleet_reconcile_seconds", "Duration of a round: observe, plan, apply.", ("what", "outcome")
        )
        self._lag = Histogram(
            "sandfleet_work_queue_wait_seconds",
            "Time from the change of an object to the start of its round.",
            ("what",),
        )

    def began(self, key: Reconciled, waited: float) -> None:
        self._lag.observe(waited, key.what)

    def ended(self, key: Reconciled, seconds: float, error: BaseException | None) -> None:
        self._rounds.observe(seconds, key.what, "ok" if error is None else "error")

    def families(self) -> list[Family]:
        return [self._rounds, self._lag]


def work_queue_gauge(length: int) -> Gauge:
    return Gauge(
        name="sandfleet_work_queue_length",
        text="Objects that wait for a round or are in one.",
        samples=(Sample(length),),
    )


def leader_gauge(*, leads: bool) -> Gauge:
    return Gauge(
        name="sandfleet_leader", text="1 where this process leads, 0 where it stands by.", samples=(Sample(leads),)
    )


def process_families(times: LoopTimes, fencing: Callable[[], int | None]) -> Callable[[], list[Family]]:
    """What every process has: how long its loop works at a stretch, and whether it leads (it has a fencing number)."""
    return lambda: [times.gauge(), leader_gauge(leads=fencing() is not None)]


def conditions_of(sandbox: Json) -> list[tuple[str, str]]:
    """Each condition of a CodeSandbox with its status. The schema and the operator alone write them."""
    said = (sandbox.get("status") or {}).get("conditions") or ()
    return [(str(one.get("type")), str(one.get("status"))) for one in said]


def condition_gauge(counts: Iterable[tuple[tuple[str, str], int]]) -> Gauge:
    """How many CodeSandboxes have each condition."""
    return Gauge(
        name="sandfleet_sandboxes",
        text="CodeSandboxes by condition and its status.",
        samples=tuple(
            Sample(count, {"condition": condition, "status": status}) for (condition, status), count in counts
        ),
    )


def place(name: str) -> tuple[str, str]:
    """Namespace and name of a pool or queue; no namespace on one machine."""
    namespace, _, rest = name.rpartition("/")
    return namespace, rest
