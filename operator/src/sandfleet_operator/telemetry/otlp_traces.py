"""Spans over OTLP or in a file, by OpenTelemetry's own exporters in threads of their own."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

_LOG = logging.getLogger(__name__)
# A larger file takes no more spans.
MAX_FILE_BYTES = 1 << 30


def export_spans(resource: Mapping[str, str], file: str, *, over_otlp: bool) -> Callable[[], None]:
    """Export all spans of this process from now on; the function that is returned sends the rest and ends it.

    This sets the process's tracer provider: fleet and operator are programs of their own.
    """
    provider = TracerProvider(resource=Resource.create(dict(resource)), shutdown_on_exit=False)
    if file:
        try:
            # The file stays open until the process ends.
            out = Path(file).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115
            provider.add_span_processor(BatchSpanProcessor(_appended_to(out)))
        except OSError as error:
            _LOG.warning("cannot keep spans in %s: %s", file, error.strerror)
    if over_otlp:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _appended_to(out: IO[str]) -> ConsoleSpanExporter:
    """Each line is one write, so that several processes may append to one file."""

    def line(span: ReadableSpan) -> str:
        return f"{span.to_json(indent=None)}\n" if os.fstat(out.fileno()).st_size < MAX_FILE_BYTES else ""

    return ConsoleSpanExporter(out=out, formatter=line)
