"""Code of a cell asks its caller for a line of input: in Python contexts and in Jupyter kernels."""

import asyncio
import threading

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import PATIENCE, until
from sandfleet import Outcome
from sandfleet.values import InputRequest
from sandfleet_api.executor.v1 import interpreter_pb2 as pb
from sandfleet_api.executor.v1 import interpreter_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")

# By language: code that asks and says what it got, and code that asks again and again.
ASK = {
    "python": "name = input('who? '); print(f'<{name}>')",
    "jupyter-python3": "name = input('who? '); print(f'<{name}>')",
    "jupyter-ir": "name <- readline('who? '); cat(paste0('<', name, '>\\n'))",
}
PASSWORD = "import getpass; word = getpass.getpass('word: '); len(word)"


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=ASK)
async def language(sandbox, request):
    if request.param not in (await sandbox.environment()).languages:
        pytest.skip(f"the sandbox has no {request.param}")
    return request.param


@pytest.fixture
def run(sandbox, language):
    async def run(code, **options):
        return await sandbox.run_code(code, language=language, **{"timeout": 60, **options})

    return run


async def test_a_callback_answers(run, language):
    asked = []

    async def give(request):
        asked.append(request)
        return "ann é"

    execution = await run(ASK[language], on_input=give)
    assert (execution.outcome, execution.logs.stdout.strip()) == ("ok", "<ann é>")
    assert asked == [InputRequest("who? ")]
    # A plain function runs in a thread, where it may wait for a person.
    execution = await run(ASK[language], on_input=lambda _: threading.current_thread().name)
    assert "<asyncio" in execution.logs.stdout


async def test_without_a_callback_the_code_fails_at_once_and_says_why(run, language):
    execution = await run(ASK[language])
    assert (execution.outcome, execution.blame, execution.lost) == ("error", "code", ())
    assert execution.error.name in ("StdinNotAvailable", "StdinNotImplementedError")
    assert "input" in execution.error.value


async def test_a_refusal_is_an_error_of_the_code_and_the_variables_stay(run, language):
    await run("kept <- 5" if language == "jupyter-ir" else "kept = 5")
    execution = await run(ASK[language], on_input=lambda _: None)
    assert (execution.outcome, execution.error.name, execution.lost) == ("error", "StdinNotAvailable", ())
    assert (await run("print(kept)")).logs.stdout.strip().endswith("5")


async def test_an_interrupt_and_a_deadline_end_the_wait(sandbox, run, language):
    never = asyncio.Event()
    asked = asyncio.Event()

    async def wait(_):
        asked.set()
        await never.wait()
        return ""

    # A kernel may need more than its second to react, on a machine that is busy: then it is killed.
    execution = await run(ASK[language], on_input=wait, timeout=1)
    assert execution.outcome is Outcome.TIMEOUT
    asked.clear()
    cell = asyncio.create_task(run(ASK[language], on_input=wait))
    await asyncio.wait_for(asked.wait(), PATIENCE)
    context = "default" if language == "python" else f"default-{language}"
    assert await sandbox.interrupt(context, grace=10)
    assert (await cell).outcome is Outcome.INTERRUPTED
    assert (await run(ASK[language], on_input=lambda _: "next")).logs.stdout.strip() == "<next>"


@pytest.mark.smoke
async def test_a_password_is_asked_for_as_one(sandbox):
    asked = []
    execution = await sandbox.run_code(PASSWORD, on_input=lambda request: asked.append(request) or "secret")
    assert (execution.text, asked) == ("6", [InputRequest("word: ", password=True)])


async def test_what_a_callback_raises_is_raised_when_the_cell_has_ended(sandbox):
    with pytest.raises(ZeroDivisionError):
        await sandbox.run_code("try: input()\nexcept EOFError: ended = 1", on_input=lambda _: 1 / 0)
    assert (await sandbox.run_code("ended")).text == "1"


async def test_another_client_may_answer_and_one_that_comes_later_is_not_asked(executor, sandbox):
    first, asked = asyncio.Event(), []

    async def wait(_):
        first.set()
        await asyncio.Event().wait()

    code = "a = input('a'); b = input('b'); a + b"
    cell = asyncio.create_task(sandbox.run_code(code, execution_id="shared", on_input=wait))
    await asyncio.wait_for(first.wait(), PATIENCE)
    other = executor.client()

    def give(request):
        asked.append(str(request))
        return request.prompt.upper()

    assert (await other.attach("shared", on_input=give)).text == "'AB'"
    assert ((await cell).text, asked) == ("'AB'", ["a", "b"])
    assert (await other.attach("shared", on_input=give)).text == "'AB'"
    assert asked == ["a", "b"]


async def test_answers_that_do_not_fit_are_refused_in_a_typed_way(executor, sandbox):
    waiting = asyncio.Event()

    async def wait(_):
        waiting.set()
        await asyncio.Event().wait()

    cell = asyncio.create_task(sandbox.run_code("input()", execution_id="odd", on_input=wait))
    await asyncio.wait_for(waiting.wait(), PATIENCE)
    async with executor.channel() as channel:
        stub = interpreter_pb2_grpc.InterpreterServiceStub(channel)

        async def code_of(**fields):
            request = pb.AnswerInputRequest(**{"execution_id": "odd", "input_id": "1", **fields})
            metadata = (("authorization", f"Bearer {executor.token()}"),)
            try:
                await stub.AnswerInput(request, metadata=metadata, timeout=PATIENCE)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        refused, unknown = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
        assert await code_of() is refused
        assert await code_of(text="a\nb") is refused
        assert await code_of(text="x" * (64 << 10) + "x") is refused
        assert await code_of(input_id="2", text="x") is unknown
        assert await code_of(execution_id="none", text="x") is unknown
        assert await code_of(text="x" * (64 << 10)) is grpc.StatusCode.OK
        assert await code_of(text="again") is unknown
    assert len((await cell).text) == (64 << 10) + 2


async def test_a_line_is_in_the_journal_and_a_password_is_not(fresh):
    sandbox = fresh.sandbox
    await sandbox.run_code(
        f"{ASK['python']}; {PASSWORD}", on_input=lambda request: "ann" if "who" in str(request) else "S3CRET"
    )
    records = [record async for record in sandbox.journal.records()]
    (cell,) = [record.body for record in records if record.kind == "execution"]
    assert cell["stdin"]["text"] == "ann\n"
    assert "S3CRET" not in str(records)


@pytest.mark.smoke
async def test_in_a_reviewed_sandbox_a_reviewer_sees_the_line_first(reviewed, reviewer):
    cell = asyncio.create_task(reviewed.sandbox.run_code("exec(input())", on_input=lambda _: "done = 6 * 7"))
    (code,) = await reviewer.waiting()
    await reviewer.approve(code)

    async def line():
        found = await reviewer.pending()
        return found[0] if found and found[0].method == "InterpreterService/AnswerInput" else None

    found = await until(line)
    assert (found.kind, found.content) == ("input", b"done = 6 * 7")
    await reviewer.approve(found)
    assert (await cell).ok
