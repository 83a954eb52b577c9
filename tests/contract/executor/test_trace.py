"""One trace from the caller's span to the process that runs the code, and the executor's spans back."""

import asyncio
import secrets

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sandfleet import Outcome
from sandfleet_api.executor.v1 import interpreter_pb2, interpreter_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHILD = "import os, subprocess\nprint(os.environ.get('TRACEPARENT'))\nsubprocess.run('echo $TRACEPARENT', shell=True)"


@pytest.fixture(scope="module")
def spans():
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


def by_service(spans, trace_id):
    ended = [span for span in spans.get_finished_spans() if span.context.trace_id == trace_id]
    return {(span.resource.attributes["service.name"] == "sandfleet-executor", span.name): span for span in ended}


@pytest.mark.parametrize("name", ["execute_cell", "run_command"])
async def test_the_executor_s_span_is_below_the_client_s_and_above_the_child_s(sandbox, context, spans, name):
    with trace.get_tracer("test").start_as_current_span("step") as step:
        if name == "execute_cell":
            said = (await sandbox.run_code(CHILD, context=context)).logs.stdout
        else:
            said = (await sandbox.commands.run("echo $TRACEPARENT; sh -c 'echo $TRACEPARENT'")).stdout
    found = by_service(spans, step.get_span_context().trace_id)
    own = found[True, name]
    tool = next(
        span for (of_executor, each), span in found.items() if not of_executor and each.startswith("execute_tool")
    )
    assert own.parent.span_id == tool.context.span_id
    assert tool.parent.span_id == step.get_span_context().span_id
    flags = int(step.get_span_context().trace_flags)
    expected = f"00-{own.context.trace_id:032x}-{own.context.span_id:016x}-{flags:02x}\n"
    assert said == expected * 2
    assert own.start_time <= own.end_time
    assert own.attributes["sandfleet.outcome"] == Outcome.OK


async def test_a_failure_is_seen_in_the_span_and_no_code_is(sandbox, context, spans):
    with trace.get_tracer("test").start_as_current_span("step") as step:
        await sandbox.run_code("raise ValueError('a secret of the code')", context=context)
    own = by_service(spans, step.get_span_context().trace_id)[True, "execute_cell"]
    assert own.attributes["sandfleet.outcome"] == "error"
    assert not own.status.is_ok
    assert "secret" not in own.to_json()


async def test_the_trace_of_one_execution_does_not_stay_for_the_next(sandbox, context):
    with trace.get_tracer("test").start_as_current_span("step") as step:
        await sandbox.run_code("1", context=context)
    said = (await sandbox.run_code(CHILD, context=context)).logs.stdout
    assert f"{step.get_span_context().trace_id:032x}" not in said


@pytest.mark.parametrize(
    "header", [None, "", "nonsense", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "99-x", "00-" + "a" * 5_000]
)
async def test_without_a_valid_trace_there_is_none_in_the_child_and_no_span(executor, header):
    request = interpreter_pb2.ExecuteRequest(execution_id=f"t-{secrets.token_hex(4)}", code=CHILD)
    metadata = (("authorization", f"Bearer {executor.token()}"),)
    metadata += () if header is None else (("traceparent", header),)
    async with executor.channel() as channel:
        stub = interpreter_pb2_grpc.InterpreterServiceStub(channel)
        events = [event async for answer in stub.Execute(request, metadata=metadata) for event in answer.events]
    assert b"".join(event.output.data for event in events) == b"None\n\n"
    assert list(events[-1].finished.spans) == []
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_the_phases_of_a_cell_are_spans_below_it_and_lie_within_it(sandbox, context, spans):
    with trace.get_tracer("test").start_as_current_span("step") as step:
        code = "import time; time.sleep(0.02); print('x', flush=True); time.sleep(0.02)"
        await sandbox.run_code(code, context=context)
    found = by_service(spans, step.get_span_context().trace_id)
    own, run, first = (found[True, name] for name in ("execute_cell", "run", "first_output"))
    assert run.parent.span_id == first.parent.span_id == own.context.span_id
    assert own.start_time <= run.start_time == first.start_time <= first.end_time < run.end_time <= own.end_time


async def test_a_cell_that_is_killed_shows_its_rollback(sandbox, context, spans):
    await sandbox.run_code("x = 1", context=context)
    with trace.get_tracer("test").start_as_current_span("step") as step:
        done = await sandbox.run_code("import os; os._exit(1)", context=context)
    assert done.rollback is not None
    found = by_service(spans, step.get_span_context().trace_id)
    assert found[True, "roll_back"].parent.span_id == found[True, "execute_cell"].context.span_id


async def test_a_cell_that_waits_for_its_turn_shows_the_wait(sandbox, context, spans):
    begun = asyncio.Event()
    waits = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)"
    first = asyncio.create_task(sandbox.run_code(waits, context=context, on_stdout=lambda _: begun.set()))
    await begun.wait()
    with trace.get_tracer("test").start_as_current_span("step") as step:
        second = asyncio.create_task(sandbox.run_code("1", context=context))
        # The executor has taken the second cell before what comes after it.
        await asyncio.sleep(0)
        await sandbox.run_code("1")
        await sandbox.files.write("go", b"")
        await asyncio.gather(first, second)
    found = by_service(spans, step.get_span_context().trace_id)
    assert found[True, "queue"].end_time <= found[True, "run"].start_time
