"""The chart's alerts and the dashboard's queries on a real Prometheus, fed by what the control plane measures.

Each alert fires by the fault that it is for, and none of them fires while all is well.
"""

import itertools
import json
import subprocess
from collections import Counter

import pytest
import yaml
from chart.helm_chart import CHART, ROOT, loaded
from sandfleet_operator.plan.audit import Decision, Record, Verdict, Writer
from sandfleet_operator.plan.scheduler.actions import Bind, Gone, Start
from sandfleet_operator.plan.usage import End, Ended, Reading
from sandfleet_operator.telemetry.api_metrics import ApiMetrics
from sandfleet_operator.telemetry.audit import AuditLog
from sandfleet_operator.telemetry.control_plane import (
    ReconcileMetrics,
    condition_gauge,
    conditions_of,
    work_queue_gauge,
)
from sandfleet_operator.telemetry.egress_metrics import EgressMetrics
from sandfleet_operator.telemetry.fleet_metrics import FleetMetrics
from sandfleet_operator.telemetry.loop_times import LoopTimes
from sandfleet_operator.telemetry.metrics import exposition
from support.fleet.builders import NOW, a_claim, a_pool, a_sandbox, a_scheduler, of_kind
from support.tools import tool

pytestmark = pytest.mark.process

RULES = CHART / "files/alerts.yaml"
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
# Seconds between two scrapes, and scrapes of a play: longer than the longest `for` of a rule.
STEP, STEPS = 60, 25


class Key:
    what = "sandbox"


class Plane:
    """A fleet and an operator at work: real instruments, a real scheduler; `turn` is a minute of a healthy day."""

    def __init__(self) -> None:
        self.scheduler, self.noted, self.queue_views = a_scheduler(target_warm=2), lambda _: None, self
        # One request for review waits.
        self.fleet, self.rounds = FleetMetrics(self, lambda: {"team/one": ["request"]}), ReconcileMetrics()
        self.api, self.times = ApiMetrics(), LoopTimes()
        self.egress = EgressMetrics()
        self.audit = AuditLog(Writer(component="fleet"), (), lambda: 0.0)
        self.leads, self.stretch, self.oldest = {"fleet": True, "operator": True}, 0.001, 3.0
        self.conditions = [{"type": "Ready", "status": "True"}, {"type": "Isolated", "status": "True"}]
        self.numbers = itertools.count(1)
        self.healthy, self.turns = {"claims", "api", "rounds"}, 0
        self.fleet.begin()
        for action in of_kind(self.scheduler.tick(NOW), Start):
            self.noted(action)
            self.scheduler.ready(action.sandbox.sandbox_uid, NOW + 1)

    # What FleetMetrics asks.

    def now(self):
        return NOW + STEP * self.turns

    def pools(self):
        return [(pool, self.scheduler.summary(pool.name)) for pool in self.scheduler.pools]

    def all(self):
        return [View("team/agents", self.oldest)]

    def turn(self) -> None:
        self.turns += 1
        if "claims" in self.healthy:
            for _ in range(20):
                self.fleet.claims.bound(a_sandbox(warm=True), 0.01)
            self.noted(Gone(a_sandbox()))
            self.audit.write(Record(decision=Decision.RELEASE, verdict=Verdict.ALLOWED))
            self.audit.write(Record(decision=Decision.CLAIM, verdict=Verdict.REFUSED, reason="QueueFull"))
        if "api" in self.healthy:
            for _ in range(50):
                self.api.wrote("Pod", "patch", 200, 0.005)
        if "rounds" in self.healthy:
            for _ in range(50):
                self.rounds.began(Key(), 0.01)
                self.rounds.ended(Key(), 0.02, None)
        self.work()

    def work(self) -> None:
        """What a session has run so far, a review that was answered and a snapshot that was saved."""
        ends = {End("cell", "ok", "none"): Ended((10 * self.turns, 0, 0, 0, 0, 0, 0), 0.05 * self.turns)}
        held = {"memory_bytes": 1 << 28, "disk_bytes": 1 << 20, "processes": 4}
        spent = {"wall_seconds": 1.0 * self.turns, "cpu_seconds": 0.5 * self.turns}
        self.fleet.sessions.read(a_sandbox(), Reading(**spent, **held, ends=ends, calls={"ok": 2 * self.turns}))
        self.fleet.reviews.answered("team/one", "approve", 20.0)
        self.egress.heard({"connections": 3, "reason": "", "sent": 1 << 10, "received": 1 << 20})
        self.fleet.snapshots.ended(
            "save", "done", 1.0, {"bytes": 3 << 20, "new_bytes": 2 << 20, "stored_bytes": 1 << 20}
        )

    def scrape(self) -> str:
        """What Prometheus reads from both processes."""
        both = [*self.audit.families(), *self.api.families()]
        fleet = exposition([*both, *self.fleet.families(), *self.egress.families()])
        status = Counter(conditions_of({"status": {"conditions": self.conditions}}))
        operator = exposition([*self.rounds.families(), work_queue_gauge(1), condition_gauge(status.items())])
        parts = []
        for name, text in (("fleet", fleet), ("operator", operator)):
            leads = "" if self.leads is None else f"sandfleet_leader {int(self.leads[name])}\n"
            loop = f"sandfleet_event_loop_longest_stretch_seconds {self.stretch}\n"
            parts.append(f"# JOB {name}\n{text}{leads}{loop}")
        return "".join(parts)


class View:
    """A queue as its view has it."""

    def __init__(self, name, oldest):
        self.name, self.summary = name, self
        self.pending, self.oldest_wait, self.admitted = 1, oldest, 2
        self.borrowed = self
        self.sandboxes = 0


def no_leader(plane, step):
    plane.leads = {"fleet": False, "operator": True}


def no_metrics(plane, step):
    plane.leads = None


def loop_blocked(plane, step):
    plane.stretch = 2.0


def api_refuses(plane, step):
    for code in (429, 500, 0):
        for _ in range(5):
            plane.api.wrote("Pod", "create", code, 0.1)


def records_lost(plane, step):
    plane.audit.dropped += 10


def claims_wait(plane, step):
    for _ in range(20):
        plane.fleet.claims.bound(a_sandbox(warm=False), 100.0)


def claims_refused(plane, step):
    for _ in range(10):
        plane.fleet.claims.ended("refused")


def pool_exhausted(plane, step):
    """Every place is taken, and claims wait."""
    for _ in range(3):
        found = plane.scheduler.ask(a_claim(f"c{next(plane.numbers)}", max_wait=3600.0), NOW + step)
        for bind in of_kind(found, Bind):
            plane.scheduler.bound(bind.sandbox.sandbox_uid, NOW + step)


def pool_below(plane, step):
    """Nothing starts any more."""
    plane.scheduler.set_pool(a_pool(target_warm=6), NOW)


def queue_stuck(plane, step):
    plane.oldest = 3600.0


def rounds_fail(plane, step):
    for _ in range(20):
        plane.rounds.ended(Key(), 0.1, ValueError())


def rounds_lag(plane, step):
    for _ in range(20):
        plane.rounds.began(Key(), 60.0)


def degraded(plane, step):
    plane.conditions = [{"type": "Degraded", "status": "True"}]


def opened(plane, step):
    plane.conditions = [{"type": "Isolated", "status": "False"}]


# The fault of each alert, and other alerts that the same fault may raise.
FAULTS = {
    "SandfleetNoLeader": (no_leader, set()),
    "SandfleetAbsent": (no_metrics, set()),
    "SandfleetEventLoopBlocked": (loop_blocked, set()),
    "SandfleetApiWritesFail": (api_refuses, set()),
    "SandfleetAuditRecordsLost": (records_lost, set()),
    "SandfleetClaimsWait": (claims_wait, set()),
    "SandfleetClaimsRefused": (claims_refused, set()),
    "SandfleetPoolExhausted": (pool_exhausted, {"SandfleetPoolBelowTarget"}),
    "SandfleetPoolBelowTarget": (pool_below, set()),
    "SandfleetQueueStuck": (queue_stuck, set()),
    "SandfleetReconcileErrors": (rounds_fail, set()),
    "SandfleetReconcileLag": (rounds_lag, set()),
    "SandfleetSandboxesDegraded": (degraded, set()),
    "SandfleetSandboxesOpen": (opened, set()),
}


def played(tmp_path, fault=None, queries=()):
    """The alerts that fire after the play, the series of each query, and the errors."""
    plane, scrapes = Plane(), []
    for step in range(STEPS):
        plane.turn()
        if fault is not None and step >= 3:
            fault(plane, step)
        scrapes.append(tmp_path / f"{step:03}.prom")
        scrapes[-1].write_text(plane.scrape())
    asked = tmp_path / "queries"
    asked.write_text("\n".join(queries))
    command = [str(tool("prometheus")), str(RULES), str(asked), str(STEP), *map(str, scrapes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return {one["name"] for one in said["alerts"] if one["state"] == "firing"}, said["series"], said["errors"]


def test_each_alert_has_a_fault_here():
    assert list(FAULTS) == ALERTS


def test_no_alert_fires_while_all_is_well_and_every_query_of_the_dashboard_has_an_answer(tmp_path):
    queries = loaded(ROOT / "scripts/dashboard.py").queries()
    firing, series, errors = played(tmp_path, queries=queries)
    assert (firing, errors) == (set(), {})
    assert [query for query in queries if not series.get(query)] == []


@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_by_the_fault_that_it_is_for(tmp_path, alert):
    fault, beside = FAULTS[alert]
    firing, _, errors = played(tmp_path, fault)
    assert errors == {}
    assert alert in firing
    assert firing <= {alert, *beside}


def test_a_query_that_is_wrong_is_found(tmp_path):
    _, series, errors = played(tmp_path, queries=["sum(rate(sandfleet_claims_total))", "sandfleet_made_up"])
    assert set(errors) == {"sum(rate(sandfleet_claims_total))"}
    assert series["sandfleet_made_up"] == 0
