"""The file of spans: programs append to it, and commands read it."""

import os
import stat
import subprocess
import sys

import pytest
from opentelemetry.trace import Link, Status, StatusCode
from sandfleet.errors import InvalidArgument
from sandfleet.observe import provider
from sandfleet.observe.spans.store import made, newest, read

pytestmark = pytest.mark.process


@pytest.fixture
def path(tmp_path):
    return made(tmp_path / "kept" / "traces.jsonl")


@pytest.fixture
def traced(path):
    opened = provider.exporting("agent", str(path), over_otlp=False)
    yield opened
    opened.shutdown()


@pytest.fixture
def tracer(traced):
    return traced.get_tracer("test")


def test_spans_come_back_as_they_were_made(traced, tracer, path):
    with tracer.start_as_current_span("invoke_agent", attributes={"sandfleet.run.id": "r1", "n": 3, "f": 0.5}) as root:
        link = Link(root.get_span_context())
        with tracer.start_as_current_span("step", links=[link]) as step:
            step.add_event("queued", {"position": 2})
            step.set_status(Status(StatusCode.ERROR, "it broke"))
    traced.force_flush()
    agent, step = read(path, "r1")
    assert (agent.name, agent.parent_id, agent.service) == ("invoke_agent", "", "agent")
    assert agent.attributes == {"sandfleet.run.id": "r1", "n": 3, "f": 0.5}
    assert (step.parent_id, step.error, step.links) == (
        agent.span_id,
        "it broke",
        (f"{agent.trace_id}:{agent.span_id}",),
    )
    assert [(event.name, event.attributes) for event in step.events] == [("queued", {"position": 2})]
    assert agent.start <= step.start <= step.events[0].time <= step.end <= agent.end
    assert read(path, agent.trace_id) == read(path, "") == [agent, step]
    assert read(path, "another") == []
    assert [(kind, name) for kind, name, _ in newest(path, 5)] == [("sandfleet.run.id", "r1")]


def test_the_newest_runs_come_first_and_a_span_that_is_written_twice_is_one(traced, tracer, path):
    for number in range(8):
        with tracer.start_as_current_span("s", attributes={"sandfleet.run.id": f"r{number}"}):
            pass
    traced.force_flush()
    path.write_text(path.read_text() * 2)
    assert [name for _, name, _ in newest(path, 3)] == ["r7", "r6", "r5"]
    assert len(read(path, "r1", "r2")) == 2


def test_the_file_can_be_read_by_its_owner_alone(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


WRITER = """
import sys
from sandfleet.observe import provider
traced = provider.exporting("writer", sys.argv[1], over_otlp=False)
tracer = traced.get_tracer("test")
for number in range(300):
    with tracer.start_as_current_span("s", attributes={"sandfleet.run.id": "r", "long": "x" * 12_000}):
        pass
traced.shutdown()
"""


def test_processes_that_append_at_once_leave_whole_lines(path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(3)]
    assert [one.wait(100) for one in writers] == [0, 0, 0]
    assert len(read(path, "r")) == path.read_text().count("\n") == 900


def test_a_full_file_takes_no_more(path, traced, tracer, monkeypatch):
    monkeypatch.setattr(provider, "MAX_FILE_BYTES", 1)
    for _ in range(2):
        with tracer.start_as_current_span("s", attributes={"sandfleet.run.id": "r"}):
            pass
        traced.force_flush()
    assert len(read(path, "r")) == 1


def test_wrong_lines_cost_their_span_alone_and_huge_ones_are_cut(traced, tracer, path):
    with tracer.start_as_current_span("x" * 10_000, attributes={"sandfleet.run.id": "r", "text": "y" * 100_000}):
        pass
    traced.force_flush()
    good = path.read_text()
    path.write_text(
        "\n".join(["nonsense", "[]", '{"context": 1}', "[" * 100_000, '{"context": {"trace_id": 5}}', good])
    )
    (kept,) = read(path, "r")
    assert (len(kept.name), len(kept.attributes["text"])) == (256, 16_384)


def test_a_place_that_cannot_be_written_or_read_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cannot keep spans"):
        made(tmp_path / "file" / "traces.jsonl")
    with pytest.raises(InvalidArgument, match="does not exist"):
        read(tmp_path / "nowhere.jsonl", "x")
    with pytest.raises(InvalidArgument, match="cannot read spans"):
        read(tmp_path, "x")


def test_a_program_whose_file_cannot_be_written_goes_on_without_spans():
    program = "from sandfleet.observe import provider; print(provider.tracer())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, provider.FILE: "/proc/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"
    assert "cannot keep spans in /proc/none" in done.stderr
