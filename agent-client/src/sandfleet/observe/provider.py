"""Which tracer makes the client's spans: the program's, or one that exports because two variables ask for it.

Nothing here sets a global provider. Without the SDK, and without a program that traces, there is no tracer.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

# What asks for spans without a line of code; OpenTelemetry's own variables say where they go.
_EXPORTER = "OTEL_TRACES_EXPORTER"
# The file to which each process appends its spans. A larger file takes no more.
FILE = "SANDFLEET_TRACES"
MAX_FILE_BYTES = 1 << 30
# How long the end of the program waits for a collector to take the last spans, in seconds.
_END_SECONDS = 2.0
_LOG = logging.getLogger("sandfleet")
_chosen: list[TracerProvider | None] = []


def tracer() -> Any:
    """Return the tracer of the moment, or None."""
    provider = _chosen[-1] if _chosen else (_of_the_program() or _asked_for())
    return None if provider is None else _tracer_of(provider)


@contextmanager
def use(provider: TracerProvider | None) -> Iterator[None]:
    """Make the client's spans with `provider` during the body, in all threads; None makes no spans."""
    _chosen.append(provider)
    try:
        yield
    finally:
        _chosen.remove(provider)


def of_the_program() -> Any:
    """Return the provider that the program has set; None where it has none."""
    return _chosen[-1] if _chosen else _of_the_program()


def _of_the_program() -> Any:
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_tracer_provider"):
        return None
    found = trace.get_tracer_provider()
    return None if isinstance(found, trace.ProxyTracerProvider) else found


@lru_cache(maxsize=4)
def _tracer_of(provider: Any) -> Any:
    return provider.get_tracer("sandfleet")


@cache
def _asked_for() -> TracerProvider | None:
    """The provider that the environment asks for, made at its first use."""
    over_otlp = "otlp" in (word.strip() for word in os.environ.get(_EXPORTER, "").split(","))
    file = os.environ.get(FILE, "")
    if not (over_otlp or file):
        return None
    try:
        return exporting("sandfleet", file, over_otlp=over_otlp)
    except ImportError:
        _LOG.warning("cannot export spans: their SDK is not installed (pip install 'sandfleet[otel]')")
    except OSError as error:
        _LOG.warning("cannot keep spans in %s: %s", file, error.strerror)
    return None


def exporting(service: str, file: str = "", *, over_otlp: bool = True) -> TracerProvider:
    """Return a provider that appends to a file, or exports over OTLP as the environment says, or both.

    Its queues are bounded. A collector that does not answer costs spans, and at most two seconds at the program's end.
    Raises ImportError without the SDK, and OSError for a file that cannot be written.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    # The file stays open until the program ends.
    files = [appended_to(Path(file).open("a", buffering=1, encoding="utf-8"))] if file else []  # noqa: SIM115
    exporters = [*files, *([OTLPSpanExporter()] if over_otlp else [])]
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))

    def give_up() -> None:
        for exporter in exporters:
            exporter.shutdown()

    atexit.register(_end, provider.shutdown, give_up)
    return provider


def appended_to(out: IO[str]) -> ConsoleSpanExporter:
    """Return an exporter that appends each span to a line-buffered file. Raises ImportError without the SDK.

    Several processes may append to one file: each line is one write.
    """
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    def line(span: ReadableSpan) -> str:
        return f"{span.to_json(indent=None)}\n" if os.fstat(out.fileno()).st_size < MAX_FILE_BYTES else ""

    return ConsoleSpanExporter(out=out, formatter=line)


def _end(flush: Callable[[], None], give_up: Callable[[], None]) -> None:
    sending = threading.Thread(target=flush, name="sandfleet-spans", daemon=True)
    sending.start()
    sending.join(_END_SECONDS)
    if sending.is_alive():
        give_up()
