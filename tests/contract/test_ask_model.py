"""A language model as a tool: code in a brokered sandbox asks it, over an endpoint that speaks the chat protocol."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from contract.executor.harness import until
from sandfleet import AsyncSandbox, ToolLimits, ask_model
from sandfleet.codeact import PolicyError
from sandfleet.codeact.policies.http import JsonClient, Retries
from sandfleet.errors import InvalidArgument
from support.client.chat_endpoint import Endpoint

KEY = "sk-proj-0123456789abcdef"
SAYS = """
def said(prompt, **given):
    try:
        return tools.ask_model(prompt, **given)
    except tools.ToolError as error:
        return type(error).__name__, error.reason, str(error)
"""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Endpoint() as server:
        yield server


@asynccontextmanager
async def asking(endpoint: Endpoint, **options: Any) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(contract="brokered") as sandbox:
        await sandbox.serve_tools([ask_model("tiny", base_url=endpoint.url, **options)])
        await sandbox.run_code(SAYS)
        yield sandbox


async def said(sandbox: AsyncSandbox, code: str) -> Any:
    execution = await sandbox.run_code(code)
    assert execution.outcome == "ok", execution
    return eval(execution.text)


async def test_code_asks_a_model_over_a_context_and_gets_its_text(endpoint: Endpoint) -> None:
    endpoint.say("<think>They are two.</think>Two.")
    async with asking(endpoint, instructions="Be brief.", key=KEY, request={"temperature": 0}) as sandbox:
        assert await said(sandbox, "said('How many?', context='Ada and Grace')") == "Two."
        shown = (await sandbox.run_code("help(tools.ask_model)")).logs.stdout
        known = (await sandbox.run_code("import os; print(dict(os.environ))")).logs.stdout
    _, headers, body = endpoint.requests[0]
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["temperature"], body["stream"]) == ("tiny", 0, False)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How many?\n\n<context>\nAda and Grace\n</context>"},
    ]
    assert "ask_model(prompt: str, context: str = '') -> str" in shown
    assert KEY not in shown + known
    assert endpoint.url not in shown + known


async def test_what_the_endpoint_refuses_is_a_typed_error_without_the_key(endpoint: Endpoint) -> None:
    endpoint.refuse(401, f"Incorrect API key provided: {KEY}; it begins with sk-proj-0*****cdef, or '{KEY[-8:]}'")
    endpoint.refuse(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
    endpoint.say("")
    endpoint.replies.append((200, {}, b"[]"))
    async with asking(endpoint, key=KEY) as sandbox:
        refused, long, empty, malformed = await said(sandbox, "[said('a'), said('b'), said('c'), said('d')]")
    assert refused[:2] == ("ToolError", "EndpointRefused")
    assert refused[2].startswith("ask_model has failed: the model's endpoint answered 401: Incorrect API key provided:")
    assert not re.search("sk-proj|0123|cdef", refused[2])
    assert long[:2] == ("ToolError", "ContextTooLong")
    assert empty[:2] == ("ToolError", "EmptyAnswer")
    assert malformed[:2] == ("ToolError", "MalformedReply")


async def test_a_busy_endpoint_is_asked_again_when_it_says(endpoint: Endpoint) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    endpoint.refuse(429, "slow down", Retry_After="7")
    endpoint.say("now")
    endpoint.refuse(503, "closed", Retry_After="3600")
    client = JsonClient(2, Retries(attempts=3), sleep)
    async with asking(endpoint, client=client) as sandbox:
        assert await said(sandbox, "said('a')") == "now"
        kind, reason, message = await said(sandbox, "said('b')")
    assert waited == [7.0]
    assert (kind, reason) == ("ToolError", "EndpointUnavailable")
    assert "it asks to wait 3,600 s" in message


async def test_no_call_starts_when_nothing_is_left_of_the_budget_of_tokens(endpoint: Endpoint) -> None:
    # Each answer costs 15 tokens by what the endpoint says, and each question is estimated as 3.
    endpoint.answers = lambda _body: "yes"
    async with asking(endpoint, limits=ToolLimits(budget=40)) as sandbox:
        *allowed, refused = await said(sandbox, "[said('a question') for _ in range(4)]")
    assert allowed == ["yes"] * 3
    assert refused[:2] == ("ToolDenied", "Budget")
    assert refused[2].endswith("it costs 3, and 0 of the budget of 40 are left")
    assert len(endpoint.requests) == 3


async def test_a_question_that_is_larger_than_the_budget_is_not_asked(endpoint: Endpoint) -> None:
    endpoint.answers = lambda _body: "yes"
    async with asking(endpoint, limits=ToolLimits(budget=1000, calls_per_session=2)) as sandbox:
        large, small, more = await said(sandbox, "[said('a', context='x' * 5000), said('b'), said('c')]")
    assert (large[1], small, more[1]) == ("Budget", "yes", "CallsPerSession")
    assert len(endpoint.requests) == 1


async def test_a_call_that_the_code_gives_up_is_charged_when_the_answer_comes(endpoint: Endpoint) -> None:
    asked, go = threading.Event(), threading.Event()

    def slowly(_body: dict[str, Any]) -> str:
        asked.set()
        assert go.wait(60)
        return "late"

    endpoint.answers = slowly
    # A question is estimated as 1, and each answer makes it 15: two answers are more than the budget.
    async with asking(endpoint, limits=ToolLimits(budget=20), max_connections=1) as sandbox:
        try:
            running = asyncio.ensure_future(sandbox.run_code("tools.ask_model('a')", context="default"))
            assert await asyncio.to_thread(asked.wait, 60)
            await until(lambda: sandbox.interrupt("default"))
            assert (await running).outcome == "interrupted"
        finally:
            go.set()
        # The next call waits for the connection, and so for the answer that is not wanted any more.
        late, refused = await said(sandbox, "said('b'), said('c')")
    assert (late, refused[1]) == ("late", "Budget")
    assert len(endpoint.requests) == 2


async def test_no_more_requests_are_under_way_than_there_are_connections(endpoint: Endpoint) -> None:
    lock, under_way, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    def counted(_body: dict[str, Any]) -> str:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        # Two are always there: each waits for another.
        both.wait(60)
        with lock:
            under_way -= 1
        return "yes"

    endpoint.answers = counted
    async with asking(endpoint, max_connections=2) as sandbox:
        code = "import asyncio\nawait asyncio.gather(*(tools.ask_model.aio(str(n)) for n in range(20)))"
        assert await said(sandbox, code) == ["yes"] * 20
    assert most == 2


RECURSION = '''
import json
from concurrent.futures import ThreadPoolExecutor

text = open("letters.txt").read()

def ask(prompt, context):
    return tools.ask_model(prompt, context=context)

def pieces(text, size):
    """Cut at ends of lines."""
    start = 0
    while start < len(text):
        end = text.rfind("\\n", start, start + size) + 1 if start + size < len(text) else len(text)
        yield text[start:end]
        start = end

try:
    ask("Sum up the amounts.", text)
    whole = ""
except tools.ToolError as error:
    whole = error.reason

cut = list(pieces(text, 100_000))
with ThreadPoolExecutor(8) as pool:
    partial = list(pool.map(lambda piece: ask("Sum up the amounts.", piece), cut))
answer = ask("Sum up the amounts.", "\\n".join(f"paid {one}" for one in partial))
json.dumps({"characters": len(text), "whole": whole, "pieces": len(cut), "answer": answer})
'''


async def test_code_asks_over_the_pieces_of_a_text_that_no_context_holds(endpoint: Endpoint) -> None:
    window = 120_000
    lines = [f"letter {n}: {'dear reader, ' * 8}; paid {n % 97}\n" for n in range(42_000)]
    text = "".join(lines)
    assert 5_000_000 < len(text) < 6_000_000

    def sums(body: dict[str, Any]) -> str:
        return str(sum(map(int, re.findall(r"paid (\d+)", body["messages"][-1]["content"]))))

    endpoint.answers = sums
    limits = ToolLimits(calls_per_session=100, argument_bytes=window)
    async with asking(endpoint, limits=limits) as sandbox:
        await sandbox.files.write("letters.txt", text)
        execution = await sandbox.run_code(RECURSION, timeout=120)
        assert execution.outcome == "ok", execution
    told = json.loads(eval(execution.text))
    assert told == {
        "characters": len(text),
        "whole": "ArgumentsTooLarge",
        "pieces": len(endpoint.requests) - 1,
        "answer": str(sum(n % 97 for n in range(42_000))),
    }
    assert told["pieces"] >= len(text) // 100_000
    assert max(len(body["messages"][-1]["content"]) for _, _, body in endpoint.requests) < window


def test_a_model_that_cannot_be_asked_is_refused_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PolicyError, match="neither OPENAI_API_KEY nor OPENAI_BASE_URL"):
        ask_model("tiny")
    with pytest.raises(InvalidArgument, match="max_connections is at least 1"):
        ask_model("tiny", base_url="http://127.0.0.1:9", max_connections=0)
