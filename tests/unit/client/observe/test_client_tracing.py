"""One trace: client, metadata, and the executor's spans that come back."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._fleets.snapshots import AsyncSnapshots
from sandfleet.observe.span_file import write_spans_to
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Event, Fails, FakeFleet, finished, output
from sandfleet.values.execution import Outcome
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.fleet.v1 import snapshot_pb2


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
async def fake() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as fleet:
        yield fleet


@pytest.fixture
async def sandbox(fake: FakeFleet) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncFleet.connect(fake.address) as fleet:
        opened = await AsyncSandbox.create(fleet=fleet, rpc_timeout=5.0)
        yield opened
        await opened.close()


def back(trace_id: bytes, span_id: bytes, parent: bytes, **fields: object) -> Event:
    span = common_pb2.Span(trace_id=trace_id, span_id=span_id, parent_span_id=parent, **fields)  # type: ignore[arg-type]
    return finished(spans=[span])


async def test_an_execution_is_a_span_below_the_callers_and_its_context_goes_along(
    spans: InMemorySpanExporter, fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    with trace.get_tracer("agent").start_as_current_span("step") as step:
        await sandbox.run_code("secret code", execution_id="e-1")
    found = {span.name: span for span in spans.get_finished_spans()}
    ours = found["execute_tool run_code"]
    assert ours.parent == step.get_span_context()
    assert ours.attributes is not None
    assert ours.attributes["gen_ai.tool.call.id"] == "e-1"
    assert ours.attributes["sandfleet.outcome"] == "ok"
    assert fake.called("Execute")[0].metadata["traceparent"] == (
        f"00-{ours.context.trace_id:032x}-{ours.context.span_id:016x}-{ours.context.trace_flags:02x}"
    )
    assert "secret code" not in "".join(span.to_json() for span in found.values())


async def test_other_calls_are_spans_of_the_rpc_conventions_and_fail_with_the_errors_name(
    spans: InMemorySpanExporter, fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.fail("Stat", Fails(grpc.StatusCode.NOT_FOUND, "FileNotFound", "cannot stat it"))
    assert not await sandbox.files.exists("f")
    (span,) = [span for span in spans.get_finished_spans() if span.name.endswith("/Stat")]
    assert span.name == "sandfleet_api.executor.v1.FilesystemService/Stat"
    assert span.kind is trace.SpanKind.CLIENT
    assert span.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": "sandfleet_api.executor.v1.FilesystemService/Stat",
        "error.type": "FileNotFound",
    }


async def test_the_executors_spans_come_back_into_the_same_trace(
    spans: InMemorySpanExporter, fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    with trace.get_tracer("agent").start_as_current_span("step") as step:
        ours, mine = step.get_span_context(), b"\1" * 8
        trace_id = ours.trace_id.to_bytes(16, "big")
        fake.answer("code", back(trace_id, mine, b"", name="cell", error="boom", attributes={"process.pid": "7"}))
        await sandbox.run_code("code")
    found = {span.name: span for span in spans.get_finished_spans()}
    cell, call = found["cell"], found["execute_tool run_code"]
    assert cell.context.trace_id == ours.trace_id
    assert cell.context.span_id == int.from_bytes(mine, "big")
    assert cell.parent == call.context
    assert cell.resource.attributes["service.name"] == "sandfleet-executor"
    assert cell.status.description == "boom"


async def test_spans_of_a_foreign_trace_or_malformed_ones_are_dropped(
    spans: InMemorySpanExporter, fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    with trace.get_tracer("agent").start_as_current_span("step") as step:
        trace_id = step.get_span_context().trace_id.to_bytes(16, "big")
        fake.answer("foreign", back(b"\7" * 16, b"\1" * 8, b"", name="foreign"))
        fake.answer("short", back(trace_id, b"\1", b"", name="short"))
        fake.answer("empty", back(b"", b"", b"", name="empty"))
        for code in ("foreign", "short", "empty"):
            assert (await sandbox.run_code(code)).ok
    assert not {"foreign", "short", "empty"} & {span.name for span in spans.get_finished_spans()}


async def test_a_lost_execution_is_an_error_of_its_span_and_a_failing_one_is_not(
    spans: InMemorySpanExporter, fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("raises", finished(common_pb2.OUTCOME_ERROR))
    fake.answer_exactly("lies", *(Event(sequence=1, started={"execution_id": "e"}), Event(sequence=9)))
    await sandbox.run_code("raises")
    await sandbox.run_code("lies", execution_id="e")
    raises, lies = [span for span in spans.get_finished_spans() if span.name == "execute_tool run_code"]
    assert raises.status.is_unset
    assert (lies.status.status_code, lies.status.description) == (trace.StatusCode.ERROR, "BadSequence")


async def test_a_stream_that_is_taken_up_again_is_an_event_of_the_executions_span_and_of_nothing_else(
    spans: InMemorySpanExporter, fake: FakeFleet, sandbox: AsyncSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    cut = Fails(grpc.StatusCode.UNAVAILABLE, "", "Socket closed")
    fake.answer("breaks", output("one "), cut, output("two"), finished())
    fake.answer("goes well", output("one"), finished())
    with caplog.at_level("DEBUG", logger="sandfleet"):
        execution = await sandbox.run_code("breaks")
        await sandbox.run_code("goes well")
        assert (await sandbox.commands.run("breaks")).stdout == "one two"
    assert (execution.outcome, execution.message, execution.logs.stdout) == (Outcome.OK, "", "one two")
    assert not caplog.records
    found = [
        [(event.name, dict(event.attributes or {})) for event in span.events]
        for span in spans.get_finished_spans()
        if span.name.startswith("execute_tool")
    ]
    resumed = [("sandfleet.stream.resumed", {"sandfleet.stream.after": "2"})]
    assert found == [resumed, [], resumed]


async def test_without_the_sdk_nothing_is_sent_and_nothing_breaks(
    monkeypatch: pytest.MonkeyPatch, fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    fake.answer("code", back(b"\1" * 16, b"\1" * 8, b"", name="cell"))
    assert (await sandbox.run_code("code")).ok
    assert "traceparent" not in fake.called("Execute")[0].metadata


async def test_spans_are_written_to_a_file_only_while_asked_for(
    spans: InMemorySpanExporter, sandbox: AsyncSandbox, tmp_path: Path
) -> None:
    with write_spans_to(tmp_path / "trace.jsonl"):
        await sandbox.run_code("code")
    await sandbox.run_code("code")
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["execute_tool run_code"]


class Answers:
    """A stream of answers that goes on after the one that the caller waits for."""

    def __init__(self) -> None:
        self.cancelled = False

    async def __aiter__(self) -> AsyncIterator[snapshot_pb2.CreateSnapshotResponse]:
        answer = snapshot_pb2.CreateSnapshotResponse()
        answer.snapshot.snapshot_id = "s-1"
        while True:
            yield answer

    def cancel(self) -> None:
        self.cancelled = True


async def test_the_span_of_a_snapshot_ends_well_with_its_answer(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing() -> tuple[()]:
        return ()

    answers = Answers()
    monkeypatch.setattr(AsyncSnapshots, "_stub", SimpleNamespace(CreateSnapshot=lambda *_, **__: answers))
    connection: Any = SimpleNamespace(reach=nothing, metadata=nothing)
    before = trace.get_current_span()
    taken = await AsyncSnapshots(connection).take_snapshot("sb-1", name="", labels={}, reason="manual")
    (span,) = spans.get_finished_spans()
    assert (taken.id, answers.cancelled, trace.get_current_span()) == ("s-1", True, before)
    assert span.status.is_ok or span.status.is_unset
