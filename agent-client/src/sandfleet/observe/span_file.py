"""Spans in a file, one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sandfleet.observe import provider


@contextmanager
def write_spans_to(path: str | Path) -> Iterator[None]:
    """Write every span that ends during the body to a file, one JSON object a line. Needs `sandfleet[otel]`.

    Uses the tracer provider of the program; where it has none, the client's spans alone are written. Raises
    ImportError without the SDK.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    with ExitStack() as stack:
        used = provider.of_the_program()
        if not isinstance(used, TracerProvider):
            used = TracerProvider(resource=Resource.create({"service.name": "sandfleet"}), shutdown_on_exit=False)
            stack.enter_context(provider.use(used))
        out = stack.enter_context(Path(path).open("a", buffering=1, encoding="utf-8"))
        exporter = provider.appended_to(out)
        processor = SimpleSpanProcessor(exporter)
        used.add_span_processor(processor)
        try:
            yield
        finally:
            # A provider cannot remove a processor: after its shutdown it still gets spans, and must not write them.
            exporter.formatter = lambda _: ""
            processor.shutdown()
            exporter.out = sys.stderr
