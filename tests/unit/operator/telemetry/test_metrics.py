"""Metrics: the text that Prometheus reads, how good estimated waits were, and the page that lists them all."""

import re
from pathlib import Path

import pytest
from sandfleet_operator.fleet.kubernetes.serve import metrics
from sandfleet_operator.plan.audit import Writer
from sandfleet_operator.plan.scheduler.actions import Bind, Start
from sandfleet_operator.plan.scheduler.queues.standing.estimates import EtaErrors
from sandfleet_operator.telemetry.audit import AuditLog
from sandfleet_operator.telemetry.estimate_metrics import estimate_gauges
from sandfleet_operator.telemetry.loop_times import LoopTimes
from sandfleet_operator.telemetry.metrics import Gauge, Sample, exposition
from support.fleet.builders import NOW, a_claim, a_scheduler, of_kind

PAGE = Path(__file__).parents[4] / "docs/reference/metrics.md"


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        (Sample(0.25), "m_ratio 0.25"),
        (Sample(1, {"pool": "fast"}), 'm_ratio{pool="fast"} 1'),
        (Sample(1, {"a": "x", "b": ""}), 'm_ratio{a="x",b=""} 1'),
        (Sample(1, {"a": 'q"\\\n'}), r'm_ratio{a="q\"\\\n"} 1'),
    ],
)
def test_a_sample_is_a_line_behind_those_that_name_its_metric(sample, line):
    text = exposition([Gauge(name="m_ratio", text="What it is.", samples=(sample,))])
    assert text == f"# HELP m_ratio What it is.\n# TYPE m_ratio gauge\n{line}\n"


NO_AUDIT = AuditLog(Writer(component="fleet"), (), lambda: 0.0)


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


def test_a_claim_that_is_served_later_than_told_moves_the_error():
    scheduler = a_scheduler(target_warm=0)
    served_after(scheduler, "r1", 2.0, NOW)
    assert "{" not in metrics(scheduler, LoopTimes()), "before the first start nothing can be estimated"
    served_after(scheduler, "r2", 4.0, NOW + 10)
    said = metrics(scheduler, LoopTimes())
    assert 'sandfleet_claim_wait_error_ratio{namespace="",pool="python",quantile="0.5"} 0.5\n' in said
    assert 'sandfleet_claim_wait_estimates{namespace="",pool="python"} 1\n' in said


def test_the_page_lists_exactly_the_metrics_that_there_are():
    listed = re.findall(r"(?m)^\| `(\w+)` \|", PAGE.read_text())
    assert listed == re.findall(r"# TYPE (\w+) gauge", metrics(a_scheduler(), LoopTimes(), NO_AUDIT.gauge()))
