"""Audit records on their way out: in order, bounded, and never in the way of a decision."""

import errno
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from sandfleet_operator.plan.audit import Actor, Decision, Record, Verdict, Writer
from sandfleet_operator.telemetry import audit
from sandfleet_operator.telemetry.audit import AuditLog, JsonLines, audit_log

WRITER = Writer(component="fleet", instance="f-1")
NOW = 1_700_000_000.25


def a_record(name="one", **fields):
    return Record(decision=Decision.RELEASE, verdict=Verdict.ALLOWED, sandbox=name, **fields)


def written(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Kept:
    """A sink; while `gate` is closed it writes nothing."""

    def __init__(self):
        self.records, self.gate, self.began, self.closed = [], threading.Event(), threading.Event(), False
        self.gate.set()

    def write(self, records):
        self.began.set()
        assert self.gate.wait(60)
        self.records += records

    def close(self):
        self.closed = True


def test_records_are_lines_in_their_order_with_time_and_number(tmp_path):
    log = audit_log(WRITER, lambda: NOW, {"SANDFLEET_AUDIT": str(tmp_path / "a.jsonl")})
    for name in ("one", "two"):
        log.write(a_record(name, actor=Actor("agent", "u1"), namespace="team"))
    log.close()
    first, second = written(tmp_path / "a.jsonl")
    assert (first["number"], first["sandbox"], second["number"], second["sandbox"]) == (1, "one", 2, "two")
    assert (first["time"], first["component"], first["instance"], first["namespace"]) == (NOW, "fleet", "f-1", "team")
    assert first["actor"] == {"username": "agent", "uid": "u1"}


def test_a_file_is_appended_to_and_can_be_read_by_its_owner_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    for _ in range(2):
        log = audit_log(WRITER, lambda: NOW, {"SANDFLEET_AUDIT": str(path)})
        log.write(a_record())
        log.close()
    assert len(written(path)) == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        audit_log(WRITER, lambda: NOW, {"SANDFLEET_AUDIT": str(tmp_path / "a.jsonl")})
    assert not (tmp_path / "elsewhere").exists()


def test_without_a_destination_nothing_is_kept_and_no_thread_runs():
    before = threading.active_count()
    log = audit_log(WRITER, lambda: NOW, {})
    log.write(a_record())
    assert threading.active_count() == before
    log.close()


def test_a_slow_sink_costs_records_and_never_a_decision(monkeypatch):
    monkeypatch.setattr(audit, "MAX_WAITING", 3)
    sink = Kept()
    sink.gate.clear()
    log = AuditLog(WRITER, (sink,), lambda: NOW)
    log.write(a_record("first"))
    assert sink.began.wait(60), "the writer has the first one in its hands"
    for number in range(5):
        log.write(a_record(f"later-{number}"))
    assert log.dropped == 2
    sink.gate.set()
    log.close()
    assert [one["number"] for one in sink.records] == [1, 2, 3, 4], "the gap after 4 is the loss"
    assert sink.closed
    assert log.families()[0].samples[0].value == 2


def test_a_full_disk_is_counted_and_told_once(caplog):
    class Full(Kept):
        def write(self, records):
            raise OSError(errno.ENOSPC, "No space left on device")

    log = AuditLog(WRITER, (Full(),), lambda: NOW)
    for _ in range(3):
        log.write(a_record())
    log.close()
    assert log.dropped == 3
    assert [record.getMessage() for record in caplog.records].count("") == 0
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_lines_of_standard_output_leave_it_open(capfd):
    lines = JsonLines.open("-")
    lines.write([{"a": 1}])
    lines.close()
    print("still here")
    assert capfd.readouterr().out == '{"a":1}\nstill here\n'


@pytest.mark.parametrize("hostile", ["x" * 10_000, "\x1b]0;gone\x07", "line\nbreak", '"}{"'])
def test_texts_of_callers_are_bounded_and_stay_in_their_line(tmp_path, hostile):
    log = audit_log(WRITER, lambda: NOW, {"SANDFLEET_AUDIT": str(tmp_path / "a.jsonl")})
    log.write(a_record(hostile, actor=Actor(hostile, hostile), trace_id=hostile, reason=hostile))
    log.close()
    (only,) = written(tmp_path / "a.jsonl")
    assert only["sandbox"] == hostile[:256]
    assert (tmp_path / "a.jsonl").read_bytes().isascii()
    assert b"\x1b" not in (tmp_path / "a.jsonl").read_bytes()


def test_a_detail_that_its_decision_does_not_have_is_refused():
    with pytest.raises(ValueError, match="cannot record release: it has no detail envs"):
        a_record(details={"envs": "SECRET=1"})


@pytest.fixture
def collector():
    """An OTLP collector on loopback; it gives its address and what it was sent."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, self.headers.get("content-encoding"), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.process
def test_records_reach_a_collector_as_otlp_logs(collector, monkeypatch):
    endpoint, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    log = audit_log(WRITER, lambda: NOW, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    details = {"sandbox_uid": "u-7", "restarts": 2}
    log.write(Record(decision=Decision.END, verdict=Verdict.ALLOWED, reason="Released", sandbox="s", details=details))
    log.close()
    ((path, encoding, body),) = received
    assert (path, encoding) == ("/v1/logs", None)
    (resource,) = ExportLogsServiceRequest.FromString(body).resource_logs
    assert {one.key: one.value.string_value for one in resource.resource.attributes}[
        "service.name"
    ] == "sandfleet-fleet"
    (record,) = resource.scope_logs[0].log_records
    said = {one.key: one.value for one in record.attributes}
    assert record.event_name == "sandfleet.audit.end"
    assert record.time_unix_nano == int(NOW * 1e9)
    assert said["sandfleet.audit.reason"].string_value == "Released"
    assert said["sandfleet.audit.detail.restarts"].int_value == 2
    assert json.loads(record.body.string_value)["details"] == details
