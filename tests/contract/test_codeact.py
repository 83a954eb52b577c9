"""The CodeAct loop on real sandboxes of the embedded fleet."""

import asyncio
import os
import re
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sandfleet import AsyncSandbox, Decision, ToolCall, ToolLimits, ToolSession, mcp_server, tool
from sandfleet.codeact import (
    Action,
    CodeActAgent,
    Conversation,
    End,
    FinalAnswer,
    GiveUp,
    RunCode,
    RunCommand,
    Verdict,
)
from sandfleet.codeact.environment import HostTools
from sandfleet.tools import policies


@pytest.fixture
async def sandbox() -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create() as made:
        yield made


def plays(*actions: Action) -> object:
    async def policy(conversation: Conversation) -> Action:
        return actions[len(conversation.steps)]

    return policy


def answers(value: object, step: int) -> Callable[[Conversation], Action]:
    """An answer on the execution of a step."""
    return lambda conversation: FinalAnswer(value, conversation.steps[step - 1].evidence.execution_id)


def conversing(*moves: object) -> object:
    async def policy(conversation: Conversation) -> Action:
        move = moves[len(conversation.steps)]
        return move(conversation) if callable(move) else move

    return policy


async def test_variables_carry_over_and_the_answer_is_checked(sandbox: AsyncSandbox) -> None:
    policy = conversing(RunCode("x = 20"), RunCode("x + 1"), answers(20, 2), answers(21, 1), answers(21, 2))
    run = await CodeActAgent(policy, sandbox).run("add one")
    verdicts = [Verdict.OK, Verdict.OK, Verdict.FAILED, Verdict.FAILED, Verdict.ACCEPTED]
    assert [step.verdict for step in run.steps] == verdicts
    assert run.end is End.ANSWERED


async def test_an_error_is_observed_with_its_line_and_repaired(sandbox: AsyncSandbox) -> None:
    policy = conversing(
        RunCode("def half(x):\n    return x / 0\n\nhalf(4)"),
        RunCode("def half(x):\n    return x / 2\nhalf(4)"),
        answers(2, 2),
    )
    run = await CodeActAgent(policy, sandbox).run("half of 4")
    assert run.end is End.ANSWERED
    lines = run.steps[0].observation.splitlines()
    assert lines[0] == "[execution 1] ERROR: ZeroDivisionError: division by zero"
    assert any("line 2, in half: return x / 0" in line for line in lines)


async def test_a_command_is_observed_with_its_exit_code_and_its_files(sandbox: AsyncSandbox) -> None:
    policy = plays(RunCommand("echo hello > out.txt; cat out.txt; ls nowhere"), GiveUp("done"))
    run = await CodeActAgent(policy, sandbox).run("task")
    observation = run.steps[0].observation
    assert "exit code 2" in observation.splitlines()[0]
    assert "stdout: hello" in observation
    assert "nowhere" in observation


async def test_code_that_does_not_end_is_ended_and_told(sandbox: AsyncSandbox) -> None:
    policy = plays(RunCode("while True: pass"), RunCode("1 + 1"), GiveUp("done"))
    run = await CodeActAgent(policy, sandbox, timeout=1.0).run("task")
    assert run.steps[0].observation.startswith("[execution 1] TIMEOUT")
    assert run.steps[1].verdict is Verdict.OK


async def test_an_interpreter_that_ends_itself_is_rolled_back_and_the_model_is_told(sandbox: AsyncSandbox) -> None:
    policy = plays(
        RunCode("x = 1\nopen('kept.txt', 'w').write('here')"),
        RunCode("import os\nos._exit(3)"),
        RunCode("print(open('kept.txt').read(), 'x' in globals())"),
        GiveUp("done"),
    )
    run = await CodeActAgent(policy, sandbox).run("task")
    assert "KILLED" in run.steps[1].observation
    assert ["lost:" in step.observation for step in run.steps[:3]] == [False, True, False]
    assert "rolled back: variables and imports are as before this cell" in run.steps[1].observation
    assert "here True" in run.steps[2].observation


def kill_executor(sandbox: AsyncSandbox) -> None:
    """Kill the process that listens on the sandbox's socket, from outside."""
    path = sandbox._link._connection.access.address.removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path.replace("///", "/"))
        pid, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(pid, signal.SIGKILL)


async def test_a_killed_executor_is_one_observation_and_the_session_goes_on_with_its_files(
    sandbox: AsyncSandbox,
) -> None:
    write, read = "x = 1\nopen('kept.txt', 'w').write('here')", "print(open('kept.txt').read())"
    moves = (RunCode(write), RunCode("print(x)"), RunCode(read), GiveUp("done"))

    async def policy(conversation: Conversation) -> Action:
        if len(conversation.steps) == 1:
            kill_executor(sandbox)
        return moves[len(conversation.steps)]

    run = await CodeActAgent(policy, sandbox).run("task")
    assert [step.verdict for step in run.steps[:3]] == [Verdict.OK, Verdict.LOST, Verdict.OK]
    assert ["lost:" in step.observation for step in run.steps[:3]] == [False, True, False]
    assert "here" in run.steps[2].observation
    assert run.recoveries == 1


async def until_saved(sandbox: AsyncSandbox, cell: int) -> None:
    """Wait for the automatic save of a cell."""
    while True:
        context, *_ = await sandbox.list_contexts()
        saved = context.autosaved
        if saved is not None and saved.state is not None and saved.state.cell_number >= cell:
            return
        await asyncio.sleep(0.05)


async def test_with_autosave_the_step_after_a_killed_executor_has_its_variables_and_is_told_which_not() -> None:
    moves = (
        RunCode("x = [1]; y = x\ngen = (i for i in x)"),
        RunCode("print(x)"),
        RunCode("(x, y is x)"),
        GiveUp("done"),
    )
    async with await AsyncSandbox.create(autosave=True) as sandbox:

        async def policy(conversation: Conversation) -> Action:
            if len(conversation.steps) == 1:
                await until_saved(sandbox, 1)
                kill_executor(sandbox)
            return moves[len(conversation.steps)]

        run = await CodeActAgent(policy, sandbox).run("task")
    told = run.steps[1].observation
    assert "brought back: 2 variables, as after cell 1, from the automatic save" in told
    assert "  - variables: gen" in told
    assert "all variables" not in told
    after = run.steps[2].observation
    assert "([1], True)" in after
    assert "lost:" not in after
    assert "brought back" not in after


async def test_with_autosave_an_executor_that_is_killed_in_the_middle_of_a_cell_costs_that_cell_alone() -> None:
    moves = (
        RunCode("x = [1]\ngen = (i for i in x)"),
        RunCode("x.append(2)\nopen('begun', 'w')\nprint('working', flush=True)\nimport time; time.sleep(100)"),
        RunCode("(x, 'time' in globals())"),
        GiveUp("done"),
    )
    async with await AsyncSandbox.create(autosave=True) as sandbox:

        async def kill_when_it_runs() -> None:
            while not await sandbox.files.exists("begun"):
                await asyncio.sleep(0.05)
            kill_executor(sandbox)

        async def policy(conversation: Conversation) -> Action:
            if len(conversation.steps) == 1:
                await until_saved(sandbox, 1)
                killing.append(asyncio.create_task(kill_when_it_runs()))
            return moves[len(conversation.steps)]

        killing: list[asyncio.Task[None]] = []
        run = await CodeActAgent(policy, sandbox).run("task")
    told = run.steps[1].observation
    assert "LOST by the platform" in told
    assert "brought back: 1 variable, as after cell 1, from the automatic save" in told
    assert "  - variables: gen" in told
    assert "all variables" not in told
    assert "result: ([1], False)" in run.steps[2].observation
    assert (run.recoveries, "lost:" in run.steps[2].observation) == (1, False)


async def test_with_autosave_a_sandbox_that_is_claimed_again_on_its_workspace_has_its_variables() -> None:
    moves = (RunCode("x = [1]"), RunCode("x"), RunCode("x"), GiveUp(""))
    async with await AsyncSandbox.create(keep_workspace=True, autosave=True) as first:
        other = await AsyncSandbox.connect(first.sandbox_id)

        async def policy(conversation: Conversation) -> Action:
            if len(conversation.steps) == 1:
                await until_saved(first, 1)
                await other.kill()
            return moves[len(conversation.steps)]

        agent = CodeActAgent(policy, first)
        run = await agent.run("task")
        try:
            assert "brought back: 1 variable, as after cell 1" in run.steps[1].observation
            assert "result: [1]" in run.steps[2].observation
        finally:
            await agent.sandbox.kill()


async def test_a_sandbox_that_was_released_is_claimed_again_on_its_workspace() -> None:
    async with await AsyncSandbox.create(keep_workspace=True) as first:
        await first.files.write("kept.txt", "here")
        other = await AsyncSandbox.connect(first.sandbox_id)
        moves = (RunCode("x = 1"), RunCode("x"), RunCode("print(open('kept.txt').read())"), GiveUp(""))

        async def policy(conversation: Conversation) -> Action:
            if len(conversation.steps) == 1:
                await other.kill()
            return moves[len(conversation.steps)]

        agent = CodeActAgent(policy, first)
        run = await agent.run("task")
        try:
            assert "another one was claimed" in run.steps[1].observation
            assert "here" in run.steps[2].observation
            assert agent.sandbox is not first
        finally:
            await agent.sandbox.kill()


TUTORIAL = (Path(__file__).parents[2] / "docs/tutorial/first-agent.md").read_text()
PROGRAM, ACCIDENT = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)[:2]
BODY = "async def policy(conversation: Conversation) -> Action:\n"


@pytest.mark.parametrize(
    ("number", "program"), [(0, PROGRAM), (1, PROGRAM.replace(BODY, BODY + ACCIDENT))], ids=["as it stands", "broken"]
)
async def test_the_tutorials_program_does_what_the_tutorial_shows(
    capsys: pytest.CaptureFixture[str], number: int, program: str
) -> None:
    shown = re.findall(r"```console\n\$ [^\n]*first\.py\n(.*?)```", TUTORIAL, re.DOTALL)[number]
    module: dict[str, Any] = {}
    exec(program.replace("asyncio.run(main())", ""), module)
    await module["main"]()
    assert _without_figures(capsys.readouterr().out) == _without_figures(shown)


def _without_figures(text: str) -> str:
    return re.sub(r"(?m)^\(.* s CPU, .*\)$", "(usage)", text).strip()


async def test_an_agent_is_shown_functions_and_the_tools_of_an_mcp_server_as_stubs() -> None:
    shown: list[tuple[str, ...]] = []

    async def policy(conversation: Conversation) -> Action:
        shown.append(conversation.tools)
        return GiveUp("enough") if conversation.last else RunCode("print(tools.shout(tools.say_hello('agent')))")

    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    program = Path(__file__).parents[1] / "support/client/mcp_tools.py"
    async with await AsyncSandbox.create(contract="brokered") as sandbox:
        agent = CodeActAgent(policy, sandbox, tools=[shout, mcp_server(sys.executable, str(program))])
        run = await agent.run("greet")
    assert "HELLO AGENT" in run.steps[0].observation
    assert shown[0][0] == 'def shout(text: str) -> str:\n    """Say it loudly."""'
    assert "def newest(customer: int) -> dict:" in "\n".join(shown[0])


async def test_an_agent_keeps_the_calls_of_each_of_its_sandboxes_in_a_file(tmp_path: Path) -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    async def policy(conversation: Conversation) -> Action:
        return GiveUp("enough") if conversation.last else RunCode("print(tools.pay(5))")

    limited = [tool(pay, limits=ToolLimits(calls_per_session=1))]

    async def observed(sandbox: AsyncSandbox) -> str:
        agent = CodeActAgent(policy, sandbox, tools=limited, tool_calls_file=tmp_path / "calls.db")
        observation = (await agent.run("pay")).steps[0].observation
        await sandbox._stop_tools()
        return observation

    async with await AsyncSandbox.create(contract="brokered") as sandbox:
        assert "paid 5" in await observed(sandbox)
        # A second agent, as after a restart of the program, goes on with the limit.
        assert "the most is 1 calls in a session" in await observed(sandbox)
    tools, first, second = HostTools(limited, None, None, tmp_path / "more.db"), Serves(), Serves()
    for environment in (first, first, second):
        await tools.serve(environment)
    assert [file.name for file in (*first.files, *second.files)] == ["more.db", "more.db.1"]


class Serves:
    """An environment that notes which file it is to use."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    async def serve_tools(self, tools: Any, **options: Any) -> Any:
        self.files.append(options["calls_file"])
        return SimpleNamespace(tools=())


async def test_a_person_decides_about_the_calls_of_an_agent_that_the_policy_leaves_open() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def pay(amount: int) -> str:
        return f"paid {amount}"

    def person(call: ToolCall, _session: ToolSession) -> Decision:
        asked.append((call.tool, dict(call.arguments)))
        return Decision(call.arguments["amount"] < 10, "too much")

    code = "print(tools.pay(5))\ntools.pay(50)"

    async def policy(conversation: Conversation) -> Action:
        return GiveUp("enough") if conversation.last else RunCode(code)

    async with await AsyncSandbox.create(contract="brokered") as sandbox:
        agent = CodeActAgent(policy, sandbox, tools=[pay], tool_policy=policies.ask("pay"), on_tool_ask=person)
        run = await agent.run("pay")
    assert "paid 5" in run.steps[0].observation
    assert "ToolDenied: cannot call pay: too much" in run.steps[0].observation
    assert asked == [("pay", {"amount": 5}), ("pay", {"amount": 50})]
