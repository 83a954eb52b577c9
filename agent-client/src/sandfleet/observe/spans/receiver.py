"""A small OTLP/HTTP receiver for one machine: spans go into a file, metrics and logs are taken and dropped.

It is no collector: it listens on the loopback interface alone, and keeps nothing but spans.
"""

from __future__ import annotations

import gzip
import io
import sqlite3
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from sandfleet.observe.spans.decode import spans_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from sandfleet.observe.spans.store import SpanStore

# The port that OpenTelemetry's exporters use by default.
PORT = 4318
# Of a request, as it comes and unpacked, in bytes.
MAX_BODY, MAX_UNPACKED = 8 << 20, 64 << 20
# Seconds that a sender may be silent.
_SILENCE = 10.0
MAX_SENDERS = 64
_SPANS, _DROPPED = "/v1/traces", ("/v1/metrics", "/v1/logs")


class Receiver:
    """Receives as long as it is entered. `port` 0: a free one, see `endpoint`. Raises OSError where it is taken."""

    def __init__(self, store: SpanStore, port: int = PORT) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.received = 0
        # Requests that were refused: no spans, too large, or the disk is full.
        self.refused = 0
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, name="sandfleet-traces", daemon=True)

    @property
    def endpoint(self) -> str:
        """What OTEL_EXPORTER_OTLP_ENDPOINT has to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, body: bytes) -> int:
        """Keep the spans of a request; return an HTTP status."""
        try:
            spans = spans_of(body)
            with self._lock:
                self._store.add(spans)
                self.received += len(spans)
        except ValueError:
            return self.refuse(400)
        except sqlite3.Error:
            # The exporter tries again.
            return self.refuse(503)
        return 200

    def refuse(self, status: int) -> int:
        """Count a request that was refused."""
        with self._lock:
            self.refused += 1
        return status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Exporters keep their connections.
    block_on_close = False
    receiver: Receiver

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(MAX_SENDERS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that goes away in the middle is no error of the receiver."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE
    # Head and body of an answer go in one packet each: the second must not wait for the first.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """An export."""
        body, status = self._body()
        if body is None:
            self.close_connection = True
            self._answer(self.server.receiver.refuse(status))
        elif self.path == _SPANS:
            self._answer(self.server.receiver.take(body))
        else:
            self._answer(200 if self.path in _DROPPED else 404)

    def _body(self) -> tuple[bytes | None, int]:
        """The body; or None and why it is refused."""
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        # A page in a browser can send no such type without asking first, and is refused when it asks.
        if kind != "application/x-protobuf":
            return None, 415
        if not length.isdecimal() or int(length) > MAX_BODY:
            return None, 413
        body = self.rfile.read(int(length))
        if self.headers.get("Content-Encoding", "identity") == "identity":
            return body, 200
        try:
            unpacked = gzip.GzipFile(fileobj=io.BytesIO(body)).read(MAX_UNPACKED + 1)
        except (OSError, EOFError, zlib.error):
            return None, 400
        return (unpacked, 200) if len(unpacked) <= MAX_UNPACKED else (None, 413)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        # The empty message is an answer of each of the services.
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Nothing: there would be a line for each batch."""
