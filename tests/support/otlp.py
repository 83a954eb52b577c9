"""OTLP for tests: a collector on the loopback interface that keeps what comes, and its messages as records."""

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sandfleet.observe.spans.record import SpanRecord


class Collector(ThreadingHTTPServer):
    """Keeps the bodies of requests by their signal: traces, metrics, logs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies = defaultdict[str, list[bytes]](list)
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[SpanRecord]:
        found = [span for body in self.bodies["traces"] for span in spans_of(body)]
        return sorted(found, key=lambda span: span.start)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.server.bodies[self.path.rpartition("/")[2]].append(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        yield collector
        collector.shutdown()


def spans_of(body: bytes) -> list[SpanRecord]:
    """The spans of an ExportTraceServiceRequest."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        SpanRecord(
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            name=span.name,
            service=str(_plain(resource.resource.attributes).get("service.name", "")),
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=_plain(span.attributes),
            links=tuple(f"{link.trace_id.hex()}:{link.span_id.hex()}" for link in span.links),
            error=(span.status.message or "error") if span.status.code == span.status.STATUS_CODE_ERROR else "",
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _plain(pairs: Iterable[Any]) -> dict[str, Any]:
    kinds = [(pair.key, pair.value, pair.value.WhichOneof("value")) for pair in pairs]
    return {key: getattr(value, kind) for key, value, kind in kinds if kind and kind != "array_value"}
