"""Spans and metrics of a process over OTLP where OpenTelemetry's variables name an endpoint, and spans in a file.

Queues are bounded, and what a collector does not take is dropped: no decision waits for it.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Self

from sandfleet_operator.telemetry.audit import AuditLog
from sandfleet_operator.telemetry.metrics import Family

# The file to which programs and fleets of one machine append their spans.
FILE = "SANDFLEET_TRACES"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Seconds between two exports of the metrics, and for which the end of the process waits.
INTERVAL, END_SECONDS = 60.0, 2.0


class Reports(NamedTuple):
    """Where a process says what it does: audit records, and spans with metrics."""

    audit: AuditLog
    export: "Export"


class Export:
    """What one process exports. `service`: fleet or operator."""

    def __init__(self, service: str, environment: Mapping[str, str]) -> None:
        self._service, self._environment = service, environment
        self.closing: list[Callable[[], None]] = []

    @classmethod
    def begun(cls, service: str, environment: Mapping[str, str]) -> Self:
        """From now on the process's spans are exported, if they are to be."""
        export = cls(service, environment)
        file, over_otlp = environment.get(FILE, ""), export.is_wanted("TRACES")
        if file or over_otlp:
            # Late: most processes export nothing, and the import takes longer than the start of a fleet.
            from sandfleet_operator.telemetry.otlp_traces import export_spans

            export.closing.append(export_spans(export.resource(), file, over_otlp=over_otlp))
        return export

    async def run(self, families: Callable[[], Iterable[Family]]) -> None:
        """Exports metrics until it is cancelled. `families` is called in the event loop."""
        if not self.is_wanted("METRICS"):
            await asyncio.Event().wait()
        from sandfleet_operator.telemetry.otlp_metrics import OtlpMetrics

        exporter = OtlpMetrics(self.resource())
        self.closing.append(exporter.close)
        interval = float(self._environment.get("OTEL_METRIC_EXPORT_INTERVAL") or INTERVAL * 1000) / 1000
        while True:
            await asyncio.sleep(max(0.05, interval))
            await asyncio.to_thread(exporter.export, exporter.data(families()))

    def close(self) -> None:
        """Sends what is left, for two seconds at most."""
        threads = [threading.Thread(target=close, daemon=True) for close in self.closing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(END_SECONDS)

    def resource(self) -> dict[str, str]:
        """The attributes of everything that is exported."""
        name = self._environment.get("OTEL_SERVICE_NAME") or f"sandfleet-{self._service}"
        known = {
            "service.name": name,
            "service.instance.id": self._environment.get("POD_NAME") or str(os.getpid()),
            "k8s.pod.name": self._environment.get("POD_NAME", ""),
            "k8s.namespace.name": self._environment.get("POD_NAMESPACE", ""),
        }
        return {key: value for key, value in known.items() if value}

    def is_wanted(self, signal: str) -> bool:
        """Whether spans (TRACES) or metrics (METRICS) are exported."""
        if self._environment.get(f"OTEL_{signal}_EXPORTER", "otlp") != "otlp":
            return False
        return any(self._environment.get(name) for name in (ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
