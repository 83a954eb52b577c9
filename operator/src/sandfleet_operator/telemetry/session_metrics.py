"""What sessions do and use, by the word of their executors: executions, calls of tools, resources; and reviews."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.plan.scheduler.actions import Action, Gone
from sandfleet_operator.plan.usage import BOUNDS, NOTHING, Reading, grown
from sandfleet_operator.telemetry.control_plane import place
from sandfleet_operator.telemetry.metrics import Counter, Family, Gauge, Histogram, Sample

_POOL = ("namespace", "pool")


class _Known(NamedTuple):
    pool: str
    at: float
    reading: Reading


class SessionMetrics:
    """Counts what comes with each reading. `clock` gives the fleet's time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Incarnation of a sandbox → its last reading.
        self._known: dict[str, _Known] = {}
        self._executions = Counter(
            "sandfleet_executions_total",
            "Executions that ended, by kind, outcome and blame.",
            (*_POOL, "kind", "outcome", "blame"),
        )
        self._seconds = Histogram(
            "sandfleet_execution_seconds", "Wall time of these executions.", (*_POOL, "kind"), bounds=BOUNDS
        )
        self._calls = Counter("sandfleet_tool_calls_total", "Calls of the host's tools, by their end.", (*_POOL, "end"))
        self._cpu = Counter("sandfleet_session_cpu_seconds_total", "Processor time of executions.", _POOL)
        self._readings = Counter(
            "sandfleet_usage_readings_total",
            "Readings of executors' usage: counted, unanswered, or refused as impossible.",
            (*_POOL, "outcome"),
        )

    def read(self, sandbox: Sandbox, reading: Reading | None) -> None:
        """An executor has said what its session has used so far; None: it did not answer."""
        where, now = place(sandbox.pool), self._clock()
        before = self._known.get(sandbox.sandbox_uid) or _Known(sandbox.pool, sandbox.started, NOTHING)
        found = None if reading is None else grown(before.reading, reading, now - before.at)
        if reading is None or found is None:
            self._readings.add(*where, "unanswered" if reading is None else "refused")
            return
        self._readings.add(*where, "counted")
        self._known[sandbox.sandbox_uid] = _Known(sandbox.pool, now, reading)
        self._count(where, found)

    def _count(self, where: tuple[str, str], found: Reading) -> None:
        for end, ended in found.ends.items():
            if sum(ended.counts):
                self._executions.add(*where, end.kind, end.outcome, end.blame, amount=sum(ended.counts))
                self._seconds.merge(ended.counts, ended.seconds, *where, end.kind)
        for said, count in found.calls.items():
            if count:
                self._calls.add(*where, said, amount=count)
        self._cpu.add(*where, amount=max(0.0, found.cpu_seconds))

    def note(self, action: Action) -> None:
        """A sandbox that is gone holds nothing any more."""
        if isinstance(action, Gone):
            self._known.pop(action.sandbox.sandbox_uid, None)

    def families(self) -> list[Family]:
        held = {
            "sandfleet_session_memory_bytes": ("Memory of sessions, as of their last readings.", "memory_bytes"),
            "sandfleet_session_disk_bytes": ("Disk space of their workspaces.", "disk_bytes"),
            "sandfleet_session_processes": ("Their processes.", "processes"),
        }
        gauges = [Gauge(name=name, text=text, samples=self._held(what)) for name, (text, what) in held.items()]
        return [self._executions, self._seconds, self._calls, self._cpu, *gauges, self._readings]

    def _held(self, what: str) -> tuple[Sample, ...]:
        sums: dict[str, float] = {}
        for one in self._known.values():
            sums[one.pool] = sums.get(one.pool, 0.0) + getattr(one.reading, what)
        return tuple(Sample(value, dict(zip(_POOL, place(pool), strict=True))) for pool, value in sorted(sums.items()))


class ReviewMetrics:
    """Requests that wait for a person. `waiting`: by sandbox, what waits in it."""

    def __init__(self, waiting: Callable[[], Mapping[str, Sequence[Any]]]) -> None:
        self._waiting = waiting
        self._seconds = Histogram(
            "sandfleet_review_wait_seconds",
            "Time from a request for review to the answer of the last person that it needs.",
            ("namespace", "answer"),
        )

    def answered(self, sandbox_id: str, answer: str, seconds: float) -> None:
        """`answer`: approve, edit or deny."""
        self._seconds.observe(min(max(0.0, seconds), 1e9), place(sandbox_id)[0], answer)

    def families(self) -> list[Family]:
        counts: dict[str, int] = {}
        for sandbox_id, waiting in self._waiting().items():
            namespace = place(sandbox_id)[0]
            counts[namespace] = counts.get(namespace, 0) + len(waiting)
        samples = tuple(Sample(count, {"namespace": namespace}) for namespace, count in counts.items())
        text = "Requests for review that wait for a person."
        return [Gauge(name="sandfleet_reviews_waiting", text=text, samples=samples), self._seconds]
