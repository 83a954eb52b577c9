"""Audit records as OTLP logs, sent by OpenTelemetry's own exporter in the background."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from sandfleet_operator.plan.audit import Writer


class OtlpLogs:
    """OTLP over HTTP; OpenTelemetry's own variables say where to, how often and with which headers."""

    def __init__(self, writer: Writer, exporter: Any = None) -> None:
        named = {"service.name": f"sandfleet-{writer.component}", "service.instance.id": writer.instance}
        self._provider = LoggerProvider(Resource.create(named), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter or OTLPLogExporter()))
        self._logger = self._provider.get_logger("sandfleet.audit")

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        for one in records:
            nanoseconds = int(one["time"] * 1e9)
            self._logger.emit(
                LogRecord(
                    timestamp=nanoseconds,
                    observed_timestamp=nanoseconds,
                    severity_number=SeverityNumber.INFO,
                    severity_text="INFO",
                    event_name=f"sandfleet.audit.{one['decision']}",
                    body=json.dumps(one, separators=(",", ":")),
                    attributes=_attributes(one),
                )
            )

    def close(self) -> None:
        self._provider.shutdown()


def _attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record's fields as flat attributes."""
    flat = {f"sandfleet.audit.{key}": value for key, value in record.items() if not isinstance(value, Mapping)}
    flat |= {f"sandfleet.audit.detail.{key}": value for key, value in record["details"].items()}
    return flat | {"user.name": record["actor"]["username"], "user.id": record["actor"]["uid"]}
