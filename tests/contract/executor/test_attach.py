"""Streams survive their connection: anybody may attach, at any event, and nothing runs twice."""

import asyncio

import grpc
import pytest
from contract.executor.harness import PATIENCE, until
from sandfleet import Outcome
from sandfleet.errors import AlreadyExistsError, NotFoundError
from sandfleet_api.executor.v1 import interpreter_pb2, interpreter_pb2_grpc, process_pb2, process_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
ALLOWED = 96 * MIB
# Shows a number a step, and notes on the disk that it ran.
STEPS = """
import time
for n in range({steps}):
    with open('{name}', 'a') as file: file.write('x')
    print(n, flush=True)
    time.sleep({pause})
"""


def steps(name, *, steps=20, pause=0.03):
    return STEPS.format(name=name, steps=steps, pause=pause)


def numbers(count):
    return "".join(f"{n}\n" for n in range(count))


async def events(executor, call, request):
    """All events of one stream, by a bare stub. Raises AioRpcError."""
    async with executor.channel() as channel:
        stubs = {
            "Execute": interpreter_pb2_grpc.InterpreterServiceStub,
            "AttachCell": interpreter_pb2_grpc.InterpreterServiceStub,
            "Start": process_pb2_grpc.ProcessServiceStub,
            "AttachCommand": process_pb2_grpc.ProcessServiceStub,
        }
        method = getattr(stubs[call](channel), "Attach" if call.startswith("Attach") else call)
        metadata = (("authorization", f"Bearer {executor.token()}"),)
        return [
            event async for message in method(request, metadata=metadata, timeout=PATIENCE) for event in message.events
        ]


def after(execution_id, number=0, seen=0):
    return interpreter_pb2.InterpreterServiceAttachRequest(
        execution_id=execution_id, after_sequence=number, seen_bytes=seen
    )


async def test_a_second_client_follows_a_running_cell_from_its_first_event(executor, sandbox, context):
    other, began = executor.client(), asyncio.Event()
    code = "import os, time\nprint('early', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('late')\n42"
    first = asyncio.create_task(
        sandbox.run_code(code, context=context, execution_id="shared", on_stdout=lambda _: began.set())
    )
    await began.wait()
    second = asyncio.create_task(other.attach("shared"))
    await sandbox.files.write("go", b"")
    own, attached = await asyncio.gather(first, second)
    assert attached.logs.stdout == own.logs.stdout == "early\nlate\n"
    assert (attached.text, attached.outcome, attached.context) == (own.text, Outcome.OK, context)


@pytest.mark.smoke
async def test_an_ended_cell_is_followed_as_well_and_costs_nothing_again(executor, sandbox, context):
    own = await sandbox.run_code(steps("ended", steps=3, pause=0), context=context, execution_id="ended")
    attached = await executor.client().attach("ended")
    assert (attached.logs, attached.usage, attached.files) == (own.logs, own.usage, own.files)
    assert await sandbox.files.read("ended") == "xxx"


@pytest.mark.smoke
async def test_a_command_is_connected_to_by_another_client_and_can_be_ended_there(executor, sandbox):
    handle = await sandbox.commands.run("echo here; sleep 100", background=True, execution_id="sleeps")
    other = await executor.client().commands.connect("sleeps")
    assert (await anext(other)).text == "here\n"
    assert await other.kill()
    assert (await other.wait()).stdout == (await handle.wait()).stdout == "here\n"


async def test_any_event_is_a_place_to_go_on_from(executor, sandbox, context):
    await sandbox.run_code(steps("places", steps=8), context=context, execution_id="places")
    whole = await events(executor, "AttachCell", after("places"))
    assert [event.sequence for event in whole] == list(range(1, len(whole) + 1))
    for number in range(len(whole)):
        assert await events(executor, "AttachCell", after("places", number)) == whole[number:]


@pytest.mark.smoke
async def test_an_event_that_it_has_not_come_to_is_no_place(executor, sandbox, context):
    await sandbox.run_code("1", context=context, execution_id="short")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await events(executor, "AttachCell", after("short", 1000))
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE


@pytest.mark.smoke
async def test_attach_refuses_unknown_executions_and_those_of_the_other_kind(sandbox, context):
    await sandbox.run_code("1", context=context, execution_id="a-cell")
    with pytest.raises(NotFoundError):
        await sandbox.attach("nothing")
    with pytest.raises(NotFoundError):
        await sandbox.commands.connect("a-cell")


@pytest.mark.smoke
async def test_a_token_for_cells_alone_does_not_read_commands(executor, sandbox):
    await sandbox.commands.run("echo secret", execution_id="of-commands")
    limited = executor.token(scope="interpreter")
    request = process_pb2.ProcessServiceAttachRequest(execution_id="of-commands")
    async with executor.channel() as channel:
        for token, code in ((limited, grpc.StatusCode.PERMISSION_DENIED), (executor.token(), None)):
            call = process_pb2_grpc.ProcessServiceStub(channel).Attach(
                request, metadata=(("authorization", f"Bearer {token}"),), timeout=PATIENCE
            )
            assert code is None or await call.code() is code
            assert code is not None or [message async for message in call]


@pytest.mark.smoke
async def test_a_repeated_id_gives_the_same_stream_and_runs_once(executor, sandbox, context):
    request = interpreter_pb2.ExecuteRequest(
        execution_id="again", context_id=context, code=steps("again", steps=3, pause=0)
    )
    first = await events(executor, "Execute", request)
    assert await events(executor, "Execute", request) == first
    assert await sandbox.files.read("again") == "xxx"


async def test_a_repeated_id_attaches_while_it_runs(executor, sandbox, context):
    request = interpreter_pb2.ExecuteRequest(execution_id="twice", context_id=context, code=steps("twice"))
    first, second = await asyncio.gather(*(events(executor, "Execute", request) for _ in range(2)))
    assert first == second
    assert await sandbox.files.read("twice") == "x" * 20


@pytest.mark.smoke
@pytest.mark.parametrize("other", [{"code": "2"}, {"context": "another"}, {"timeout": 7.0}, {"envs": {"A": "1"}}])
async def test_a_repeated_id_with_another_request_is_refused(sandbox, context, other):
    name = f"mine-{context}"
    same = {"code": "1", "context": context, "execution_id": name}
    await sandbox.run_code(**same)
    with pytest.raises(AlreadyExistsError) as refused:
        await sandbox.run_code(**{**same, **other})
    assert refused.value.reason == "ExecutionMismatch"
    with pytest.raises(AlreadyExistsError):
        await sandbox.commands.run("1", execution_id=name)


@pytest.mark.smoke
async def test_a_connection_that_is_cut_at_every_event_costs_nothing(cutting, sandbox, context):
    cutter, client = cutting
    seen = []

    def cut(text):
        seen.append(text)
        cutter.cut()

    execution = await client.run_code(steps("cut"), context=context, on_stdout=cut)
    assert execution.outcome is Outcome.OK
    assert execution.logs.stdout == "".join(seen) == numbers(20)
    assert execution.logs.gaps == ()
    # Without the cuts there was one.
    assert cutter.connections > 5
    assert await sandbox.files.read("cut") == "x" * 20


async def test_wherever_in_an_answer_its_connection_is_cut_the_cell_runs_once_and_all_of_it_is_seen(
    cutting, sandbox, context
):
    cutter, client = cutting
    code = "open('runs', 'a').write('x')\nprint('one', flush=True)\nimport sys; print('two', file=sys.stderr)\n'three'"
    whole = await client.run_code(code, context=context)
    connections = cutter.connections
    # From before its first byte to behind its last: head, events and trailer are some 250 bytes.
    for turn, place in enumerate(range(0, 400, 4)):
        cutter.cut_after(place)
        execution = await client.run_code(code, context=context)
        assert (execution.outcome, execution.text, execution.logs) == (Outcome.OK, "'three'", whole.logs), place
        assert execution.cell_number == whole.cell_number + 1 + turn
    assert await sandbox.files.read("runs") == "x" * 101
    # Control: most of these places were in an answer.
    assert cutter.connections > connections + 30


@pytest.mark.smoke
async def test_a_command_whose_connection_is_cut_goes_on_as_well(cutting, sandbox):
    cutter, client = cutting
    line = "for n in $(seq 0 19); do printf x >> line; echo $n; sleep 0.03; done"
    result = await client.commands.run(line, on_stdout=lambda _: cutter.cut())
    assert result.stdout == numbers(20)
    assert cutter.connections > 5
    assert await sandbox.files.read("line") == "x" * 20


@pytest.mark.smoke
async def test_an_answer_that_never_came_is_asked_for_again_and_the_code_runs_once(cutting, sandbox, context):
    cutter, client = cutting
    await client.run_code("1", context=context)
    cutter.deafen()
    running = asyncio.create_task(client.run_code(steps("unheard", steps=3, pause=0), context=context))
    await until(lambda: sandbox.files.exists("unheard"))
    cutter.cut_and_heal()
    assert (await running).logs.stdout == numbers(3)
    assert await sandbox.files.read("unheard") == "xxx"


@pytest.mark.smoke
async def test_a_reader_that_stops_delays_others_only_shortly_and_takes_no_memory(executor, sandbox):
    executor.restart_peak()
    idle = executor.memory()
    line = "head -c 60M /dev/zero | tr '\\0' x"
    stopped = await executor.client().commands.run(
        line, background=True, timeout=100, output_limit=256 * MIB, execution_id="held"
    )
    going = await sandbox.commands.connect("held")
    result = await going.wait()
    assert result.outcome is Outcome.OK
    assert len(result.stdout_bytes) + sum(gap.dropped_bytes for gap in result.gaps) == 60 * MIB
    late = await stopped.wait()
    assert len(late.stdout_bytes) + sum(gap.dropped_bytes for gap in late.gaps) == 60 * MIB
    assert executor.peak_memory() < idle + ALLOWED


async def test_a_late_reader_gets_all_of_many_small_events(executor, sandbox, context):
    code = "from IPython.display import display\nfor n in range(1000): display(n)"
    execution = await sandbox.run_code(code, context=context, timeout=100, execution_id="many")
    whole = await events(executor, "AttachCell", after("many"))
    shown = [event.result.parts[0].data for event in whole if event.WhichOneof("event") == "result"]
    assert shown == [b"%d" % n for n in range(1000)]
    assert len(execution.results) == 1000


@pytest.mark.parametrize(
    "code",
    [
        "from IPython.display import display\nfor n in range(1000): display('x' * 8000)\nwhile True: display('x')",
        # By turns, so that each is an event of its own.
        "import os\nwhile True: os.write(1, b'x'); os.write(2, b'y')",
    ],
    ids=["results", "output"],
)
async def test_many_events_a_second_and_a_reader_that_stops_cost_the_executor_little(executor, context, code):
    """Alone, it is waited for: the code does not get on, and the executor holds what it may and no more."""
    executor.restart_peak()
    idle = executor.memory()
    request = interpreter_pb2.ExecuteRequest(execution_id=f"flood-{context}", context_id=context, code=code)
    request.timeout.FromSeconds(8)
    async with executor.channel() as channel:
        call = interpreter_pb2_grpc.InterpreterServiceStub(channel).Execute(
            request, metadata=(("authorization", f"Bearer {executor.token()}"),), timeout=PATIENCE
        )
        found = [*(await call.read()).events]
        await until(lambda: is_idle(executor.sandbox))
        assert executor.peak_memory() < idle + ALLOWED // 2
        while message := await call.read():
            found += message.events
    assert found[-1].finished.reason == "DeadlineExceeded"
    # It was waited for, so nothing is missing.
    assert [event.sequence for event in found] == list(range(1, len(found) + 1))
    assert len(found) > 100


async def is_idle(sandbox):
    return (await sandbox.usage()).running_executions == 0


async def test_a_thousand_readers_at_once_all_get_everything(executor, sandbox, context):
    running = asyncio.create_task(
        sandbox.run_code(steps("crowd", steps=10, pause=0.2), context=context, execution_id="crowd")
    )
    await until(lambda: sandbox.files.exists("crowd"))
    async with executor.channel() as channel:
        stub = interpreter_pb2_grpc.InterpreterServiceStub(channel)

        async def one():
            call = stub.Attach(after("crowd"), metadata=(("authorization", f"Bearer {executor.token()}"),), timeout=300)
            return [event async for message in call for event in message.events]

        streams = await asyncio.gather(*(one() for _ in range(1000)))
    await running
    assert all(stream == streams[0] for stream in streams)
    assert streams[0][-1].finished.outcome
