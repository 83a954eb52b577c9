#!/usr/bin/env python3
"""Write the chart's dashboard for Grafana from the table of panels below.

With `--check` nothing is written; the exit code is 1 if the file is out of date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "charts/sandfleet/files/dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 8, 7
WANTED = "sum by (pool) (sandfleet_pool_target_sandboxes)"
WARM = 'sum by (pool) (sandfleet_pool_sandboxes{state="warm"})'
LEADER = "sum by (app_kubernetes_io_component) (sandfleet_leader)"


def quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket[$__rate_interval])))"


def rate(metric: str, by: str, chosen: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{chosen}[$__rate_interval]))"


# Rows with their panels: title, unit, and queries with their legends.
ROWS: list[tuple[str, list[tuple[str, str, list[tuple[str, str]]]]]] = [
    (
        "Claims",
        [
            (
                "Claims per second",
                "reqps",
                [("sum by (outcome, hit) (rate(sandfleet_claims_total[$__rate_interval]))", "{{outcome}} {{hit}}")],
            ),
            (
                "Wait for a sandbox",
                "s",
                [
                    (quantile(0.5, "sandfleet_claim_wait_seconds", "hit"), "median {{hit}}"),
                    (quantile(0.99, "sandfleet_claim_wait_seconds", "hit"), "99th percentile {{hit}}"),
                ],
            ),
            (
                "Refused and withdrawn decisions",
                "reqps",
                [
                    (
                        rate("sandfleet_decisions_total", "decision, reason", '{verdict!="allowed"}'),
                        "{{decision}} {{reason}}",
                    )
                ],
            ),
        ],
    ),
    (
        "Pools and queues",
        [
            (
                "Sandboxes",
                "short",
                [("sum by (pool, state) (sandfleet_pool_sandboxes)", "{{pool}} {{state}}")],
            ),
            (
                "Claims that wait",
                "short",
                [
                    ("sum by (pool) (sandfleet_pool_waiting_claims)", "pool {{pool}}"),
                    ("sum by (queue) (sandfleet_queue_waiting_claims)", "queue {{queue}}"),
                ],
            ),
            (
                "Oldest wait in a queue",
                "s",
                [("max by (queue) (sandfleet_queue_oldest_wait_seconds)", "{{queue}}")],
            ),
            (
                "Missing warm sandboxes",
                "short",
                [
                    (
                        f"{WANTED} - {WARM}",
                        "{{pool}}",
                    )
                ],
            ),
            ("Start of a sandbox", "s", [("max by (pool) (sandfleet_pool_start_seconds)", "{{pool}}")]),
            (
                "Sandboxes that are gone",
                "reqps",
                [("sum by (reason) (rate(sandfleet_sandboxes_gone_total[$__rate_interval]))", "{{reason}}")],
            ),
        ],
    ),
    (
        "Sessions",
        [
            (
                "Executions that ended",
                "reqps",
                [(rate("sandfleet_executions_total", "outcome, blame"), "{{outcome}} {{blame}}")],
            ),
            (
                "Time of an execution",
                "s",
                [
                    (quantile(0.5, "sandfleet_execution_seconds", "kind"), "median {{kind}}"),
                    (quantile(0.99, "sandfleet_execution_seconds", "kind"), "99th percentile {{kind}}"),
                ],
            ),
            (
                "Processors in use by executions",
                "short",
                [(rate("sandfleet_session_cpu_seconds_total", "pool"), "{{pool}}")],
            ),
            ("Memory of sessions", "bytes", [("sum by (pool) (sandfleet_session_memory_bytes)", "{{pool}}")]),
            ("Disk space of workspaces", "bytes", [("sum by (pool) (sandfleet_session_disk_bytes)", "{{pool}}")]),
            ("Processes of sessions", "short", [("sum by (pool) (sandfleet_session_processes)", "{{pool}}")]),
            ("Calls of tools", "reqps", [(rate("sandfleet_tool_calls_total", "end"), "{{end}}")]),
            (
                "Reviews that wait",
                "short",
                [("sum by (namespace) (sandfleet_reviews_waiting)", "{{namespace}}")],
            ),
            (
                "Wait for an answer to a review",
                "s",
                [(quantile(0.5, "sandfleet_review_wait_seconds", "answer"), "median {{answer}}")],
            ),
            (
                "Readings of usage",
                "reqps",
                [(rate("sandfleet_usage_readings_total", "outcome"), "{{outcome}}")],
            ),
        ],
    ),
    (
        "Hosts by name",
        [
            (
                "Connections, and why they were refused",
                "reqps",
                [(rate("sandfleet_egress_connections_total", "reason"), "{{reason}}")],
            ),
            (
                "Data of connections",
                "Bps",
                [(rate("sandfleet_egress_bytes_total", "direction"), "{{direction}}")],
            ),
        ],
    ),
    (
        "Snapshots",
        [
            (
                "Snapshots that were handled",
                "reqps",
                [(rate("sandfleet_snapshot_jobs_total", "job, end"), "{{job}} {{end}}")],
            ),
            (
                "Time of a snapshot",
                "s",
                [
                    (quantile(0.5, "sandfleet_snapshot_seconds", "job"), "median {{job}}"),
                    (quantile(0.99, "sandfleet_snapshot_seconds", "job"), "99th percentile {{job}}"),
                ],
            ),
            (
                "Data of snapshots",
                "Bps",
                [
                    (rate("sandfleet_snapshot_bytes_total", "job"), "{{job}}"),
                    ("sum(rate(sandfleet_snapshot_new_bytes_total[$__rate_interval]))", "new"),
                    ("sum(rate(sandfleet_snapshot_stored_bytes_total[$__rate_interval]))", "stored"),
                ],
            ),
        ],
    ),
    (
        "Control plane",
        [
            ("Leaders", "short", [(LEADER, "{{app_kubernetes_io_component}}")]),
            (
                "Rounds of the operator",
                "s",
                [
                    (quantile(0.99, "sandfleet_reconcile_seconds", "what"), "{{what}}, 99th percentile"),
                    (quantile(0.99, "sandfleet_work_queue_wait_seconds", "what"), "wait of a {{what}}"),
                ],
            ),
            (
                "Writes to the API server",
                "reqps",
                [("sum by (kind, verb) (rate(sandfleet_api_writes_total[$__rate_interval]))", "{{verb}} {{kind}}")],
            ),
            (
                "Sandboxes by condition",
                "short",
                [("sum by (condition, status) (sandfleet_sandboxes)", "{{condition}} {{status}}")],
            ),
            (
                "Longest stretch of the event loops",
                "s",
                [
                    (
                        "max by (app_kubernetes_io_component) (sandfleet_event_loop_longest_stretch_seconds)",
                        "{{app_kubernetes_io_component}}",
                    )
                ],
            ),
            ("Work queue", "short", [("sum(sandfleet_work_queue_length)", "objects")]),
        ],
    ),
]


def queries() -> list[str]:
    """All of them, as Grafana sends them."""
    found = (query for _, panels in ROWS for _, _, asked in panels for query, _ in asked)
    return [query.replace("$__rate_interval", "5m") for query in found]


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for name, row in ROWS:
        panels.append(_placed({"type": "row", "title": name, "collapsed": False, "panels": []}, 0, y, 24, 1))
        for number, (title, unit, asked) in enumerate(row):
            x, line = number % 3 * WIDTH, y + 1 + number // 3 * HEIGHT
            panels.append(_placed(_panel(title, unit, asked), x, line, WIDTH, HEIGHT))
        y += 1 + (len(row) + 2) // 3 * HEIGHT
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "sandfleet",
        "title": "Sandfleet",
        "tags": ["sandfleet"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def _panel(title: str, unit: str, asked: list[tuple[str, str]]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend, "datasource": SOURCE}
        for number, (query, legend) in enumerate(asked)
    ]
    defaults = {"unit": unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def _placed(panel: dict[str, Any], x: int, y: int, w: int, h: int) -> dict[str, Any]:
    return panel | {"gridPos": {"x": x, "y": y, "w": w, "h": h}}


def main(arguments: list[str], path: Path = PATH) -> int:
    text = json.dumps(dashboard(), indent=1) + "\n"
    if arguments == ["--check"]:
        return 0 if path.exists() and path.read_text() == text else 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
