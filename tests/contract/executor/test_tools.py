"""Tools of the host, called by code in a brokered sandbox: what the code sees, and what the host sees."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet import Decision, ToolLimits, tool
from sandfleet.errors import PreconditionFailed
from sandfleet.tools import policies

pytestmark = pytest.mark.asyncio(loop_scope="session")

ORDERS = [{"id": 1, "total": 20.5}, {"id": 2, "total": 4.0}]


@dataclass
class Desk:
    """The host's tools, and what was asked of them."""

    seen: list = field(default_factory=list)
    begun: list = field(default_factory=list)
    cancelled: list = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tools(self):
        async def search_orders(customer: int, limit: int = 10) -> list[dict]:
            """Find the orders of a customer, the newest first."""
            self.seen.append((customer, limit))
            return ORDERS[:limit]

        def shout(text: str) -> str:
            return text.upper()

        async def swap(data: bytes, more: dict) -> dict:
            return {"data": data[::-1], "more": more}

        def fail(why: str) -> None:
            raise LookupError(why)

        async def wait(name: str) -> str:
            self.begun.append(name)
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            return f"{name} is done"

        def has_begun(name: str) -> bool:
            return name in self.begun

        async def slow() -> None:
            await asyncio.sleep(3600)

        return [
            search_orders,
            shout,
            swap,
            fail,
            wait,
            has_begun,
            tool(slow, limits=ToolLimits(timeout=0.05)),
            tool(shout, name="thrice", limits=ToolLimits(calls_per_execution=3)),
            tool(shout, name="short", limits=ToolLimits(argument_bytes=64, result_bytes=64)),
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    async with starting(contract="brokered") as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(sandbox):
    made = Desk()
    async with await sandbox.serve_tools(made.tools):
        yield made


async def said(sandbox, code, **options):
    execution = await sandbox.run_code(code, **options)
    assert execution.outcome == "ok", execution
    return execution.text


async def test_a_tool_is_a_function_that_is_there_without_an_import(sandbox, desk):
    assert await said(sandbox, "rows = tools.search_orders(customer=7)\nsum(row['total'] for row in rows)") == "24.5"
    assert desk.seen[-1] == (7, 10)
    assert await said(sandbox, "tools.search_orders(8, limit=1)") == str(ORDERS[:1])
    assert desk.seen[-1] == (8, 1)


async def test_the_module_can_be_imported_in_a_context_and_in_a_program(sandbox, desk):
    assert await said(sandbox, "import tools\nfrom tools import shout\nshout('a') + tools.shout('b')") == "'AB'"
    ran = await sandbox.commands.run(["python3", "-c", "from tools import shout; print(shout('program'))"])
    assert (ran.stdout, ran.exit_code) == ("PROGRAM\n", 0)


async def test_the_command_tool_calls_a_tool_and_prints_json(sandbox, desk):
    ran = await sandbox.commands.run("tool search_orders --customer 7 --limit=1")
    assert (json.loads(ran.stdout), ran.exit_code) == (ORDERS[:1], 0)
    execution = await sandbox.run_code("tool shout --text quiet", language="bash")
    assert execution.logs.stdout == '"QUIET"\n'
    piped = await sandbox.commands.run("""echo '{"text": "in"}' | tool shout --json -""")
    assert piped.stdout == '"IN"\n'
    listed = await sandbox.commands.run("tool")
    assert "search_orders(customer: int, limit: int = 10) -> list[dict]  Find the orders of a customer" in listed.stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("tool fail --why gone", 1),
        ("tool shout text", 2),
        ("tool shout --text 5", 3),
        ("tool slow", 4),
        ("tool nothing", 5),
    ],
)
async def test_the_command_tool_tells_by_its_exit_code_why_there_is_no_result(sandbox, desk, line, code):
    ran = await sandbox.commands.run(line)
    assert (ran.stdout, ran.exit_code) == ("", code), ran.stderr
    assert ran.stderr.startswith("tool: ")


async def test_help_shows_signature_docstring_and_schema(sandbox, desk):
    execution = await sandbox.run_code("help(tools.search_orders)")
    assert "search_orders(customer: int, limit: int = 10) -> list[dict]" in execution.logs.stdout
    assert "Find the orders of a customer, the newest first." in execution.logs.stdout
    assert '"customer": {' in execution.logs.stdout
    assert await said(sandbox, "'search_orders' in dir(tools), hasattr(tools, 'nothing')") == "(True, False)"


async def test_bytes_and_json_go_both_ways_unchanged(sandbox, desk):
    code = (
        "tools.swap(data=b'\\x00\\xff', more={'$bytes': 1, '$$': [None, 1.5, 'é\\ud800'], 'deep': {'raw': b'x' * 3}})"
    )
    expected = {"data": b"\xff\x00", "more": {"$bytes": 1, "$$": [None, 1.5, "é\ud800"], "deep": {"raw": b"xxx"}}}
    assert await said(sandbox, f"{code} == {expected!a}") == "True"


async def test_tools_are_called_from_many_threads_at_once(sandbox, desk):
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(32) as pool:
    found = list(pool.map(lambda n: tools.shout(f'n{n}'), range(200)))
found == [f'N{n}' for n in range(200)]
"""
    assert await said(sandbox, code) == "True"


async def test_a_thousand_calls_at_once_are_awaited(sandbox, desk):
    code = """
import asyncio
found = await asyncio.gather(*(tools.shout.aio(text=f'n{n}') for n in range(1000)))
found == [f'N{n}' for n in range(1000)]
"""
    assert await said(sandbox, code) == "True"


async def test_the_host_s_error_is_typed_and_its_traceback_is_in_the_host_s_log_alone(sandbox, desk, caplog):
    caplog.set_level("INFO", "sandfleet")
    code = """
def raised(call):
    try:
        call()
    except tools.ToolError as error:
        return type(error).__name__, error.reason, str(error)
[
    raised(lambda: tools.fail('the order is gone')),
    raised(lambda: tools.shout(text=5)),
    raised(lambda: tools.slow()),
]
"""
    assert eval(await said(sandbox, code)) == [
        ("ToolError", "LookupError", "fail has failed: the order is gone"),
        ("ToolDenied", "InvalidArguments", "cannot call shout: text: Input should be a valid string"),
        ("ToolTimeout", "Timeout", "slow has not ended within 0.05 s"),
    ]
    (record,) = [one for one in caplog.records if one.exc_info]
    assert (record.name, record.levelname, "fail" in record.getMessage()) == ("sandfleet", "INFO", True)
    assert "in fail" in caplog.text


async def test_a_wrong_call_fails_as_a_wrong_call_of_a_function(sandbox, desk):
    execution = await sandbox.run_code("tools.search_orders(client=7)")
    assert execution.error.name == "TypeError"
    assert execution.error.value == "search_orders() missing a required argument: 'customer'"


async def test_limits_of_a_tool_are_refusals_that_the_code_can_catch(sandbox, desk):
    code = """
reasons = []
for call in [lambda: tools.thrice('x')] * 4 + [lambda: tools.short('x' * 100), lambda: tools.short('x')]:
    try:
        call()
    except tools.ToolDenied as error:
        reasons.append(error.reason)
reasons
"""
    assert await said(sandbox, code) == "['CallsPerExecution', 'ArgumentsTooLarge']"
    # The next execution has its own.
    assert await said(sandbox, "tools.thrice('again')") == "'AGAIN'"


async def test_a_policy_decides_about_each_call_and_the_code_is_told_why(starting):
    asked = []

    async def careful(call, session):
        asked.append((call.tool, dict(call.arguments), call.context_id, dict(session.calls)))
        return Decision(call.arguments["text"] != "secret", "no secrets")

    def shout(text: str) -> str:
        return text.upper()

    async with starting(contract="brokered") as executor:
        sandbox = executor.sandbox
        async with await sandbox.serve_tools([shout], policy=careful):
            execution = await sandbox.run_code("print(tools.shout('a')); tools.shout('secret')", context="default")
    assert execution.logs.stdout == "A\n"
    assert (execution.error.name, execution.error.value) == ("ToolDenied", "cannot call shout: no secrets")
    assert asked == [
        ("shout", {"text": "a"}, "default", {"shout": 0}),
        ("shout", {"text": "secret"}, "default", {"shout": 1}),
    ]


async def test_a_cell_s_deadline_cancels_the_call_on_the_host(sandbox, desk):
    execution = await sandbox.run_code("tools.wait('deadline')", timeout=0.5)
    assert (execution.outcome, execution.usage.cpu_seconds < 0.4) == ("timeout", True)
    await until(lambda: "deadline" in desk.cancelled)
    # The context lives, and so do its tools.
    assert await said(sandbox, "tools.shout('on')") == "'ON'"


async def test_a_cell_that_waits_for_a_tool_is_no_idle_sandbox(starting):
    async def think() -> str:
        await executor.open("session", idle_timeout=1.5)
        await asyncio.sleep(3)
        return "thought"

    async with (
        starting(contract="brokered") as executor,
        await executor.sandbox.serve_tools([think]),
    ):
        assert await said(executor.sandbox, "tools.think()") == "'thought'"
        # Control: a host that serves and is not called keeps nothing awake.
        assert (await executor.exit()).code == 41


async def test_an_interrupt_and_a_cancelled_task_cancel_the_call_on_the_host(sandbox, desk):
    code = """
import asyncio
task = asyncio.ensure_future(tools.wait.aio('task'))
while not await tools.has_begun.aio('task'):
    await asyncio.sleep(0.01)
task.cancel()
await asyncio.gather(task, return_exceptions=True)
tools.wait('interrupt')
"""
    running = asyncio.ensure_future(sandbox.run_code(code, context="default"))
    await until(lambda: "task" in desk.cancelled)
    await until(lambda: "interrupt" in desk.begun)
    await until(lambda: sandbox.interrupt("default"))
    assert (await running).outcome == "interrupted"
    await until(lambda: "interrupt" in desk.cancelled)


async def test_a_thread_that_outlives_its_cell_can_call_no_tool(sandbox, desk):
    context = await sandbox.create_context()
    code = """
import threading
done = threading.Event()
answers = []
def late():
    done.wait()
    try:
        answers.append(tools.shout('late'))
    except tools.ToolUnavailable as error:
        answers.append(error.reason)
thread = threading.Thread(target=late)
thread.start()
import os
key = os.environ['SANDFLEET_TOOLS']
"""
    assert (await sandbox.run_code(code, context=context)).outcome == "ok"
    # Another execution of the session tries it with the key of the one that has ended.
    key = await said(sandbox, "key", context=context)
    stolen = f"import os; os.environ['SANDFLEET_TOOLS'] = {key}; import tools; print(tools.shout('stolen'))"
    ran = await sandbox.commands.run(["python3", "-c", stolen])
    assert "no execution that is running calls it" in ran.stderr
    # With its own it may.
    own = await sandbox.commands.run(["python3", "-c", "import tools; print(tools.shout('own'))"])
    assert own.stdout == "OWN\n"
    await sandbox.run_code("done.set(); thread.join()", context=context)
    await sandbox.delete_context(context)


async def test_a_killed_and_rolled_back_context_calls_tools_again(sandbox, desk):
    context = await sandbox.create_context()
    await sandbox.run_code("kept = tools.shout('kept')", context=context)
    await sandbox.run_code("import os; os.kill(os.getpid(), 9)", context=context)
    assert await said(sandbox, "(kept, tools.shout('after'))", context=context) == "('KEPT', 'AFTER')"
    [copy] = await sandbox.fork_context(context)
    assert await said(sandbox, "(kept, tools.shout('copy'))", context=copy) == "('KEPT', 'COPY')"
    for each in (context, copy):
        await sandbox.delete_context(each)


async def test_a_service_calls_tools_in_its_own_name(sandbox, desk, services):
    program = "import tools, time; open('said', 'w').write(tools.shout('service')); time.sleep(3600)"
    from sandfleet import ServiceSpec

    await services.apply([ServiceSpec(name="caller", cmd=["python3", "-c", program])])

    async def written():
        return await sandbox.files.exists("said") and await sandbox.files.read("said") == "SERVICE"

    await until(written)


async def test_tables_come_as_lists_of_rows(sandbox, desk):
    code = """
class Frame:
    columns = ['a']
    def to_dict(self, orient):
        return [{'a': 1}, {'a': 2}]
tools.swap(data=b'', more={'table': Frame()})['more']
"""
    assert await said(sandbox, code) == "{'table': [{'a': 1}, {'a': 2}]}"


async def test_an_autonomous_sandbox_has_no_tools(starting):
    async with starting() as executor:
        with pytest.raises(PreconditionFailed) as refused:
            await executor.sandbox.serve_tools([len_of])
        assert refused.value.reason == "ContractNotBrokered"
        assert (await executor.sandbox.run_code("tools")).error.name == "NameError"
        assert (await executor.sandbox.commands.run("tool")).exit_code == 127


def len_of(text: str) -> int:
    return len(text)


async def test_a_cut_connection_loses_no_call_and_runs_none_twice(cutting, sandbox):
    cutter, client = cutting
    ran = []
    gates = {name: asyncio.Event() for name in ("before", "between")}

    async def slowly(name: str) -> str:
        ran.append(name)
        await gates[name].wait()
        return name

    async with await client.serve_tools([slowly]) as server:
        running = asyncio.ensure_future(sandbox.run_code("[tools.slowly('before'), tools.slowly('between')]"))
        # One call runs while the connection is cut, and its answer goes over the next one.
        await until(lambda: ran == ["before"])
        cutter.cut()
        gates["before"].set()
        await until(lambda: ran == ["before", "between"])
        # The answer of the other one is lost on its way: nothing of the executor's gets through.
        cutter.cut()
        gates["between"].set()
        assert (await running).text == "['before', 'between']"
        assert (ran, server.serving, server.problem) == (["before", "between"], True, None)


async def test_a_call_of_a_host_that_is_gone_may_have_run_unless_it_is_idempotent(executor, sandbox):
    ran = []
    gate = asyncio.Event()

    async def pay(amount: int) -> str:
        ran.append(amount)
        await gate.wait()
        return "paid"

    async def look(amount: int) -> str:
        ran.append(amount)
        await gate.wait()
        return f"looked at {amount}"

    offered = [pay, tool(look, idempotent=True)]
    first, second = executor.client(), executor.client()
    code = """
import asyncio
async def said(call):
    try:
        return await call
    except tools.ToolUnavailable as error:
        return error.reason, error.may_have_run
await asyncio.gather(said(tools.pay.aio(1)), said(tools.look.aio(2)))
"""
    before = await first.serve_tools(offered)
    running = asyncio.ensure_future(sandbox.run_code(code))
    await until(lambda: sorted(ran) == [1, 2])
    async with await second.serve_tools(offered):
        await until(lambda: not before.serving)
        assert before.problem.reason == "Replaced"
        gate.set()
        assert (await running).text == "[('HostLost', True), 'looked at 2']"
    assert sorted(ran) == [1, 2, 2]
    for each in (first, second):
        await each.close()


async def test_a_call_after_the_host_has_stopped_fails_at_once(executor, sandbox):
    def shout(text: str) -> str:
        return text.upper()

    client = executor.client()
    server = await client.serve_tools([shout])
    assert (await sandbox.run_code("call = tools.shout; call('a')")).text == "'A'"
    await server.close()
    code = """
try:
    call('b')
except tools.ToolUnavailable as error:
    said = error.reason, error.may_have_run
said
"""
    assert (await sandbox.run_code(code)).text == "('NoHost', False)"
    await client.close()


PAYS = """
said = []
for amount in AMOUNTS:
    try:
        said.append(tools.pay(amount))
    except tools.ToolDenied as error:
        said.append(error.reason)
said
"""


def pays(**options):
    async def pay(amount: float) -> str:
        return f"paid {amount:g}"

    return tool(pay, **options)


@pytest.mark.parametrize(
    ("cost", "amounts", "said"),
    [
        (lambda given: given["amount"], [60, 60, 40, 0.5], ["paid 60", "Budget", "paid 40", "Budget"]),
        (None, [60] * 3, ["paid 60", "paid 60", "paid 60"]),
        (lambda _: 51, [1, 1], ["paid 1", "Budget"]),
        # A cost that gives back, or that is no number, would be a way around.
        (lambda _: -1, [1], ["Budget"]),
        (lambda _: float("nan"), [1], ["Budget"]),
        (lambda given: given["none"], [1], ["Budget"]),
    ],
    ids=["amounts", "calls", "constant", "negative", "no number", "fails"],
)
async def test_calls_cost_their_tool_s_budget(sandbox, cost, amounts, said):
    options = {} if cost is None else {"cost": cost}
    async with await sandbox.serve_tools([pays(limits=ToolLimits(budget=100), **options)]):
        execution = await sandbox.run_code(PAYS.replace("AMOUNTS", str(amounts)))
        assert execution.text == str(said), execution


@pytest.mark.parametrize(
    ("on_ask", "said"),
    [
        (None, ["NotApproved", "NotApproved"]),
        (lambda call, _: Decision(call.arguments["amount"] < 10), ["paid 5", "NotApproved"]),
        (lambda _call, _session: 1 / 0, ["PolicyFailed", "PolicyFailed"]),
        # A person who asks on does not approve.
        (lambda _call, _session: Decision(allowed=False, ask=True), ["NotApproved", "NotApproved"]),
    ],
    ids=["no person", "decides", "fails", "asks on"],
)
async def test_a_call_that_the_policy_leaves_to_a_person_runs_only_when_the_person_allows_it(sandbox, on_ask, said):
    policy = policies.all_of(policies.ask("pay"), policies.never("other"))
    async with await sandbox.serve_tools([pays()], policy=policy, on_ask=on_ask):
        execution = await sandbox.run_code(PAYS.replace("AMOUNTS", "[5, 50]"))
        assert execution.text == str(said), execution


async def test_a_refusal_counts_more_than_a_wish_to_ask_a_person(sandbox):
    asked = []
    policy = policies.all_of(policies.ask("pay"), policies.never("pay"))
    on_ask = lambda call, _: asked.append(call) or Decision(allowed=True)  # noqa: E731
    async with await sandbox.serve_tools([pays()], policy=policy, on_ask=on_ask):
        assert (await sandbox.run_code(PAYS.replace("AMOUNTS", "[5]"))).text == "['Policy']"
    assert asked == []
