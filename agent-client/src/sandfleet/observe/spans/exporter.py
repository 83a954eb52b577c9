"""OpenTelemetry's exporter over OTLP and HTTP, with the bytes of `encode`. Importing this needs the SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from sandfleet.observe.spans.encode import request_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class Exporter(OTLPSpanExporter):
    """Sends as the SDK's does, and where its environment says. Versions that send in another way write the bytes too."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write the spans and send them, again and again for some seconds."""
        send = getattr(getattr(self, "_client", None), "export", None)
        if send is None:
            return super().export(spans)
        return SpanExportResult.SUCCESS if send(request_of(spans)).success else SpanExportResult.FAILURE
