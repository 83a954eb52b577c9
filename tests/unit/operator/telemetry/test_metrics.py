"""Metrics: the text that Prometheus reads, the same over OTLP, and the page that lists them all."""

import re
from pathlib import Path

import pytest
from sandfleet_operator.cluster.store import Counts
from sandfleet_operator.plan.audit import Decision, Record, Verdict, Writer
from sandfleet_operator.plan.scheduler.actions import Bind, Gone, Start
from sandfleet_operator.plan.scheduler.queues.standing.estimates import EtaErrors
from sandfleet_operator.telemetry.api_metrics import ApiMetrics
from sandfleet_operator.telemetry.audit import AuditLog
from sandfleet_operator.telemetry.control_plane import (
    ClaimMetrics,
    ReconcileMetrics,
    SandboxMetrics,
    condition_gauge,
    conditions_of,
    leader_gauge,
    work_queue_gauge,
)
from sandfleet_operator.telemetry.estimate_metrics import estimate_gauges
from sandfleet_operator.telemetry.fleet_metrics import FleetMetrics
from sandfleet_operator.telemetry.loop_times import LoopTimes
from sandfleet_operator.telemetry.metrics import MAX_SERIES, OTHER, Counter, Gauge, Histogram, Sample, exposition
from sandfleet_operator.telemetry.otlp_metrics import OtlpMetrics, metric
from support.fleet.builders import NOW, a_claim, a_scheduler, of_kind

PAGE = Path(__file__).parents[4] / "docs/reference/metrics.md"
UNITS = (
    "seconds", "total", "ratio", "bytes", "sandboxes", "claims", "processes", "length", "estimates", "dropped",
    "leader", "shortage", "waiting",
)  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        (Sample(0.25), "m_ratio 0.25"),
        (Sample(12_345_678), "m_ratio 12345678"),
        (Sample(1, {"pool": "fast"}), 'm_ratio{pool="fast"} 1'),
        (Sample(1, {"a": "x", "b": ""}), 'm_ratio{a="x",b=""} 1'),
        (Sample(1, {"a": 'q"\\\n'}), r'm_ratio{a="q\"\\\n"} 1'),
    ],
)
def test_a_sample_is_a_line_behind_those_that_name_its_metric(sample, line):
    text = exposition([Gauge(name="m_ratio", text="What it is.", samples=(sample,))])
    assert text == f"# HELP m_ratio What it is.\n# TYPE m_ratio gauge\n{line}\n"


def test_a_histogram_counts_each_value_in_all_buckets_that_hold_it():
    found = Histogram("wait_seconds", "A wait.", ("pool",), bounds=(1, 2))
    for value in (0.5, 1, 1.5, 99):
        found.observe(value, "p")
    assert exposition([found]).splitlines() == [
        "# HELP wait_seconds A wait.",
        "# TYPE wait_seconds histogram",
        'wait_seconds_bucket{pool="p",le="1"} 2',
        'wait_seconds_bucket{pool="p",le="2"} 3',
        'wait_seconds_bucket{pool="p",le="+Inf"} 4',
        'wait_seconds_sum{pool="p"} 102',
        'wait_seconds_count{pool="p"} 4',
    ]


@pytest.mark.parametrize("flooded", ["counter", "histogram"])
def test_a_flood_of_names_makes_a_bounded_number_of_series_and_loses_no_count(flooded):
    counter, histogram = Counter("c_total", "", ("name",)), Histogram("h_seconds", "", ("name",))
    for number in range(MAX_SERIES * 3):
        counter.add(f"name-{number}" + "x" * 10_000)
        histogram.observe(1.0, f"name-{number}")
    found = counter if flooded == "counter" else histogram
    assert len(found.samples) == MAX_SERIES + 1
    assert all(len(one.labels["name"]) <= 128 for one in found.samples)
    (rest,) = [one for one in found.samples if one.labels["name"] == OTHER]
    assert (rest.value if flooded == "counter" else sum(rest.counts)) == 2 * MAX_SERIES


def test_the_same_metrics_go_over_otlp_with_their_units():
    counter, histogram = Counter("c_total", "Count.", ("k",)), Histogram("h_seconds", "Time.", bounds=(1,))
    counter.add("x", amount=3)
    histogram.observe(0.5)
    histogram.observe(5)
    made = [metric(one, 1, 2) for one in (counter, histogram, leader_gauge(leads=True))]
    assert [(one.name, one.unit, type(one.data).__name__) for one in made] == [
        ("c", "", "Sum"),
        ("h_seconds", "s", "Histogram"),
        ("sandfleet_leader", "", "Gauge"),
    ]
    (point,) = made[0].data.data_points
    assert (point.value, point.attributes, made[0].data.is_monotonic) == (3, {"k": "x"}, True)
    (spread,) = made[1].data.data_points
    assert (spread.count, spread.sum, list(spread.bucket_counts)) == (2, 5.5, [1, 1])
    # What has no series yet is left out: a collector has no use for it.
    (group,) = OtlpMetrics({}).data([counter, Counter("empty_total", "", ("k",))]).resource_metrics
    assert [one.name for one in group.scope_metrics[0].metrics] == ["c"]


def test_each_pool_with_estimates_has_its_quantiles():
    known, unknown = EtaErrors(known=7, p50=0.25, p90=1.5, within_p90=0.9), EtaErrors(0, 0.0, 0.0, 1.0)
    lines = exposition(estimate_gauges({"a/fast": known, "a/idle": unknown})).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'sandfleet_claim_wait_error_ratio{namespace="a",pool="fast",quantile="0.5"} 0.25',
        'sandfleet_claim_wait_error_ratio{namespace="a",pool="fast",quantile="0.9"} 1.5',
        'sandfleet_claim_wait_within_p90_ratio{namespace="a",pool="fast"} 0.9',
        'sandfleet_claim_wait_estimates{namespace="a",pool="fast"} 7',
    ]


def served_after(scheduler, request, seconds, now):
    """The claim finds nothing warm, and its start takes so long."""
    (start,) = of_kind(scheduler.ask(a_claim(request), now), Start)
    (bind,) = of_kind(scheduler.ready(start.sandbox.sandbox_uid, now + seconds), Bind)
    scheduler.bound(bind.sandbox.sandbox_uid, now + seconds)


class Fleet:
    """What the metrics ask of a fleet, with a real scheduler."""

    def __init__(self, scheduler):
        self.scheduler, self.noted = scheduler, lambda _: None
        self.queue_views, self.now = self, lambda: NOW

    def pools(self):
        return [(pool, self.scheduler.summary(pool.name)) for pool in self.scheduler.pools]

    def all(self):
        return []


def said_of(scheduler):
    return exposition(FleetMetrics(Fleet(scheduler)).families())


def test_a_claim_that_is_served_later_than_told_moves_the_error():
    scheduler = a_scheduler(target_warm=0)
    served_after(scheduler, "r1", 2.0, NOW)
    assert "wait_error_ratio{" not in said_of(scheduler), "before the first start nothing can be estimated"
    served_after(scheduler, "r2", 4.0, NOW + 10)
    said = said_of(scheduler)
    assert 'sandfleet_claim_wait_error_ratio{namespace="",pool="python",quantile="0.5"} 0.5\n' in said
    assert 'sandfleet_claim_wait_estimates{namespace="",pool="python"} 1\n' in said
    assert 'sandfleet_pool_sandboxes{namespace="",pool="python",state="claimed"} 2\n' in said
    assert 'sandfleet_pool_start_seconds{namespace="",pool="python"}' in said


def test_a_claim_that_waits_moves_the_pool_and_says_why():
    scheduler = a_scheduler(target_warm=1)
    scheduler.ask(a_claim("r1"), NOW)
    said = said_of(scheduler)
    assert 'sandfleet_pool_waiting_claims{namespace="",pool="python"} 1\n' in said
    assert 'sandfleet_pool_target_sandboxes{namespace="",pool="python"} 1\n' in said
    assert re.search(r'sandfleet_pool_shortage\{namespace="",pool="python",reason="\w+"\} 1\n', said)


def test_claims_count_by_their_end_and_starts_and_ends_by_their_pool():
    scheduler = a_scheduler(target_warm=0)
    fleet = Fleet(scheduler)
    measured = FleetMetrics(fleet)
    measured.begin()
    (start,) = of_kind(scheduler.ask(a_claim("r1"), NOW), Start)
    fleet.noted(start)
    measured.claims.bound(start.sandbox, 2.0)
    measured.claims.ended("refused")
    fleet.noted(Gone(start.sandbox))
    said = exposition(measured.families())
    assert 'sandfleet_claims_total{namespace="",pool="python",outcome="bound",hit="cold"} 1\n' in said
    assert 'sandfleet_claims_total{namespace="",pool="",outcome="refused",hit="none"} 1\n' in said
    assert 'sandfleet_claim_wait_seconds_bucket{namespace="",pool="python",hit="cold",le="2.5"} 1\n' in said
    assert 'sandfleet_sandbox_starts_total{namespace="",pool="python"} 1\n' in said
    assert 'sandfleet_sandboxes_gone_total{namespace="",pool="python",reason=""} 1\n' in said


def test_decisions_count_whether_they_are_written_or_not():
    log = AuditLog(Writer(component="fleet"), (), lambda: 0.0)
    log.write(Record(decision=Decision.REVIEW, verdict=Verdict.REFUSED, reason="NotYours"))
    expected = 'sandfleet_decisions_total{decision="review",verdict="refused",reason="NotYours"} 1\n'
    assert expected in exposition(log.families())


def test_sandboxes_count_by_condition():
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    counts = Counts(conditions_of)
    for sandbox in (ready, ready, {"status": {}}, {}):
        counts.changed(None, sandbox)
    found = condition_gauge(counts.items()).samples
    assert [(one.value, one.labels) for one in found] == [(2, {"condition": "Ready", "status": "True"})]


def families():
    """All metrics of both processes."""
    audit = AuditLog(Writer(component="fleet"), (), lambda: 0.0)
    both = [LoopTimes().gauge(), leader_gauge(leads=True), *audit.families(), *ApiMetrics().families()]
    fleet = FleetMetrics(Fleet(a_scheduler())).families()
    return both, fleet, [*ReconcileMetrics().families(), work_queue_gauge(0), condition_gauge([])]


def test_the_page_lists_exactly_the_metrics_that_there_are_with_their_kinds():
    listed = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|", PAGE.read_text())
    assert listed == [(one.name, one.kind) for part in families() for one in part]


def test_names_say_the_unit_and_texts_are_sentences():
    for family in [one for part in families() for one in part]:
        assert family.name.startswith("sandfleet_") and family.name.endswith(UNITS), family.name
        assert family.text.endswith(".") and "\n" not in family.text
        assert family.name.endswith("_total") == (family.kind == "counter")


def test_instruments_of_claims_and_sandboxes_are_named_before_they_count():
    """So that an alert on them is found to be right before the first claim."""
    text = exposition([*ClaimMetrics().families(), *SandboxMetrics().families()])
    assert text.count("# TYPE") == 4
