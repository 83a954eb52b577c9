"""Executions against a scripted executor that answers, lies or goes away."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import (
    AlreadyExistsError,
    CommandFailed,
    InvalidArgument,
    NotFoundError,
    ProtocolError,
    SandboxEnded,
    UnavailableError,
)
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Breaks, Event, Fails, FakeFleet, Hangs, finished, gap, output, result, started
from sandfleet.values.execution import Blame, CommandOutput, Gap, Outcome, Result, Stream
from sandfleet_api.executor.v1 import common_pb2, process_pb2

EVERYTHING = ("variables", "processes", "tmp")


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


async def test_output_results_and_usage_are_collected(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer(
        "code",
        output("one "),
        output("two"),
        output("bad", stderr=True),
        result("text/plain", b"42"),
        finished(usage=common_pb2.Usage(cpu_seconds=0.5), files=common_pb2.FileChanges(created=[b"a"], complete=True)),
    )
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.blame, execution.ok) == (Outcome.OK, None, True)
    assert (execution.logs.stdout, execution.logs.stderr, execution.text) == ("one two", "bad", "42")
    assert execution.usage.cpu_seconds == 0.5
    assert execution.files.created == ("a",)


async def test_an_exception_of_the_code_is_data(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    raised = common_pb2.ExecutionError(name="KeyError", value="'x'", frames=[common_pb2.Frame(file="<cell 1>", line=3)])
    fake.answer("code", Event(error=raised), finished(common_pb2.OUTCOME_ERROR, blame=common_pb2.BLAME_CODE))
    execution = await sandbox.run_code("code")
    assert execution.outcome is Outcome.ERROR
    assert execution.blame is Blame.CODE
    assert execution.error is not None
    assert (execution.error.name, execution.error.frames[0].line) == ("KeyError", 3)


async def test_a_character_cut_in_two_between_chunks_stays_whole(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    raw = "café €".encode()
    fake.answer("code", *(output(raw[i : i + 1]) for i in range(len(raw))), finished())
    heard: list[str] = []
    execution = await sandbox.run_code("code", on_stdout=heard.append)
    assert execution.logs.stdout == "".join(heard) == "café €"


async def test_non_utf8_output_is_replaced_in_text_and_exact_in_bytes(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("cmd", output(b"a\xff\xfeb\xe2\x82"), finished())
    ended = await sandbox.commands.run("cmd")
    assert ended.stdout == "a\ufffd\ufffdb\ufffd"
    assert ended.stdout_bytes == b"a\xff\xfeb\xe2\x82"


async def test_a_gap_says_where_and_how_much_is_missing(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("head"), gap(1000), output("tail"), finished())
    execution = await sandbox.run_code("code")
    assert execution.logs.stdout == "headtail"
    assert execution.logs.gaps == (Gap(Stream.STDOUT, 4, 1000),)


async def test_async_and_plain_listeners_hear_everything_in_order(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("a"), result("text/plain", b"r"), output("b", stderr=True), finished())
    heard: list[object] = []

    async def listen(text: str) -> None:
        await asyncio.sleep(0)
        heard.append(text)

    await sandbox.run_code("code", on_stdout=listen, on_stderr=heard.append, on_result=heard.append)
    assert heard == ["a", Result({"text/plain": "r"}, is_main_result=True), "b"]


async def test_a_listener_that_raises_ends_the_call_and_interrupts_the_code(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("code", output("a"), Hangs())

    def refuse(_: str) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await sandbox.run_code("code", on_stdout=refuse)
    await _until(lambda: bool(fake.called("Interrupt")))


async def test_cancelling_interrupts_the_code(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("a"), Hangs())
    began = asyncio.Event()
    running = asyncio.create_task(sandbox.run_code("code", context="c", on_stdout=lambda _: began.set()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await _until(lambda: bool(fake.called("Interrupt")))
    assert fake.called("Interrupt")[0].request.context_id == "c"


async def test_cancelling_a_command_kills_it(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("cmd", output("a"), Hangs())
    began = asyncio.Event()
    running = asyncio.create_task(sandbox.commands.run("cmd", execution_id="e", on_stdout=lambda _: began.set()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await _until(lambda: bool(fake.called("Signal")))
    assert (fake.called("Signal")[0].request.execution_id, fake.called("Signal")[0].request.signal) == ("e", 9)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([started(), Event(sequence=5, output=common_pb2.OutputChunk(stream=1, data=b"x"))], "BadSequence"),
        ([started(), Event(sequence=1, output=common_pb2.OutputChunk(stream=1, data=b"x"))], "BadSequence"),
        ([started(), started(), finished()], "BadOrder"),
        ([started(), Event(output=common_pb2.OutputChunk(stream=7, data=b"x"))], "UnknownStream"),
        ([started(), finished(99)], "UnknownOutcome"),
        ([started(), finished(0)], "UnknownOutcome"),
        ([started(), output("x")], "NoEnd"),
    ],
)
async def test_a_lying_executor_gives_a_lost_execution_with_what_came_before(
    fake: FakeFleet, sandbox: AsyncSandbox, steps: list[Event], reason: str
) -> None:
    fake.answer_exactly("code", *steps)
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.blame, execution.reason) == (Outcome.LOST, Blame.PLATFORM, reason)
    assert (await sandbox.run_code("more")).ok


@pytest.mark.parametrize(
    "steps", [[output("x")], [], [started(execution_id="another")], [finished()], [Event(sequence=2**64 - 1)]]
)
async def test_a_protocol_violation_before_the_start_raises(
    fake: FakeFleet, sandbox: AsyncSandbox, steps: list[Event]
) -> None:
    fake.answer_exactly("code", *steps)
    with pytest.raises(ProtocolError):
        await sandbox.run_code("code")


async def test_malformed_messages_lose_the_execution(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", b"\xff\xff\xff\xff")
    assert (await sandbox.run_code("code")).outcome is Outcome.LOST


async def test_an_event_of_a_later_version_is_passed_over(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", Event(), output("x"), finished())
    assert (await sandbox.run_code("code")).logs.stdout == "x"


async def test_an_executor_that_dies_loses_the_execution_and_the_next_call_finds_the_new_one(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("code", output("half"), Breaks())
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.blame) == (Outcome.LOST, Blame.PLATFORM)
    assert (execution.reason, execution.lost) == ("ExecutorReplaced", EVERYTHING)
    assert execution.logs.stdout == "half"
    assert execution.context_restarted
    following = await sandbox.run_code("more")
    assert following.ok
    assert following.lost == ()


@pytest.mark.parametrize("replaced", [True, False])
async def test_an_executor_that_ends_for_want_of_memory_is_said_to_also_before_the_next_one_answers(
    fake: FakeFleet, sandbox: AsyncSandbox, *, replaced: bool
) -> None:
    fake.answer("code", output("half"), Breaks(replaced=replaced, reason="OutOfMemory"))
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.blame, execution.reason) == (Outcome.MEMORY, Blame.LIMIT, "SandboxOutOfMemory")
    assert (execution.logs.stdout, execution.lost) == ("half", EVERYTHING)
    if replaced:
        assert (await sandbox.run_code("more")).ok


@pytest.mark.parametrize("ends", [["OutOfMemory", "ExecutorCrashed"], ["OutOfMemory", "OutOfMemory"], []])
async def test_memory_is_blamed_for_the_end_of_the_very_executor_alone(
    fake: FakeFleet, sandbox: AsyncSandbox, ends: list[str]
) -> None:
    """Of executors in between, or of a fleet that does not know, the last reason says nothing about this one."""
    fake.answer("code", output("half"), Breaks())
    run = asyncio.create_task(sandbox.run_code("code"))
    await _until(lambda: bool(fake.ends))
    fake.ends[:] = ends
    assert (await run).outcome is Outcome.LOST


async def test_a_replacement_between_two_executions_is_said_once(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_code("x = 1")).ok
    await fake.break_executor()
    assert (await sandbox.run_code("x")).lost == EVERYTHING
    assert (await sandbox.run_code("x")).lost == ()


async def test_a_first_execution_has_nothing_to_lose(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    await fake.break_executor()
    assert (await sandbox.run_code("x")).lost == ()


async def test_nothing_runs_twice_when_the_executor_dies_before_it_says_that_it_began(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer_exactly("code", Breaks())
    execution = await sandbox.run_code("code")
    assert execution.outcome is Outcome.LOST
    assert len(fake.called("Execute")) == 1


async def test_a_refusal_for_now_is_tried_again(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.fail("Execute", Fails(grpc.StatusCode.UNAVAILABLE, "Starting", "cannot run it: starting"))
    assert (await sandbox.run_code("code")).ok
    assert len(fake.called("Execute")) == 2


async def test_a_sandbox_that_ends_in_mid_execution_is_lost_and_then_ended(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("code", output("x"), Breaks(replaced=False))
    fake.fail("Get", Fails(grpc.StatusCode.NOT_FOUND, "LeaseExpired", "cannot open it: its lease is over"))
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.reason) == (Outcome.LOST, "SandboxEnded")
    assert "its lease is over" in execution.message
    with pytest.raises(SandboxEnded, match="its lease is over"):
        await sandbox.run_code("more")


async def test_an_executor_that_does_not_come_back_is_unavailable(fake: FakeFleet) -> None:
    async with await AsyncFleet.connect(fake.address) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, rpc_timeout=0.3)
        await fake.break_executor(replaced=False)
        with pytest.raises(UnavailableError, match="no answer"):
            await sandbox.run_code("code")
        assert not await sandbox.health()
        await sandbox.close()


async def test_closing_in_mid_execution_loses_it(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("a"), Hangs())
    began = asyncio.Event()
    running = asyncio.create_task(sandbox.run_code("code", on_stdout=lambda _: began.set()))
    await began.wait()
    await sandbox.close()
    assert (await running).reason == "Closed"
    with pytest.raises(UnavailableError, match="closed"):
        await sandbox.run_code("more")


async def test_closing_before_the_first_answer_loses_it_too(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer_exactly("code", Hangs())
    running = asyncio.create_task(sandbox.run_code("code"))
    command = asyncio.create_task(sandbox.commands.run("code"))
    while len(fake.begun) < 2:
        await asyncio.sleep(0)
    await sandbox.close()
    assert [(end.outcome, end.reason) for end in (await running, await command)] == [(Outcome.LOST, "Closed")] * 2


@pytest.mark.parametrize(("told", "lists"), [({"pid": 7}, 0), ({}, 1)], ids=["told", "older executor"])
async def test_a_handle_has_the_process_id_of_the_start(
    fake: FakeFleet, sandbox: AsyncSandbox, told: dict[str, int], lists: int
) -> None:
    fake.answer_exactly("code", started(**told), finished())
    row = process_pb2.RunningCommand(execution_id="mine", pid=7)
    fake.answer_call("List", process_pb2.ListResponse(commands=[row]))
    handle = await sandbox.commands.run("code", background=True, execution_id="mine")
    assert (handle.pid, len(fake.called("List"))) == (7, lists)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.ALREADY_EXISTS, AlreadyExistsError),
        (grpc.StatusCode.NOT_FOUND, NotFoundError),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
    ],
)
async def test_an_execution_that_was_not_accepted_raises(
    fake: FakeFleet, sandbox: AsyncSandbox, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    fake.fail("Execute", Fails(code, "Why", "cannot run it: because"))
    with pytest.raises(kind, match="cannot run it: because") as caught:
        await sandbox.run_code("code")
    assert caught.value.reason == "Why"  # type: ignore[attr-defined]


async def test_a_context_of_this_client_is_made_again_on_a_new_executor(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    await sandbox.create_context("mine", cwd="sub", envs={"A": "1"})
    await sandbox.run_code("x", context="mine")
    await fake.break_executor()
    # So that the client knows of the break: a cell sent into a connection that is just breaking is rightly `lost`.
    await sandbox.health()
    fake.fail("Execute", Fails(grpc.StatusCode.NOT_FOUND, "ContextNotFound", "cannot run it: no such context"))
    execution = await sandbox.run_code("x", context="mine")
    assert execution.ok
    assert execution.context_restarted
    first, second = (call.request for call in fake.called("CreateContext"))
    assert first == second


async def test_another_language_has_a_default_context_of_its_own(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("x", language="bash")
    await sandbox.run_code("x", language="bash")
    await sandbox.run_code("x", language="python")
    assert [call.request.language for call in fake.called("CreateContext")] == ["bash"]
    assert [call.request.context_id for call in fake.called("Execute")] == ["default-bash", "default-bash", "default"]


async def test_a_foreign_token_is_changed_once(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.fail("Execute", Fails(grpc.StatusCode.UNAUTHENTICATED, "TokenExpired", "cannot take the token: expired"))
    assert (await sandbox.run_code("code")).ok
    tokens = [call.metadata["authorization"] for call in fake.called("Execute")]
    assert tokens[0] != tokens[1]


async def test_a_token_near_its_end_is_changed_before_the_call(fake: FakeFleet) -> None:
    fake.token_life = 10
    async with await AsyncFleet.connect(fake.address) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet)
        fake.token_life = 3600
        await sandbox.run_code("code")
        await sandbox.run_code("code")
        assert len(fake.called("Get")) == 1
        await sandbox.close()


async def test_a_command_fails_only_when_asked_to(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("false", output("no luck\n", stderr=True), finished(common_pb2.OUTCOME_ERROR, exit_code=3))
    assert (await sandbox.commands.run("false")).exit_code == 3
    with pytest.raises(CommandFailed, match=r"exit code 3.*no luck") as caught:
        await sandbox.commands.run("false", check=True)
    assert caught.value.result.stderr == "no luck\n"


async def test_a_handle_yields_output_and_then_its_result(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("cmd", output("a"), output("b", stderr=True), finished(exit_code=0))
    handle = await sandbox.commands.run("cmd", background=True)
    assert [piece async for piece in handle] == [
        CommandOutput(Stream.STDOUT, "a", b"a"),
        CommandOutput(Stream.STDERR, "b", b"b"),
    ]
    assert (await handle.wait()).stdout == "a"


async def test_stdin_is_sent_in_pieces_and_closed(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("cat", Hangs())
    handle = await sandbox.commands.run("cat", background=True, stdin=b"x" * 2_500_000)
    await _until(lambda: bool(fake.called("CloseInput")))
    assert [len(call.request.data) for call in fake.called("SendInput")] == [1 << 20, 1 << 20, 2_500_000 - (2 << 20)]
    await handle.kill()


async def test_open_stdin_without_a_handle_is_refused(sandbox: AsyncSandbox) -> None:
    with pytest.raises(InvalidArgument, match="only a handle can write to it"):
        await sandbox.commands.run("cat", stdin=True)


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e300, -1.0])
async def test_an_invalid_deadline_is_refused(sandbox: AsyncSandbox, timeout: float) -> None:
    with pytest.raises(InvalidArgument, match="no length of time"):
        await sandbox.run_code("code", timeout=timeout)


async def _until(holds: object) -> None:
    assert callable(holds)
    while not holds():
        await asyncio.sleep(0.01)
