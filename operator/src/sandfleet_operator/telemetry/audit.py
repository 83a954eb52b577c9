"""Writes audit records behind the decisions: as JSON lines to a file or standard output, and as OTLP logs.

A decision never waits for its record. What the writer cannot keep up with is dropped and counted, and the numbers of
the records have a gap.
"""

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, Self

from sandfleet_operator.plan.audit import Record, Writer, as_json
from sandfleet_operator.telemetry.metrics import Counter, Family, Gauge, Sample

# Records that wait to be written: about a second of the busiest fleet.
MAX_WAITING = 20_000
# Seconds that `close` waits for what is not yet written.
CLOSE_SECONDS = 5.0
# Where records go by default: a file, `-` for standard output; empty: nowhere.
DESTINATION = "SANDFLEET_AUDIT"
# Any of these asks for OTLP logs, as for every program with OpenTelemetry.
OTLP = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_LOG = logging.getLogger(__name__)


class Sink(Protocol):
    """Where records go. It is called by one thread."""

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Raises OSError."""
        ...

    def close(self) -> None: ...


class JsonLines:
    """One line of JSON for each record, appended. Lines of several processes on one file do not mix."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    @classmethod
    def open(cls, destination: str) -> Self:
        """`-` is standard output. A new file can be read by its owner alone. Raises OSError."""
        if destination == "-":
            return cls(os.fdopen(os.dup(sys.stdout.fileno()), "ab", buffering=0))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return cls(os.fdopen(os.open(Path(destination), flags, 0o600), "ab", buffering=0))

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """One write for all: a reader sees whole lines, and a crash cuts the last one at most."""
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records)
        rest = memoryview(text.encode())
        while rest:
            rest = rest[self._stream.write(rest) :]

    def close(self) -> None:
        self._stream.close()


class AuditLog:
    """`clock` gives seconds since the epoch. Without sinks it does nothing."""

    def __init__(self, writer: Writer, sinks: Sequence[Sink], clock: Callable[[], float]) -> None:
        self._writer, self._sinks, self._clock = writer, tuple(sinks), clock
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MAX_WAITING)
        self._number = 0
        # Since the start of the process.
        self.dropped = 0
        self._decisions = Counter(
            "sandfleet_decisions_total",
            "Decisions of the audit log, whether it is written or not.",
            ("decision", "verdict", "reason"),
        )
        self._failing = self._full = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        if self._sinks:
            self._thread.start()

    def write(self, record: Record) -> None:
        """Returns at once."""
        self._decisions.add(record.decision.value, record.verdict.value, record.reason)
        if not self._sinks:
            return
        self._number += 1
        try:
            self._waiting.put_nowait(as_json(record, self._writer, self._number, self._clock()))
        except queue.Full:
            # Once for each time that it gets full.
            if not self._full:
                _LOG.error("cannot keep audit records: %d wait to be written", MAX_WAITING)
            self.dropped, self._full = self.dropped + 1, True
        else:
            self._full = False

    def families(self) -> list[Family]:
        dropped = Gauge(
            name="sandfleet_audit_records_dropped",
            text="Audit records that were lost since the start of the process.",
            samples=(Sample(self.dropped),),
        )
        return [dropped, self._decisions]

    def close(self) -> None:
        """Writes what waits, for some seconds at most."""
        if self._thread.is_alive():
            self._waiting.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while batch[-1] is not None and not self._waiting.empty():
                batch.append(self._waiting.get())
            self._write([one for one in batch if one is not None])
            if batch[-1] is None:
                for sink in self._sinks:
                    sink.close()
                return

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        for sink in self._sinks:
            try:
                sink.write(records)
            except OSError as error:
                self.dropped += len(records)
                # Once, and not for each record of a full disk.
                if not self._failing:
                    _LOG.error("cannot write %d audit records: %s", len(records), error)
                self._failing = True
            else:
                self._failing = False


def audit_log(writer: Writer, clock: Callable[[], float], environment: Mapping[str, str]) -> AuditLog:
    """With the sinks that the environment asks for. Raises OSError where the file cannot be opened."""
    sinks: list[Sink] = []
    if destination := environment.get(DESTINATION, ""):
        sinks.append(JsonLines.open(destination))
    if any(environment.get(name) for name in OTLP):
        # A late import: few fleets need it, and it takes longer than the start of one.
        from sandfleet_operator.telemetry.otlp_logs import OtlpLogs

        sinks.append(OtlpLogs(writer))
    return AuditLog(writer, sinks, clock)
