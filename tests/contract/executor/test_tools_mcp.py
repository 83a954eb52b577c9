"""Tools of a real MCP server, over stdio and over streamable HTTP, called by code in a brokered sandbox."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet import ToolLimits, mcp_server
from sandfleet.errors import InvalidArgument, UnavailableError
from sandfleet.tools.mcp import connection
from sandfleet.tools.mcp.connection import Connection
from support.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROGRAM = str(Path(__file__).parents[2] / "support/client/mcp_tools.py")
STDIO = mcp_server(sys.executable, PROGRAM, env={"GREETING": "hi"})


@asynccontextmanager
async def over_http(port):
    """The server's process, once it listens."""
    process = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, str(port))

    async def listens():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(listens)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    async with starting(contract="brokered") as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["stdio", "http"])
async def served(request, sandbox):
    if request.param == "stdio":
        async with await sandbox.serve_tools([STDIO]) as server:
            yield server
        return
    port = free_port("127.0.0.1")
    async with over_http(port), await sandbox.serve_tools([mcp_server(f"http://127.0.0.1:{port}/mcp")]) as server:
        yield server


async def said(sandbox, code):
    execution = await sandbox.run_code(code)
    assert execution.outcome == "ok", execution
    return execution.text


@pytest.mark.smoke
async def test_values_of_an_mcp_server_come_as_values_of_python(sandbox, served):
    rows = [{"id": 70, "total": 0.5}, {"id": 71, "total": 1.5}]
    assert await said(sandbox, "tools.search_orders(customer=7)") == str(rows)
    assert await said(sandbox, "tools.search_orders(7, limit=1)[0]['id']") == "70"
    assert await said(sandbox, "tools.search_orders(7, limit=None)") == str(rows)
    assert await said(sandbox, "tools.newest(5)") == "{'id': 5, 'total': 1.0}"
    assert await said(sandbox, "tools.say_hello(name='you')") == "'hello you'"
    assert await said(sandbox, "tools.picture()") == str(["a picture:", b"\x89PNG"])
    assert await said(sandbox, "tools.nothing() is None") == "True"
    ran = await sandbox.commands.run("tool say_hello --name shell")
    assert ran.stdout == '"hello shell"\n'


async def test_help_shows_what_the_server_says_of_a_tool(sandbox, served):
    shown = (await sandbox.run_code("help(tools.search_orders)")).logs.stdout
    assert "search_orders(customer: int, state: Literal['open', 'paid'] = 'open', limit: int | None = None)" in shown
    assert "-> list[dict]" in shown
    assert "customer: The number of the customer." in shown
    stub = next(tool for tool in served.tools if tool.name == "search_orders").stub
    assert stub.startswith("def search_orders(customer: int, ")


async def test_errors_of_an_mcp_server_are_typed(sandbox, served):
    code = """
def raised(call):
    try:
        call()
    except tools.ToolError as error:
        return type(error).__name__, error.reason, str(error)
[raised(lambda: tools.fail('gone')), raised(lambda: tools.newest('five')), raised(lambda: tools.newest(b'5'))]
"""
    failed, wrong, raw = eval(await said(sandbox, code))
    assert failed[:2] == ("ToolError", "McpToolError")
    assert "gone" in failed[2]
    assert "Traceback" not in failed[2]
    assert wrong == ("ToolDenied", "InvalidArguments", "cannot call newest: customer: 'five' is not of type 'integer'")
    assert raw == ("ToolDenied", "InvalidArguments", "cannot call newest: an MCP server takes JSON alone, and no bytes")


async def test_many_calls_at_once_get_their_own_answers(sandbox, served):
    code = """
import asyncio
found = await asyncio.gather(*(tools.say_hello.aio(name=str(n)) for n in range(100)))
found == [f'hello {n}' for n in range(100)]
"""
    assert await said(sandbox, code) == "True"


async def test_limits_hold_for_the_tools_of_a_server(sandbox):
    limits = ToolLimits(timeout=0.2, calls_per_session=2)
    server = mcp_server(sys.executable, PROGRAM, only=["wait"], prefix="shop_", limits=limits)
    code = """
reasons = []
for _ in range(3):
    try:
        tools.shop_wait(3600)
    except tools.ToolError as error:
        reasons.append(error.reason)
reasons, [name for name in dir(tools) if name.islower()]
"""
    async with await sandbox.serve_tools([server]):
        assert await said(sandbox, code) == "(['Timeout', 'Timeout', 'CallsPerSession'], ['shop_wait'])"


async def test_a_server_gets_the_variables_that_it_was_given_and_no_others(sandbox, monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    async with await sandbox.serve_tools([STDIO]):
        assert await said(sandbox, "tools.variable('GREETING'), tools.variable('API_KEY')") == "('hi', None)"


async def test_a_program_that_dies_is_started_again_and_its_call_may_have_run(sandbox):
    code = """
try:
    tools.wait(3600)
except tools.ToolUnavailable as error:
    said = error.reason, error.may_have_run
said
"""
    async with await sandbox.serve_tools([STDIO]) as server:
        first = int(await said(sandbox, "tools.pid()"))
        running = asyncio.ensure_future(sandbox.run_code(code))
        await until(lambda: server.calls.get("wait"))
        os.kill(first, signal.SIGKILL)
        assert (await running).text == "('ServerLost', True)"
        assert int(await said(sandbox, "tools.pid()")) != first


async def test_a_program_that_died_between_calls_costs_no_call():
    connection = Connection(STDIO.address)
    try:
        first = (await connection.call("pid", {})).structured_content["result"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: connection._life.is_over)
        assert (await connection.call("pid", {})).structured_content["result"] != first
    finally:
        await connection.close()


async def test_a_program_ends_with_the_serving(sandbox):
    async with await sandbox.serve_tools([STDIO]):
        pid = int(await said(sandbox, "tools.pid()"))
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_server_over_http_that_comes_back_is_used_again(sandbox):
    port = free_port("127.0.0.1")
    code = """
try:
    said = tools.say_hello(name='you')
except tools.ToolUnavailable as error:
    said = error.reason, error.may_have_run
said
"""
    async with over_http(port):
        server = await sandbox.serve_tools([mcp_server(f"http://127.0.0.1:{port}/mcp")])
        assert await said(sandbox, code) == "'hello you'"
    async with server:
        # Nothing was sent: so the tool has not run.
        assert await said(sandbox, code) == "('ServerLost', False)"
        assert await said(sandbox, code) == "('ServerLost', False)"
        async with over_http(port):
            assert await said(sandbox, code) == "'hello you'"


@pytest.mark.parametrize(
    ("server", "error", "why"),
    [
        (mcp_server("/nowhere/at-all"), UnavailableError, "cannot start MCP server '/nowhere/at-all'"),
        (mcp_server(sys.executable, "-c", "print('no protocol')"), UnavailableError, "cannot start MCP server"),
        (mcp_server("http://127.0.0.1:9/mcp"), UnavailableError, "cannot start MCP server 'http://127.0.0.1:9/mcp'"),
        (mcp_server(sys.executable, PROGRAM, only=["missing"]), InvalidArgument, "cannot offer missing"),
    ],
    ids=["no program", "no server", "no listener", "no such tool"],
)
async def test_a_server_that_cannot_be_served_is_said_at_once(sandbox, server, error, why):
    with pytest.raises(error, match=why):
        await sandbox.serve_tools([server])


@pytest.mark.parametrize(("bound", "passed"), [(1 << 20, False), (1 << 30, True)], ids=["bounded", "control"])
async def test_of_a_program_s_log_the_first_megabyte_is_shown(sandbox, capfd, monkeypatch, bound, passed):
    monkeypatch.setattr(connection, "MAX_LOG", bound)
    noisy = f"import runpy, sys; sys.stderr.write('x' * (4 << 20)); runpy.run_path({PROGRAM!r}, run_name='__main__')"
    async with await sandbox.serve_tools([mcp_server(sys.executable, "-c", noisy)]):
        assert await said(sandbox, "tools.say_hello(name='you')") == "'hello you'"
    shown = capfd.readouterr().err
    assert shown.startswith("xxx")
    assert (shown.count("x") >= 4 << 20, "the rest of this log is dropped" in shown) == (passed, not passed)


async def offers(sandbox, name):
    return name in (await sandbox.run_code("dir(tools)")).text


async def test_a_tool_that_a_server_learns_while_it_runs_can_be_called_and_one_that_it_forgets_cannot(sandbox, served):
    assert not await offers(sandbox, "count")
    await sandbox.run_code("tools.learn(name='count')")
    await until(lambda: offers(sandbox, "count"))
    assert (await sandbox.run_code("tools.count(text='one')")).text == "'count: one'"
    assert "count" in {one.name for one in served.tools}
    # Control: the others are still there, and the same host goes on.
    assert (await sandbox.run_code("tools.say_hello(name='you')")).text == "'hello you'"
    await sandbox.run_code("tools.learn(name='count', forget=True)")

    async def gone():
        return not await offers(sandbox, "count")

    await until(gone)
    assert (await sandbox.run_code("tools.count(text='two')")).error.name in {"ToolUnavailable", "AttributeError"}


async def test_a_call_that_runs_goes_on_while_the_tools_change(sandbox):
    async with await sandbox.serve_tools([STDIO]):
        code = "import threading\nsaid = []\n"
        code += "waits = threading.Thread(target=lambda: said.append(tools.wait(seconds=1.5)))\nwaits.start()\n"
        code += "tools.learn(name='more')\nimport time\n"
        code += "while 'more' not in dir(tools): time.sleep(0.01)\nbefore = list(said)\nwaits.join()\nbefore, said"
        assert (await sandbox.run_code(code)).text == "([], ['waited'])"


async def test_a_changed_tool_that_cannot_be_offered_changes_nothing(sandbox):
    def taken(text: str) -> str:
        return f"{text} of the host"

    async with await sandbox.serve_tools([STDIO, taken]) as server:
        before = {one.name for one in server.tools}
        await sandbox.run_code("tools.learn(name='taken')")
        await asyncio.sleep(0.5)
        assert (await sandbox.run_code("tools.taken(text='x')")).text == "'x of the host'"
        assert {one.name for one in server.tools} == before


async def test_only_the_tools_that_were_named_are_offered_when_a_server_learns_more(sandbox):
    async with await sandbox.serve_tools([mcp_server(sys.executable, PROGRAM, only=["learn"])]) as served:
        await sandbox.run_code("tools.learn(name='count')")
        await asyncio.sleep(0.5)
        assert [one.name for one in served.tools] == ["learn"]
