"""Monitors, alerts and the dashboard: they select what has metrics, and ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml
from chart.helm_chart import CHART, ROOT, loaded, named, rendered, run
from sandfleet.cli import in_full
from sandfleet.cli import parser_for as sandfleet_parser

ALL = ("metrics.podMonitor.enabled=true", "metrics.alerts.enabled=true", "metrics.dashboard.enabled=true")
ALERTS = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs/howto/alerts.md").read_text()
METRICS = dict(re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text()))
script = loaded(ROOT / "scripts/dashboard.py")


def test_nothing_is_monitored_unless_it_is_asked_for() -> None:
    kinds = {one["kind"] for one in rendered()}
    assert not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert not [one for one in named(rendered(), "ConfigMap") if "dashboard" in one["metadata"]["name"]]


def component_labels() -> dict[str, dict[str, str]]:
    pods = [one["spec"]["template"] for one in named(rendered(), "Deployment")]
    return {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in pods}


def test_the_pod_monitor_selects_fleet_and_operator_and_their_port() -> None:
    (monitor,) = named(rendered(*ALL, 'metrics.labels={"release":"p"}'), "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "p"
    selector = monitor["spec"]["selector"]
    (one,) = selector["matchExpressions"]
    pods = component_labels()
    chosen = {
        name
        for name, pod in pods.items()
        if selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
        and pod["metadata"]["labels"][one["key"]] in one["values"]
    }
    assert chosen == {"fleet", "operator"}
    for name in chosen:
        ports = {port["name"]: port["containerPort"] for port in pods[name]["spec"]["containers"][0]["ports"]}
        assert ports[monitor["spec"]["podMetricsEndpoints"][0]["port"]] == 8081


def test_the_service_monitor_finds_its_service_and_both_at_once_are_refused() -> None:
    made = rendered("metrics.serviceMonitor.enabled=true")
    (monitor,) = named(made, "ServiceMonitor")
    (service,) = named(made, "Service", "sandfleet-metrics")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    both = run("--set", "metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true")
    assert both.returncode != 0
    assert "cannot monitor" in both.stderr


def test_the_rule_object_has_the_file_with_the_links_that_the_values_say() -> None:
    (rule,) = named(rendered(*ALL, 'metrics.alerts.url="https://wiki.example/alerts"'), "PrometheusRule")
    said = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert [one["alert"] for one in said] == [one["alert"] for one in RULES]
    assert said[0]["annotations"]["runbook_url"] == "https://wiki.example/alerts#sandfleetnoleader"
    assert "{{ $labels.app_kubernetes_io_component }}" in said[0]["annotations"]["summary"]


def test_each_alert_has_a_section_whose_first_command_shows_the_cause_and_each_section_an_alert() -> None:
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", PAGE))
    assert list(sections) == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert "```bash\n" in sections[rule["alert"]], rule["alert"]
        assert rule["annotations"]["runbook_url"] == f"ALERTS#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}


FIRST = re.findall(r"(?ms)^## (\w+)\n.*?^```bash\n(.*?)[ ]*(?:#.*?)?\n", PAGE)
BUILT_IN = {"lease", "pods", "pod", "podmonitor", "servicemonitor"}
# What the processes write into their logs, as they write it.
SOURCES = "\n".join(path.read_text() for path in (ROOT / "operator/src").rglob("*.py"))
CLAIM = {"decision": "claim", "verdict": "refused", "reason": "QueueFull"}


def kinds() -> dict[str, list[str]]:
    """The columns that kubectl shows of each kind, by its short name; with -o wide all of them."""
    found = {}
    for path in (CHART / "files/crds").glob("*.yaml"):
        spec = yaml.safe_load(re.sub(r"(?m)^\s*\{\{.*$", "", path.read_text()))["spec"]
        for name in spec["names"]["shortNames"]:
            columns = spec["versions"][0]["additionalPrinterColumns"]
            found[name] = [one["name"] for one in columns if not one.get("priority")]
            found[f"{name} wide"] = [one["name"] for one in columns]
    return found


@pytest.mark.parametrize(("alert", "command"), FIRST)
def test_what_the_first_command_of_a_section_asks_for_exists(alert: str, command: str) -> None:
    words, known = shlex.split(command.partition("|")[0]), kinds()
    if words[0] == "sandfleet":
        sandfleet_parser(in_full(words[1:])).parse_args(in_full(words[1:]))
    elif words[1] in {"get", "describe"} and not words[2].startswith("-"):
        assert set(words[2].split(",")) <= BUILT_IN | set(known)
    for label in re.findall(r"component=(\w+)", command):
        assert label in component_labels()
    for text in re.findall(r"grep '([^']+)'", command):
        if text.startswith('"decision"'):
            assert text in json.dumps(CLAIM, separators=(",", ":"))
        elif "logs" in command:
            assert text in SOURCES
        else:
            # Everything but what is ready.
            assert "Ready" in known[words[2]]
    # More than one pod of a component runs, and the one that is meant may be any of them.
    assert "deploy/" not in command


@pytest.mark.slow
def test_the_columns_that_the_sections_speak_of_are_shown() -> None:
    assert {"Warm", "Starting", "Waiting", "Reason"} <= set(kinds()["sbp wide"])
    assert "kubectl get sbp -A -o wide" in dict(FIRST)["SandfleetClaimsWait"]
    # The control: without it what waits is left out.
    assert "Waiting" not in kinds()["sbp"]
    assert [alert for alert, _ in FIRST] == [rule["alert"] for rule in RULES]


def unknown(query: str) -> set[str]:
    """Metrics that there are not."""
    known = set(METRICS)
    for name, kind in METRICS.items():
        if kind == "histogram":
            known |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return set(re.findall(r"sandfleet_\w+", query)) - known


@pytest.mark.parametrize("query", [*(rule["expr"] for rule in RULES), *script.queries()])
def test_alerts_and_panels_ask_for_metrics_that_there_are(query: str) -> None:
    assert unknown(query) == set()
    assert unknown("rate(sandfleet_made_up_total[5m])") == {"sandfleet_made_up_total"}


def test_each_metric_of_the_page_is_in_the_dashboard_or_in_an_alert() -> None:
    asked = " ".join([*(rule["expr"] for rule in RULES), *script.queries()])
    # How good estimates are is for those who look for it; the rest of these stand beside what is shown.
    beside = {name for name in METRICS if "claim_wait_" in name and name != "sandfleet_claim_wait_seconds"}
    beside |= {"sandfleet_sandbox_starts_total", "sandfleet_api_write_seconds"}
    beside |= {"sandfleet_queue_sandboxes", "sandfleet_queue_borrowed_sandboxes", "sandfleet_pool_shortage"}
    assert {name for name in METRICS if name not in asked} == beside


def test_the_dashboard_is_what_its_script_writes_and_its_panels_do_not_overlap() -> None:
    assert script.main(["--check"]) == 0
    (config,) = [one for one in named(rendered(*ALL), "ConfigMap") if one["metadata"]["name"] == "sandfleet-dashboard"]
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    panels = json.loads(config["data"]["sandfleet.json"])["panels"]
    cells = [
        (x, y)
        for one in panels
        for place in [one["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))


def test_the_endpoint_of_otlp_reaches_fleet_and_operator_alone() -> None:
    for name, pod in {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in named(rendered('otlp.endpoint="http://collector:4318"'), "Deployment")
    }.items():
        said = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert said.get("OTEL_EXPORTER_OTLP_ENDPOINT") == (
            None if name.endswith("gateway") else "http://collector:4318"
        )
