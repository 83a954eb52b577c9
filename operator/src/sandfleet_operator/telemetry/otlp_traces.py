"""Spans over OTLP, by OpenTelemetry's own exporter in a thread of its own."""

from collections.abc import Callable, Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def export_spans(resource: Mapping[str, str]) -> Callable[[], None]:
    """From now on all spans of this process are exported; what is returned sends the rest and ends it.

    This sets the process's tracer provider: fleet and operator are programs of their own.
    """
    provider = TracerProvider(resource=Resource.create(dict(resource)), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown
