"""An executor that lies to a host of tools. The host's end is the real one, over a real stream.

Each control shows the attack at work when one defence is off.
"""

import asyncio
import threading
from collections import deque
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest import mock

import grpc
import pytest
from contract.executor.harness import PATIENCE, until
from sandfleet import Decision, ToolLimits, tool
from sandfleet.errors import ProtocolError
from sandfleet.tools import convert, ledger, server
from sandfleet.tools.calls_file import Kept, NoFile
from sandfleet.tools.outbox import MOST_TOGETHER
from sandfleet.tools.sources import OpenTools
from sandfleet.values.tools import Tool
from sandfleet_api.executor.v1 import tools_pb2 as pb
from sandfleet_api.executor.v1 import tools_pb2_grpc

pytestmark = pytest.mark.asyncio
READY = pb.ServeResponse(ready=pb.ServeReady())
READY_FOR_MANY = pb.ServeResponse(ready=pb.ServeReady(takes_many=True))
HUGE = 1 << 20


def call(call_id, name="echo", json=b'{"text": "x"}', **said):
    return pb.ServeResponse(
        call=pb.ToolCall(call_id=call_id, tool=name, arguments=pb.ToolValue(json=json, blobs=()), **said)
    )


def together(*calls):
    first, *more = (each.call for each in calls)
    return pb.ServeResponse(call=first, more_calls=more)


def cancel(call_id):
    return pb.ServeResponse(cancel=pb.ToolCancel(call_id=call_id))


class Liar(tools_pb2_grpc.ToolBrokerServiceServicer):
    """Says what a test says, and hears every answer, unless it reads none."""

    def __init__(self):
        self.first = READY
        self.says = asyncio.Queue()
        self.reads = asyncio.Event()
        self.reads.set()
        self.answers = {}
        # How many answers came in each message.
        self.together = []

    async def Serve(self, requests, context):  # noqa: N802 - the API's name
        await anext(aiter(requests))
        await context.write(self.first)
        hearing = asyncio.ensure_future(self._hear(requests))
        saying = asyncio.ensure_future(self._say(context))
        await asyncio.wait((hearing, saying), return_when=asyncio.FIRST_COMPLETED)
        hearing.cancel()
        saying.cancel()

    async def _say(self, context):
        while True:
            await context.write(await self.says.get())

    async def _hear(self, requests):
        await self.reads.wait()
        async for each in requests:
            if each.WhichOneof("message") == "end":
                return
            self.together.append(1 + len(each.more_answers))
            for answer in (each.answer, *each.more_answers):
                self.answers.setdefault(answer.call_id, []).append(answer)
            await self.reads.wait()

    def say(self, *messages):
        for each in messages:
            self.says.put_nowait(each)

    async def heard(self, *call_ids):
        """The answers to these calls, short: the JSON of a value, or kind and reason."""
        await until(lambda: self.answers.keys() >= set(call_ids))
        return [short(self.answers[each][0]) for each in call_ids]


def short(answer):
    if answer.WhichOneof("outcome") == "value":
        return answer.value.json.decode()
    return pb.ToolFailureKind.Name(answer.failure.kind).rpartition("_")[2].title(), answer.failure.reason


@asynccontextmanager
async def serving(liar, *tools, **options):
    """A host that serves the tools to the liar."""
    listener = grpc.aio.server(options=[("grpc.max_receive_message_length", 32 << 20)])
    tools_pb2_grpc.add_ToolBrokerServiceServicer_to_server(liar, listener)
    port = listener.add_insecure_port("127.0.0.1:0")
    await listener.start()
    sizes = [("grpc.max_send_message_length", 32 << 20), ("grpc.max_receive_message_length", 32 << 20)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=sizes) as channel:
        stub = tools_pb2_grpc.ToolBrokerServiceStub(channel)

        async def run(attempt, *, resend):
            assert resend
            return await attempt(SimpleNamespace(tools=stub, metadata=lambda: ()))

        link = SimpleNamespace(rpc_timeout=60.0, sandbox_id="liar", run=run)
        offered, keeping = OpenTools([tool(each) for each in tools]), (NoFile(), Kept())
        made = server.AsyncToolServer(link, offered, options.get("policy"), None, keeping)
        await made.begin()
        try:
            yield made
        finally:
            liar.reads.set()
            await made.close()
    await listener.stop(None)


def echo(text: str) -> str:
    return text


def peaks(one):
    """Let the server's outbox remember how many messages waited at once."""

    class Remembering(deque):
        most = 0

        def append(self, each):
            super().append(each)
            self.most = max(self.most, len(self))

    one._outbox.waiting = Remembering()
    return one._outbox.waiting


BAD = {
    "no id": call(""),
    "a huge id": call("x" * HUGE),
    "a huge name of a tool": call("a", "x" * HUGE),
    "a huge name of an execution": call("a", execution_id="x" * HUGE),
    "a huge name of a context": call("a", context_id="x" * HUGE),
    "a huge name of a service": call("a", service="x" * HUGE),
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
async def test_a_call_that_no_executor_sends_ends_the_serving(message):
    liar = Liar()
    async with serving(liar, echo) as served:
        liar.say(message)
        await until(lambda: not served.serving)
        assert (type(served.problem), served.problem.reason) == (ProtocolError, "BadCall")
        assert not served._ledger._known


async def test_control_without_a_limit_for_names_the_host_would_keep_megabytes_of_them():
    liar = Liar()
    with mock.patch.object(convert, "_NAME_CHARACTERS", 1 << 30):
        async with serving(liar, echo) as served:
            liar.say(call("x" * HUGE, execution_id="y" * HUGE))
            assert await liar.heard("x" * HUGE) == ['"x"']
            assert [*served._ledger._known, *served._ledger._by_caller] == ["x" * HUGE, "y" * HUGE]


@pytest.mark.parametrize("first", [READY, READY_FOR_MANY])
async def test_calls_that_come_together_are_each_answered(first):
    liar, names = Liar(), [f"c{number}" for number in range(MOST_TOGETHER)]
    liar.first = first
    async with serving(liar, echo):
        liar.say(together(*map(call, names)))
        assert await liar.heard(*names) == ['"x"'] * MOST_TOGETHER
    assert sum(liar.together) == MOST_TOGETHER
    # Answers go together to an executor that takes them so, and to no other.
    assert (max(liar.together) > 1) == first.ready.takes_many


async def test_more_calls_in_a_message_than_an_executor_sends_end_the_serving():
    liar = Liar()
    async with serving(liar, echo) as served:
        liar.say(together(*(call(f"c{number}") for number in range(MOST_TOGETHER + 1))))
        await until(lambda: not served.serving)
        assert (served.problem.reason, served.calls) == ("BadCall", {})


async def test_a_stream_that_does_not_begin_as_it_has_to_serves_nothing():
    liar = Liar()
    liar.first = call("a")
    with pytest.raises(ProtocolError, match="does not say that it is ready"):
        async with serving(liar, echo):
            pass


async def test_a_repeated_id_runs_nothing_again():
    ran, gate, liar = [], asyncio.Event(), Liar()

    async def pay() -> str:
        ran.append(1)
        await gate.wait()
        return "paid"

    async with serving(liar, pay):
        liar.say(*[call("a", "pay", b"{}")] * 3, call("b", "none"))
        await liar.heard("b")
        gate.set()
        await liar.heard("a")
        liar.say(*[call("a", "pay", b"{}")] * 3)
        await until(lambda: len(liar.answers["a"]) == 4)
    assert {short(each) for each in liar.answers["a"]} == {'"paid"'}
    assert len(ran) == 1
    # Control: a host that remembers nothing runs it each time.
    with mock.patch.object(ledger.Ledger, "_keep", lambda *_: None):
        async with serving(Liar(), pay) as served:
            for _ in range(3):
                served._take(call("a", "pay", b"{}"))
            await until(lambda: len(ran) == 4)


ARGUMENTS = {
    "no JSON": b"{{{",
    "nothing": b"",
    "no object": b"[1]",
    "deep": b'{"text": ' + b"[" * 100_000,
    "a number of a million digits": b'{"text": ' + b"9" * 1_000_000 + b"}",
    "bytes that are not there": b'{"text": {"$bytes": 7}}',
    "bytes before the first": b'{"text": {"$bytes": -1}}',
    "no text": b'{"text": "\xff"}',
    "a name that the tool has not": b'{"text": "x", "more": 1}',
    "a value of another type": b'{"text": 5}',
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_that_do_not_fit_are_refused_and_the_next_call_is_answered(arguments):
    ran, liar = [], Liar()

    def note(text: str) -> str:
        ran.append(text)
        return text

    async with serving(liar, note):
        liar.say(call("bad", "note", arguments), call("good", "note"))
        assert await liar.heard("bad", "good") == [("Denied", "InvalidArguments"), '"x"']
    assert ran == ["x"]


async def test_a_check_of_arguments_that_raises_anything_is_an_answer():
    liar = Liar()

    def bind(arguments):
        raise LookupError("its schema refers to nothing")

    async with serving(liar, Tool(name="broken", doc="", function=print, bind=bind)):
        liar.say(call("a", "broken"))
        assert await liar.heard("a") == [("Denied", "InvalidArguments")]


LIMITS = {
    "concurrency": (ToolLimits(concurrency=2), "Concurrency"),
    "calls of a session": (ToolLimits(calls_per_session=2), "CallsPerSession"),
    "calls of an execution": (ToolLimits(calls_per_execution=2), "CallsPerExecution"),
    "calls at all": (ToolLimits(), "TooManyCalls"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("limits", "reason"), LIMITS.values(), ids=LIMITS)
async def test_calls_beyond_a_limit_are_refused_whatever_the_executor_sends(limits, reason):
    begun, gate, liar = [], asyncio.Event(), Liar()

    async def hold(text: str) -> str:
        begun.append(text)
        await gate.wait()
        return text

    with mock.patch.object(ledger, "MAX_CALLS", 2 if reason == "TooManyCalls" else 100_000):
        async with serving(liar, tool(hold, limits=limits)) as served:
            liar.say(*(call(f"c{n}", "hold", execution_id="e") for n in range(2000)))
            refused = [f"c{n}" for n in range(2, 2000)]
            assert set(await liar.heard(*refused)) == {("Denied", reason)}
            assert len(begun) == 2
            # What is kept of endless refusals is bounded, too.
            assert reason != "TooManyCalls" or len(served._ledger._known) == 2
            gate.set()
            assert await liar.heard("c0", "c1") == ['"x"', '"x"']


@pytest.mark.slow
async def test_control_a_tool_without_limits_runs_as_often_as_it_is_called():
    begun, gate, liar = [], asyncio.Event(), Liar()

    async def hold(text: str) -> str:
        begun.append(text)
        await gate.wait()
        return text

    async with serving(liar, hold):
        liar.say(*(call(f"c{n}", "hold") for n in range(2000)))
        await until(lambda: len(begun) == 2000)
        gate.set()


async def cancelled_and_called_again(calls):
    """How many functions in threads run at once, for calls of which each is cancelled before the next one."""
    count, gate, liar = [], threading.Event(), Liar()

    def block(text: str) -> str:
        count.append(text)
        gate.wait(PATIENCE)
        return text

    async with serving(liar, tool(block, limits=ToolLimits(concurrency=1))):
        for n in range(calls):
            liar.say(call(f"c{n}", "block"))
            await until(lambda n=n: len(count) > n or f"c{n}" in liar.answers)
            liar.say(cancel(f"c{n}"))
        refused = [short(each[0]) for each in liar.answers.values()]
        at_once = len(count)
        gate.set()
        # The thread has ended, and so has what it counts for.
        for n in range(100, 10_000):
            liar.say(call(f"c{n}", "block"))
            if await liar.heard(f"c{n}") == ['"x"']:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("the thread that has ended counts for ever")
    return at_once, refused


async def test_a_function_that_outlives_its_cancelled_call_counts_until_it_has_ended():
    assert await cancelled_and_called_again(4) == (1, [("Denied", "Concurrency")] * 3)
    # Control: where only the call counts, each cancelled one leaves a thread and makes room for another.
    with mock.patch.object(ledger.Ledger, "begun", lambda self, tool: None):
        assert await cancelled_and_called_again(4) == (4, [])


async def test_calls_that_are_cancelled_while_no_thread_is_free_leave_nothing():
    gate, liar = threading.Event(), Liar()

    def block(text: str) -> str:
        gate.wait(PATIENCE)
        return text

    with mock.patch.object(server, "MOST_THREADS", 1):
        async with serving(liar, block, echo) as served:
            liar.say(call("first", "block"))
            await until(lambda: served._threads._pool._work_queue.empty() and served.calls.get("block"))
            for n in range(500):
                liar.say(call(f"c{n}"), cancel(f"c{n}"))
            liar.say(call("last", "none"))
            await liar.heard("last")
            await until(lambda: len(served._working) == 1)
            assert served._threads._pool._work_queue.qsize() == 0
            gate.set()
            assert await liar.heard("first") == ['"x"']


async def answered_without_a_reader(most):
    """The most replies that wait at once when an executor asks 3,000 times for an answer and reads none."""
    liar = Liar()

    def large() -> bytes:
        return b"x" * HUGE

    with mock.patch.object(server, "MAX_CALLS", most):
        async with serving(liar, large, echo) as served:
            waiting = peaks(served)
            liar.say(call("a", "large", b"{}"))
            await liar.heard("a")
            liar.reads.clear()
            liar.say(*[call("a", "large", b"{}")] * 3000)
            await until(lambda: len(waiting) >= min(most, 2900))
            # Without end it is not: what is read goes on.
            liar.reads.set()
            await until(lambda: len(waiting) == 0 or len(liar.answers["a"]) > 200)
            return waiting.most


@pytest.mark.slow
async def test_an_executor_that_reads_no_answers_gets_no_further_with_its_calls():
    assert await answered_without_a_reader(32) <= 33
    # Control: with the bound far away they pile up.
    assert await answered_without_a_reader(100_000) > 2000


async def unacknowledged(most):
    """What eight calls are answered whose results no acknowledgement lets the host forget."""
    liar = Liar()

    def large() -> str:
        return "x" * 300_000

    with mock.patch.object(ledger, "MAX_HELD", most):
        async with serving(liar, large) as served:
            said = []
            for n in range(8):
                liar.say(call(f"c{n}", "large", b"{}"))
                [answer] = await liar.heard(f"c{n}")
                said.append(answer if isinstance(answer, tuple) else len(answer))
            assert served._ledger._held <= most
            return said


async def test_results_that_are_never_acknowledged_are_bounded_together():
    assert await unacknowledged(HUGE) == [300_002] * 3 + [("Denied", "TooManyBytes")] * 5
    # Control: it is the bound that refuses them.
    assert await unacknowledged(1 << 30) == [300_002] * 8


async def test_an_argument_s_size_is_judged_before_it_is_read():
    liar = Liar()
    small = tool(echo, limits=ToolLimits(argument_bytes=100))
    with mock.patch.object(server, "decode", side_effect=AssertionError) as decode:
        async with serving(liar, small):
            liar.say(call("a", "echo", b"[" * HUGE))
            assert await liar.heard("a") == [("Denied", "ArgumentsTooLarge")]
    assert not decode.called


async def test_the_policy_sees_what_runs_and_not_what_the_executor_says_of_it():
    asked, ran, liar = [], [], Liar()

    async def careful(one, session):
        asked.append(one.tool)
        return Decision(one.tool != "pay", "no money")

    def pay(text: str) -> str:
        ran.append(text)
        return text

    async with serving(liar, pay, echo, policy=careful):
        liar.say(
            call("a", "pay", redelivered=False),
            call("b", "pay", service="trusted", context_id="default"),
            call("c", "pay ", execution_id="echo"),
            call("d", "echo"),
        )
        assert await liar.heard("a", "b", "c", "d") == [
            ("Denied", "Policy"),
            ("Denied", "Policy"),
            ("Unavailable", "NoSuchTool"),
            '"x"',
        ]
    assert (asked, ran) == (["pay", "pay", "echo"], [])


async def test_a_call_that_is_cancelled_gives_no_answer_and_its_id_may_come_again():
    begun, ended, gate, liar = [], [], asyncio.Event(), Liar()

    async def hold(text: str) -> str:
        begun.append(text)
        try:
            await gate.wait()
        finally:
            ended.append(text)
        return text

    async with serving(liar, hold, echo) as served:
        liar.say(call("a", "hold"), call("first"))
        await liar.heard("first")
        # The earlier task's end must not make the server forget the later one.
        liar.say(cancel("a"), call("a", "hold"), call("second"))
        await liar.heard("second")
        await until(lambda: len(begun) == 2 and len(ended) == 1)
        assert list(served._working) == ["a"]
        liar.say(cancel("a"))
        await until(lambda: len(ended) == 2)
        assert "a" not in liar.answers


@pytest.mark.parametrize("most", [100, 32 << 20])
async def test_a_result_larger_than_any_executor_takes_costs_its_call_alone(most):
    liar = Liar()

    def large() -> bytes:
        return b"x" * (33 << 20)

    async with serving(liar, tool(large, limits=ToolLimits(result_bytes=most)), echo) as served:
        liar.say(call("a", "large", b"{}"), call("b"))
        assert await liar.heard("a", "b") == [("Denied", "ResultTooLarge"), '"x"']
        assert served.serving
