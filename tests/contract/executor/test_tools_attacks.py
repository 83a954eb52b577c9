"""Attacks on the broker, from both sides: by code in the sandbox, and by a client that serves tools.

Those of an executor on its client are in tests/unit/client/tools. Each control shows that the attack is one: it works
where the defence is off, or its messages are right but for the one thing that is refused.
"""

import asyncio
import contextlib
from unittest import mock

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.tool_hosts import BareHost, host_process, spec, value
from sandfleet import Outcome, tool
from sandfleet.errors import AccessDenied, AuthenticationError
from sandfleet.tools.ledger import Ledger
from sandfleet_api.executor.v1 import tools_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")
MIB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    async with starting(contract="brokered") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def channel(executor):
    async with executor.channel() as made:
        yield made


def shout(text: str) -> str:
    return text.upper()


def probe() -> str:
    return "right"


async def works(sandbox):
    """Whether a good host is served, after whatever a bad one did."""
    async with await sandbox.serve_tools([shout]):
        return (await sandbox.run_code("tools.shout('on')")).text == "'ON'"


async def refused(host):
    """The status with which a stream ends."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await host.stream.read() is not grpc.aio.EOF:
            pass
    return caught.value.code().name


def offer(*specs, host_id="bare"):
    return pb.ToolOffer(tools=specs, host_id=host_id)


def parameters(*names, **said):
    return [pb.ToolParameter(name=name, **said) for name in names]


OFFERS = {
    "10,000 tools": offer(*(spec(f"t{n}") for n in range(10_000))),
    "a huge schema": offer(spec("a", schema_json="x" * 5 * MIB)),
    "huge schemas together": offer(*(spec(f"t{n}", schema_json="x" * MIB) for n in range(5))),
    "a huge text": offer(spec("a", doc="x" * 5 * MIB)),
    "a huge name": offer(spec("a" * 5 * MIB)),
    "a huge type": offer(spec("a", parameters=parameters("b", annotation="x" * 5 * MIB))),
    "a huge default": offer(spec("a", parameters=parameters("b", default_text="x" * 5 * MIB))),
    "a huge type of results": offer(spec("a", returns="x" * 5 * MIB)),
    "100,000 parameters": offer(spec("a", parameters=parameters(*(f"p{n}" for n in range(100_000))))),
    "one name twice": offer(spec("a"), spec("a")),
    "a name that is code": offer(spec("a(); import os")),
    "a parameter that is code": offer(spec("a", parameters=parameters("b=__import__('os')"))),
    "a keyword": offer(spec("lambda")),
    "no host": offer(spec("a"), host_id=""),
    "a huge host": offer(spec("a"), host_id="x" * MIB),
}


@pytest.mark.parametrize("said", OFFERS.values(), ids=OFFERS)
@pytest.mark.attack("offers tools that are too large or wrong", "refused")
async def test_an_offer_that_is_too_large_or_wrong_is_refused(executor, sandbox, channel, said):
    host = await BareHost.begin(executor, channel, said)
    assert await refused(host) == "INVALID_ARGUMENT"
    assert await works(sandbox)


@pytest.mark.control("offers tools that are too large or wrong")
async def test_control_the_most_that_may_be_offered_can_be_called(executor, sandbox, channel):
    tools = [spec(f"t{n}", doc="x" * 8000, parameters=parameters("b")) for n in range(512)]
    host = await BareHost.begin(executor, channel, offer(*tools))
    assert (await host.stream.read()).WhichOneof("message") == "ready"
    execution = await sandbox.run_code("len([name for name in dir(tools) if name[0] == 't'])")
    assert execution.text == "512", execution
    host.stream.cancel()


PROBE = """
try:
    said = tools.probe()
except tools.ToolError as error:
    said = type(error).__name__, error.reason, len(str(error)) <= 1 << 16
said
"""
WRONG, LARGE = ("ToolError", "BadResult", True), ("ToolDenied", "ResultTooLarge", True)
ANSWERS = {
    "no JSON": (value(b"{{{"), WRONG),
    "nothing": (value(b""), WRONG),
    "no text": (value(b'"\xff"'), WRONG),
    "deep": (value(b"[" * 100_000), WRONG),
    "a number of a million digits": (value(b"9" * 1_000_000), WRONG),
    "bytes that are not there": (value(b'{"$bytes": 5}'), WRONG),
    "bytes that are named by a list": (value(b'{"$bytes": [0]}', b"x"), WRONG),
    "more than 16 MiB": (value(b" " * 17 * MIB), LARGE),
    "more than 16 MiB of bytes": (value(b'{"$bytes": 0}', b"x" * 17 * MIB), LARGE),
    "2,000 byte strings": (value(b"1", *[b"x"] * 2000), LARGE),
    "a huge failure": (
        {"failure": pb.ToolFailure(kind=1, reason="R" * 10_000, message="m" * 8 * MIB)},
        ("ToolError", "R" * 64, True),
    ),
    "a failure that is code": (
        {"failure": pb.ToolFailure(kind=3, reason="'); import os", message="\x1b[2J\0\n")},
        ("ToolTimeout", "'); import os", True),
    ),
    "control: a value": (value(b'"fine"'), "fine"),
}


@pytest.mark.parametrize(("outcome", "said"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.attack("answers a call with nonsense", "a value or a typed error", control="in it")
async def test_whatever_a_host_answers_the_code_gets_a_value_or_a_typed_error(
    executor, sandbox, channel, outcome, said
):
    host = await BareHost.serving(executor, channel, "probe")
    running = asyncio.ensure_future(sandbox.run_code(PROBE))
    await host.answer((await host.call()).call_id, **outcome)
    execution = await running
    assert (execution.outcome, eval(execution.text)) == (Outcome.OK, said)
    host.stream.cancel()


BROKEN = {
    "an answer without an outcome": (lambda one: pb.ToolAnswer(call_id=one), "INVALID_ARGUMENT"),
    "a failure of no kind": (
        lambda one: pb.ToolAnswer(call_id=one, failure=pb.ToolFailure(kind=77)),
        "INVALID_ARGUMENT",
    ),
    "an answer larger than any message": (
        lambda one: pb.ToolAnswer(call_id=one, **value(b" " * 33 * MIB)),
        ("RESOURCE_EXHAUSTED", "INTERNAL"),
    ),
}


@pytest.mark.parametrize(("message", "status"), BROKEN.values(), ids=BROKEN)
async def test_an_answer_that_breaks_the_stream_leaves_the_call_to_the_next_host(
    executor, sandbox, channel, message, status
):
    host = await BareHost.serving(executor, channel, "probe")
    running = asyncio.ensure_future(sandbox.run_code(PROBE))
    call = await host.call()
    # The executor may have ended the stream before it has all of the answer.
    with contextlib.suppress(grpc.aio.AioRpcError):
        await host.stream.write(pb.ServeRequest(answer=message(call.call_id)))
    assert await refused(host) in status
    async with await sandbox.serve_tools([tool(probe, idempotent=True)]):
        assert (await running).text == "'right'"


async def test_a_second_offer_on_one_stream_is_refused(executor, sandbox, channel):
    host = await BareHost.serving(executor, channel, "probe")
    await host.stream.write(pb.ServeRequest(offer=offer(spec("other"))))
    assert await refused(host) == "INVALID_ARGUMENT"
    assert await works(sandbox)


@pytest.mark.attack("answers calls that are not there", "no call is answered", control="in it")
async def test_endless_answers_with_wrong_ids_answer_no_call_and_cost_no_memory(executor, sandbox, channel):
    host = await BareHost.serving(executor, channel, "probe")
    running = asyncio.ensure_future(sandbox.run_code(PROBE))
    call = await host.call()
    executor.restart_peak()
    idle = executor.memory()
    for number in range(20_000):
        # The host reads nothing of what they are answered with.
        await host.answer(f"{call.call_id}{number}", **value(b'"wrong"', b"x" * 1000))
    # Control: with the right id the answer is taken.
    await host.answer(call.call_id, **value(b'"right"'))
    assert (await running).text == "'right'"
    assert executor.peak_memory() < idle + 64 * MIB
    host.stream.cancel()


@pytest.mark.attack("answers as a host that was replaced", "no call is answered", control="in it")
async def test_a_host_that_was_replaced_answers_no_call_any_more(executor, sandbox, channel):
    first = await BareHost.serving(executor, channel, "probe", host_id="first")
    running = asyncio.ensure_future(sandbox.run_code(PROBE))
    call = await first.call()
    second = await BareHost.serving(executor, channel, "probe", host_id="second")
    again = await second.call()
    assert (again.call_id, again.redelivered) == (call.call_id, True)
    try:
        await first.answer(call.call_id, **value(b'"of the first"'))
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        # The executor has ended its stream already; gRPC calls the end of one that is written to INTERNAL.
        assert await refused(first) in ("ABORTED", "INTERNAL")
    else:
        assert await refused(first) == "ABORTED"
    assert not running.done()
    # Control: the same answer of the present host is taken.
    await second.answer(call.call_id, **value(b'"of the second"'))
    assert (await running).text == "'of the second'"
    second.stream.cancel()


async def test_calls_that_a_host_neither_reads_nor_answers_go_to_the_next_one(executor, sandbox, channel):
    code = """
import asyncio
found = await asyncio.gather(*(tools.probe.aio() for n in range(1000)))
found == ['right'] * 1000
"""
    host = await BareHost.serving(executor, channel, "probe")
    running = asyncio.ensure_future(sandbox.run_code(code))
    await host.call()
    async with await sandbox.serve_tools([tool(probe, idempotent=True)]):
        assert (await running).text == "True"
    host.stream.cancel()


THOUSAND = """
import asyncio
async def said(n):
    try:
        return len(await tools.double.aio(data=bytes([n % 256]) * 200_000))
    except tools.ToolError as error:
        return error.reason
found = await asyncio.gather(*(said(n) for n in range(1000)))
sorted({str(one) for one in found}), len(found)
"""


@pytest.mark.attack("makes a thousand calls at once", "answered or refused, memory bounded")
async def test_a_thousand_calls_at_once_are_answered_or_refused_and_the_executor_s_memory_is_bounded(executor, sandbox):
    async def double(data: bytes) -> bytes:
        return data + data

    async with await sandbox.serve_tools([double]) as server:
        executor.restart_peak()
        idle = executor.memory()
        execution = await sandbox.run_code(THOUSAND)
        assert execution.outcome == Outcome.OK, execution
        # 600 MB went through.
        assert executor.peak_memory() < idle + 320 * MIB
        kinds, count = eval(execution.text)
        assert count == 1000
        assert "400000" in kinds
        assert set(kinds) <= {"400000", "TooManyCalls", "TooManyBytes"}
        # Nothing of them is kept.
        await until(lambda: (server._ledger._known, server._ledger._held) == ({}, 0))


LINE = """
import os, socket, struct, json
NAME, KEY = os.environ['SANDFLEET_TOOLS'].split(':')
def line(name=NAME):
    made = socket.socket(socket.AF_UNIX)
    made.connect('\\0' + name)
    return made
def frame(header, payload=b''):
    text = json.dumps(header).encode()
    return struct.pack('>II', len(text), len(payload)) + text + payload
def call(tool, key=None):
    return frame({'op': 'call', 'key': KEY if key is None else key, 'tool': tool, 'sizes': [2]}, b'{}')
"""
READS_NOTHING = f"""{LINE}
import time
lines = []
for _ in range(200):
    for attempt in range(1000):
        try:
            lines.append(line())
            break
        except OSError:
            time.sleep(0.01)
    lines[-1].sendall(call('large'))
print('called', flush=True)
time.sleep(1e6)
"""


@pytest.mark.attack("reads no answers", "memory bounded", control="in it")
async def test_code_that_reads_no_answers_fills_no_memory_of_the_executor(executor, sandbox):
    sent = []

    async def large() -> bytes:
        sent.append(1)
        return b"x" * MIB

    async with await sandbox.serve_tools([large, shout]):
        executor.restart_peak()
        idle = executor.memory()
        handle = await sandbox.commands.run(["python3", "-c", READS_NOTHING], background=True)
        await anext(handle)
        # Each has run: 200 MiB are on their way to code that takes none of it.
        await until(lambda: len(sent) == 200)
        await handle.kill()
        # Control: what is read comes through, in the same amount.
        code = "import asyncio\nsum(map(len, await asyncio.gather(*(tools.large.aio() for _ in range(200)))))"
        assert (await sandbox.run_code(code)).text == str(200 * MIB)
        assert executor.peak_memory() < idle + 190 * MIB


LED = """
import os
kept, os.environ['SANDFLEET_TOOLS'] = os.environ['SANDFLEET_TOOLS'], 'forged:0'
said = type(tools)._look.__globals__['line'].ask('call', 'hold')
os.environ['SANDFLEET_TOOLS'] = kept
said
"""


@pytest.mark.attack("answers the call of another context", "refused", control="in it")
async def test_no_context_answers_the_call_of_another_one(sandbox, executor):
    gate, begun = asyncio.Event(), []

    async def hold() -> str:
        begun.append(1)
        await gate.wait()
        return "of the host"

    victim, forger = [await sandbox.create_context() for _ in range(2)]
    forged = """
answer = frame({'event': 'value', 'sizes': [8]}, b'"forged"')
"""
    attack = f"""{LINE}{forged}
found = []
# It takes the place of the executor's socket.
try:
    socket.socket(socket.AF_UNIX).bind('\\0' + NAME)
except OSError:
    found.append('bound')
# It answers on a line of its own, with its own key and without one.
for key in (KEY, '', '0' * 32):
    one = line()
    try:
        one.sendall(answer * 100)
        one.sendall(call('hold', key))
        found.append(one.recv(1))
    except OSError:
        found.append(b'')
found
"""
    fake = f"""{LINE}{forged}
import threading
listener = socket.socket(socket.AF_UNIX)
listener.bind('\\0forged')
listener.listen()
def answers():
    while True:
        one, _ = listener.accept()
        one.recv(1 << 16)
        one.sendall(answer)
threading.Thread(target=answers, daemon=True).start()
"""
    async with await sandbox.serve_tools([hold]):
        running = asyncio.ensure_future(sandbox.run_code("tools.hold()", context=victim))
        await until(lambda: begun)
        execution = await sandbox.run_code(attack, context=forger)
        assert execution.text == "['bound', b'', b'', b'']", execution
        assert not running.done()
        gate.set()
        assert (await running).text == "'of the host'"
        # Control: the forged frames are right. A context that is led to another socket believes them.
        assert (await sandbox.run_code(fake, context=forger)).outcome == Outcome.OK
        assert (await sandbox.run_code(LED, context=victim)).text == "'forged'"
    for each in (victim, forger):
        await sandbox.delete_context(each)


AFTER = """
import asyncio
async def said(call):
    try:
        return await call
    except tools.ToolUnavailable as error:
        return error.reason, error.may_have_run
await asyncio.gather(said(tools.pay.aio()), said(tools.look.aio()))
"""


async def killed_between_call_and_answer(executor, sandbox):
    """What the code is answered whose host was killed while it ran two calls, and what the next host ran."""
    ran = []

    async def pay() -> str:
        ran.append("pay")
        return "paid"

    async def look() -> str:
        ran.append("look")
        return "looked"

    async with host_process(executor) as process:
        running = asyncio.ensure_future(sandbox.run_code(AFTER))
        for _ in range(2):
            assert await process.stdout.readline() == b"runs\n"
        process.kill()
        await process.wait()
    async with await sandbox.serve_tools([pay, tool(look, idempotent=True)]):
        return eval((await running).text), sorted(ran)


async def test_a_call_whose_host_was_killed_runs_on_no_other_host_unless_it_may(executor, sandbox):
    assert await killed_between_call_and_answer(executor, sandbox) == ([("HostLost", True), "looked"], ["look"])
    # Control: a host that believes each call to be new pays twice.
    with mock.patch.object(Ledger, "_refusal", lambda *_: None):
        assert await killed_between_call_and_answer(executor, sandbox) == (["paid", "looked"], ["look", "pay"])


async def killed_executor(starting):
    """What of a call is cancelled when its executor is killed; another host sees nothing of it afterwards."""
    begun, ended = [], []

    async def hold() -> str:
        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with starting(contract="brokered", restarts=True) as executor:
        sandbox = executor.sandbox
        async with await sandbox.serve_tools([hold, shout]) as server:
            running = asyncio.ensure_future(sandbox.run_code("tools.hold()"))
            await until(lambda: begun)
            executor.kill()
            await executor.back()
            assert (await running).outcome == Outcome.LOST
            # The same host serves the executor that came in its place.
            execution = await sandbox.run_code("tools.shout('again')")
            assert (execution.text, server.calls["hold"], len(begun)) == ("'AGAIN'", 1, 1)
            return len(server._working), len(ended)


async def test_the_call_of_an_executor_that_was_killed_is_cancelled_on_the_host(starting):
    assert await killed_executor(starting) == (0, 1)
    # Control: a host that does not compare its calls with the new executor's works on for one that is gone.
    with mock.patch.object(Ledger, "resume", lambda self, outstanding: []):
        assert await killed_executor(starting) == (1, 0)


TOKENS = {
    "of another sandbox": ({"aud": "another"}, AuthenticationError),
    "of an autonomous one": ({"contract": "autonomous"}, AuthenticationError),
    "of a reviewed one": ({"contract": "reviewed"}, AuthenticationError),
    "without a contract": ({"contract": None}, AuthenticationError),
    "for code alone": ({"scope": "interpreter process filesystem session"}, AccessDenied),
    "control": ({}, None),
}


@pytest.mark.parametrize(("claims", "error"), TOKENS.values(), ids=TOKENS)
@pytest.mark.attack("serves tools with another sandbox's token", "refused", control="in it")
async def test_no_token_but_the_sandbox_s_own_serves_its_tools(executor, sandbox, claims, error):
    client = executor.client(token=executor.token(**claims))
    if error is None:
        assert await works(client)
        return
    async with await sandbox.serve_tools([shout]) as server:
        with pytest.raises(error):
            await client.serve_tools([shout])
        # The rightful host was not replaced.
        assert (server.serving, (await sandbox.run_code("tools.shout('on')")).text) == (True, "'ON'")
