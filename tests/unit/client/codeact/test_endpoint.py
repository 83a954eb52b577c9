"""A model's endpoint: calls of functions, streams, pictures, and the ways in which it fails."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import pytest
from sandfleet.codeact import (
    Call,
    Conversation,
    FinalAnswer,
    GiveUp,
    Image,
    NoAction,
    RunCode,
    RunCommand,
    Said,
    Step,
    Tokens,
    Verdict,
)
from sandfleet.codeact.conversation import PolicyError
from sandfleet.codeact.evidence import Evidence
from sandfleet.codeact.policies import chat
from sandfleet.codeact.policies.errors import refusal, waits
from sandfleet.codeact.policies.http import (
    ContextTooLong,
    EndpointRefused,
    EndpointUnavailable,
    JsonClient,
    MalformedReply,
    Retries,
)
from sandfleet.codeact.policies.openai import OpenAIPolicy
from sandfleet.codeact.policies.sse import Token
from sandfleet.values.execution import Outcome
from support.client.chat_endpoint import Endpoint

pytestmark = pytest.mark.process

TASK = Conversation("How many?")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Endpoint() as server:
        yield server


class Waits(list[float]):
    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


def policy(endpoint: Endpoint, waited: Waits | None = None, **options: Any) -> OpenAIPolicy:
    retries = Retries(attempts=3, first_wait=1.0, longest_wait=20.0, timeout=10.0)
    sleep = (waited if waited is not None else Waits()).sleep
    client = JsonClient(2, retries, sleep, lambda: 1.0)
    return OpenAIPolicy("tiny", base_url=endpoint.url, client=client, **options)


def sent(endpoint: Endpoint) -> list[dict[str, Any]]:
    return endpoint.requests[-1][2]["messages"]


# --- Functions ---


async def test_a_model_that_calls_functions_is_offered_them_and_told_so(endpoint: Endpoint) -> None:
    endpoint.say(None, calls=(("run_code", {"code": "print(42)", "language": "python"}),))
    action = await policy(endpoint, tools=True)(TASK)
    assert action == RunCode("print(42)")
    body = endpoint.requests[0][2]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["run_code", "final_answer", "give_up"]
    assert "call exactly one function" in sent(endpoint)[0]["content"]
    assert "```" not in sent(endpoint)[0]["content"]


async def test_without_the_option_no_function_is_offered(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint)(TASK)
    assert "tools" not in endpoint.requests[0][2]


async def test_a_model_that_is_offered_functions_may_still_write_a_fence(endpoint: Endpoint) -> None:
    endpoint.say("```bash\nls\n```")
    assert await policy(endpoint, tools=True)(TASK) == RunCommand("ls")


async def test_a_call_and_its_observation_are_told_again_as_the_protocol_says(endpoint: Endpoint) -> None:
    endpoint.say("I count.", calls=(("run_code", {"code": "a = 1"}), ("run_code", {"code": "print(a)"})))
    endpoint.say(None, calls=(("final_answer", {"answer": "1", "execution": 1}),))
    asked = policy(endpoint, tools=True)
    action = await asked(TASK)
    step = Step(1, action, Verdict.OK, "[execution 1] ok\nstdout: 1", Evidence("id-1", Outcome.OK, stdout="1"))
    assert await asked(Conversation("How many?", (step,))) == FinalAnswer("1", "id-1")
    assistant, first, second = sent(endpoint)[2:]
    assert assistant["content"] == "I count."
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"code": "a = 1"}',
        '{"code": "print(a)"}',
    ]
    assert first == {"role": "tool", "tool_call_id": "call_0", "content": "[execution 1] ok\nstdout: 1"}
    assert (second["role"], second["tool_call_id"]) == ("tool", "call_1")


async def test_calls_are_told_as_fences_to_a_model_that_was_offered_none(endpoint: Endpoint) -> None:
    endpoint.say(None, calls=(("run_code", {"code": "print(1)"}),))
    endpoint.say("GIVE UP: x")
    asked = policy(endpoint)
    step = Step(1, await asked(TASK), Verdict.OK, "[execution 1] ok", Evidence("id-1", Outcome.OK))
    await asked(Conversation("t", (step,)))
    assert sent(endpoint)[2] == {"role": "assistant", "content": "```python\nprint(1)\n```"}


async def test_a_huge_call_is_cut_inside_of_its_texts_and_stays_json(endpoint: Endpoint) -> None:
    endpoint.say(None, calls=(("run_code", {"code": "x = '" + "y" * 50_000 + "'"}),))
    endpoint.say("GIVE UP: x")
    asked = policy(endpoint, tools=True, history=4000)
    step = Step(1, await asked(TASK), Verdict.OK, "[execution 1] ok", Evidence("id-1", Outcome.OK))
    await asked(Conversation("t", (step,)))
    arguments = sent(endpoint)[2]["tool_calls"][0]["function"]["arguments"]
    assert len(arguments) < 2500
    assert "characters" in json.loads(arguments)["code"]


async def test_a_call_with_broken_arguments_is_told_again_as_json(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    said = Said("", (Call("run_code", "{code: 1"),))
    step = Step(1, NoAction("no JSON", said=said), Verdict.FAILED, "[step 1] NOTHING WAS RUN: no JSON")
    await policy(endpoint, tools=True)(Conversation("t", (step,)))
    call = sent(endpoint)[2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"malformed": "{code: 1"}
    # The strictest endpoint wants nine letters and digits.
    assert call["id"] == sent(endpoint)[3]["tool_call_id"] == "c00000100"


# --- Streams ---


async def test_tokens_are_shown_as_they_arrive(endpoint: Endpoint) -> None:
    endpoint.say("I count.\n```python\nprint(42)\n```", thinking="Let me see")
    shown: list[Token] = []
    action = await policy(endpoint, on_token=shown.append)(TASK)
    assert action == RunCode("print(42)\n", "python", "I count.")
    assert "".join(token.text for token in shown if token.kind == "text") == "I count.\n```python\nprint(42)\n```"
    assert "".join(token.text for token in shown if token.kind == "thinking").strip() == "Let me see"
    assert len(shown) > 5
    body = endpoint.requests[0][2]
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize("on_token", [None, lambda _token: None], ids=["in one piece", "streamed"])
async def test_the_tokens_of_a_reply_are_counted(endpoint: Endpoint, on_token: Any) -> None:
    endpoint.say("GIVE UP: x")
    action = await policy(endpoint, on_token=on_token)(TASK)
    assert action.said is not None
    assert action.said.tokens == Tokens(10, 5)


async def test_a_call_is_streamed(endpoint: Endpoint) -> None:
    endpoint.say(None, calls=(("run_code", {"code": "print('ü')", "language": "python"}),))
    shown: list[Token] = []
    assert await policy(endpoint, tools=True, on_token=shown.append)(TASK) == RunCode("print('ü')")
    assert json.loads("".join(token.text for token in shown if token.kind == "call"))["code"] == "print('ü')"


async def test_a_stream_that_is_lost_is_begun_anew_and_the_screen_says_so(endpoint: Endpoint) -> None:
    endpoint.say("```python\nprint(41)\n```", lost_after=4)
    endpoint.say("```python\nprint(42)\n```")
    shown: list[Token] = []
    waited = Waits()
    assert await policy(endpoint, waited, on_token=shown.append)(TASK) == RunCode("print(42)\n")
    assert [token.kind for token in shown].count("again") == 1
    assert len(waited) == 1


async def test_a_stream_that_is_always_lost_is_an_error(endpoint: Endpoint) -> None:
    for _ in range(3):
        endpoint.say("```python\nprint(41)\n```", lost_after=3)
    with pytest.raises(EndpointUnavailable, match="cannot reach"):
        await policy(endpoint, on_token=lambda _token: None)(TASK)


async def test_an_endpoint_that_does_not_stream_is_shown_at_once(endpoint: Endpoint) -> None:
    reply = {"choices": [{"message": {"content": "GIVE UP: x"}, "finish_reason": "stop"}]}
    endpoint.replies.append((200, {"Content-Type": "application/json"}, json.dumps(reply).encode()))
    shown: list[Token] = []
    assert await policy(endpoint, on_token=shown.append)(TASK) == GiveUp("x")
    assert shown == [Token("GIVE UP: x")]


async def test_what_the_callback_raises_is_raised_by_the_run(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")

    def fail(_token: Token) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await policy(endpoint, on_token=fail)(TASK)


async def test_an_error_in_the_middle_of_a_stream_is_the_endpoints(endpoint: Endpoint) -> None:
    body = b'data: {"choices": [{"delta": {"content": "I"}}]}\n\ndata: {"error": {"message": "overloaded", "code": 400}}\n\n'
    endpoint.replies.append((200, {"Content-Type": "text/event-stream"}, body))
    with pytest.raises(EndpointRefused, match="overloaded"):
        await policy(endpoint, on_token=lambda _token: None)(TASK)


async def test_an_event_that_is_no_json_is_named(endpoint: Endpoint) -> None:
    endpoint.replies.append((200, {"Content-Type": "text/event-stream"}, b"data: {nope\n\n"))
    with pytest.raises(MalformedReply, match="an event of it is no JSON"):
        await policy(endpoint, on_token=lambda _token: None)(TASK)


# --- Pictures, instructions, thinking ---


def plotted(number: int, *sizes: int) -> Step:
    images = tuple(Image("image/png", bytes([number]) * size) for size in sizes)
    evidence = Evidence(f"id-{number}", Outcome.OK, images=images)
    return Step(number, RunCode("plot"), Verdict.OK, f"[execution {number}] ok", evidence)


def pictures(messages: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    parts = [
        (index, part["image_url"]["url"])
        for index, message in enumerate(messages)
        for part in (message["content"] if isinstance(message["content"], list) else [])
        if part["type"] == "image_url"
    ]
    return [(index, base64.b64decode(url.removeprefix("data:image/png;base64,"))) for index, url in parts]


async def test_the_newest_plots_are_shown_to_a_model_that_sees(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint, images=2)(Conversation("t", (plotted(1, 10), plotted(2, 10), plotted(3, 10))))
    assert pictures(sent(endpoint)) == [(5, b"\2" * 10), (7, b"\3" * 10)]
    assert sent(endpoint)[5]["content"][0] == {"type": "text", "text": "[execution 2] ok"}
    assert sent(endpoint)[3]["content"] == "[execution 1] ok"


async def test_no_picture_is_shown_without_the_option(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint)(Conversation("t", (plotted(1, 10),)))
    assert pictures(sent(endpoint)) == []


async def test_a_plot_that_is_too_large_is_named_and_not_sent(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint, images=2)(Conversation("t", (plotted(1, 3 * 1024 * 1024, 10),)))
    assert pictures(sent(endpoint)) == [(3, b"\1" * 10)]
    assert "1 of the plots not shown: larger than 2,097,152 bytes" in sent(endpoint)[3]["content"][0]["text"]


async def test_a_picture_of_a_called_function_follows_its_observation(endpoint: Endpoint) -> None:
    endpoint.say(None, calls=(("run_code", {"code": "plot"}),))
    endpoint.say("GIVE UP: x")
    asked = policy(endpoint, tools=True, images=1)
    action = await asked(TASK)
    evidence = Evidence("id-1", Outcome.OK, images=(Image("image/png", b"\1"),))
    await asked(Conversation("t", (Step(1, action, Verdict.OK, "[execution 1] ok", evidence),)))
    assert [message["role"] for message in sent(endpoint)[2:]] == ["assistant", "tool", "user"]
    assert pictures(sent(endpoint)) == [(4, b"\1")]


async def test_own_instructions_end_the_system_prompt(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint, instructions="Answer in euros. {braces}")(TASK)
    assert sent(endpoint)[0]["content"].endswith("\nAnswer in euros. {braces}\n")


async def test_a_model_whose_answers_are_judged_is_not_told_of_evidence(endpoint: Endpoint) -> None:
    endpoint.say("FINAL ANSWER: a poem\n\nof two parts")
    assert await policy(endpoint)(Conversation("t", needs_evidence=False)) == FinalAnswer("a poem\n\nof two parts")
    assert "FINAL ANSWER: text" in sent(endpoint)[0]["content"]
    assert "An answer is checked" not in sent(endpoint)[0]["content"]


async def test_thinking_is_sent_back_only_where_it_is_asked_for(endpoint: Endpoint) -> None:
    action = RunCode("x", said=Said("```python\nx\n```", reasoning="Hm."))
    conversation = Conversation("t", (Step(1, action, Verdict.OK, "[execution 1] ok"),))
    for thinking in (False, True):
        endpoint.say("GIVE UP: x")
        await policy(endpoint, thinking=thinking)(conversation)
        assert sent(endpoint)[2].get("reasoning_content") == ("Hm." if thinking else None)


async def test_a_lone_surrogate_is_not_sent_to_an_endpoint(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint)(Conversation("count \ud800"))
    assert sent(endpoint)[1]["content"] == "Task: count \\ud800"


# --- Failures ---


@pytest.mark.parametrize(
    ("status", "message", "code", "kind", "words"),
    [
        (401, "bad key", None, EndpointRefused, "Check the key"),
        (404, "no model", None, EndpointRefused, "Check the model's name and base_url"),
        (400, "This model's maximum context length is 8192 tokens", None, ContextTooLong, "`history`"),
        (400, "too much", "context_length_exceeded", ContextTooLong, "`history`"),
        (400, "prompt is too long: 300000 tokens > 200000 maximum", None, ContextTooLong, "`history`"),
        (429, "You exceeded your quota", "insufficient_quota", EndpointRefused, "quota"),
    ],
)
async def test_a_refusal_says_what_to_do(
    endpoint: Endpoint, status: int, message: str, code: str | None, kind: type[EndpointRefused], words: str
) -> None:
    endpoint.refuse(status, message, code)
    with pytest.raises(kind) as caught:
        await policy(endpoint)(TASK)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert caught.value.status == status
    assert len(endpoint.requests) == 1


async def test_a_wait_that_is_too_long_is_named_with_its_limit(endpoint: Endpoint) -> None:
    endpoint.refuse(429, "quota", Retry_After="3600")
    with pytest.raises(EndpointUnavailable, match=r"asks to wait 3,600 s, and 20 s is the longest wait"):
        await policy(endpoint)(TASK)


async def test_an_endpoint_that_says_not_to_try_again_is_not_tried_again(endpoint: Endpoint) -> None:
    endpoint.refuse(503, "down for good", x_should_retry="false")
    with pytest.raises(EndpointRefused, match="down for good"):
        await policy(endpoint)(TASK)


async def test_a_gateways_error_with_status_200_is_an_error(endpoint: Endpoint) -> None:
    endpoint.replies.append((200, {}, b'{"error": {"message": "provider is down", "code": 503}}'))
    endpoint.replies.append((200, {}, b'{"error": {"message": "no credits", "code": 402}}'))
    with pytest.raises(EndpointRefused, match="402: no credits"):
        await policy(endpoint)(TASK)
    assert len(endpoint.requests) == 2


def test_a_wait_is_read_from_milliseconds_first() -> None:
    assert waits({"retry-after-ms": "1500", "retry-after": "2"}, None) == 1.5  # type: ignore[arg-type]


def test_an_error_that_is_a_bare_text_is_shown() -> None:
    assert "nope" in str(refusal(400, b'{"error": "nope"}', {}))


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "…"])
def test_a_key_that_no_header_can_hold_is_refused_at_once(endpoint: Endpoint, key: str) -> None:
    with pytest.raises(EndpointRefused, match="key"):
        policy(endpoint, key=key)


async def test_white_space_around_a_key_is_left_out(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint, key=" secret\n")(TASK)
    assert endpoint.requests[0][1]["Authorization"] == "Bearer secret"


class Silent:
    """An endpoint that never answers, and knows how many connections it has."""

    def __init__(self) -> None:
        self.open = 0
        self.changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.has(0)
        self.server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.count(1)
        await reader.read()
        writer.close()
        await self.count(-1)

    async def count(self, more: int) -> None:
        async with self.changed:
            self.open += more
            self.changed.notify_all()

    async def has(self, count: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: self.open == count), 60)


async def test_a_request_that_is_given_up_closes_its_connection() -> None:
    async with Silent() as silent:
        asked = OpenAIPolicy("tiny", base_url=silent.url, client=JsonClient(2))
        asking = [asyncio.create_task(asked(TASK)) for _ in range(2)]
        await silent.has(2)
        for request in asking:
            request.cancel()
        await silent.has(0)
        await asyncio.wait(asking)


async def test_connections_are_bounded(endpoint: Endpoint) -> None:
    """Each request is held until a third one comes, which comes at once without a bound, and else for a moment."""
    third, lock, active, seen = threading.Event(), threading.Lock(), set[int](), list[int]()

    def answer(_body: dict[str, Any]) -> str:
        with lock:
            active.add(threading.get_ident())
            seen.append(len(active))
        if len(active) > 2:
            third.set()
        third.wait(0.5)
        with lock:
            active.remove(threading.get_ident())
        return "GIVE UP: x"

    endpoint.answers = answer
    asked = OpenAIPolicy("tiny", base_url=endpoint.url, client=JsonClient(2))
    assert await asyncio.gather(*(asked(TASK) for _ in range(4))) == [GiveUp("x")] * 4
    assert max(seen) == 2


def test_one_policy_serves_one_event_loop_after_another(endpoint: Endpoint) -> None:
    asked = OpenAIPolicy("tiny", base_url=endpoint.url, max_connections=1)

    async def twice() -> list[object]:
        return list(await asyncio.gather(asked(TASK), asked(TASK)))

    for _ in range(2):
        endpoint.say("GIVE UP: x")
        endpoint.say("GIVE UP: x")
        assert asyncio.run(twice()) == [GiveUp("x")] * 2


async def test_a_silent_endpoint_is_named(endpoint: Endpoint) -> None:
    async with Silent() as silent:
        client = JsonClient(1, Retries(attempts=1, timeout=0.05))
        with pytest.raises(EndpointUnavailable, match=r"endpoint: it was silent for 0\.05 s"):
            await OpenAIPolicy("tiny", base_url=silent.url, client=client)(TASK)


def test_without_the_extra_a_policy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "find_spec", lambda _name: None)
    with pytest.raises(PolicyError, match=r"sandfleet\[agents\]"):
        OpenAIPolicy("tiny", base_url="http://127.0.0.1:9")


def test_two_actions_that_do_the_same_are_equal_whatever_was_said() -> None:
    assert GiveUp("x", said=Said("y")) == GiveUp("x")


@pytest.mark.parametrize(("tools", "hint"), [(False, "write a ```python or a ```bash block"), (True, "Call run_code")])
async def test_a_reply_without_an_action_is_answered_in_the_protocol_that_was_agreed_on(
    endpoint: Endpoint, tools: bool, hint: str
) -> None:
    endpoint.say("I think so.")
    action = await policy(endpoint, tools=tools)(TASK)
    assert isinstance(action, NoAction)
    assert hint in action.reason


async def test_an_option_may_leave_out_what_would_be_sent(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint, on_token=lambda _token: None, options={"stream_options": None})(TASK)
    assert "stream_options" not in endpoint.requests[0][2]
    assert endpoint.requests[0][2]["stream"] is True


async def test_an_option_cannot_replace_the_conversation(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint, options={"messages": [], "model": "other", "stream": True})(TASK)
    assert (endpoint.requests[0][2]["model"], endpoint.requests[0][2]["stream"]) == ("tiny", False)
    assert len(sent(endpoint)) == 2


async def test_a_base_url_that_names_the_whole_path_is_understood(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/chat/completions")
    endpoint.say("GIVE UP: x")
    await OpenAIPolicy("tiny")(TASK)
    assert endpoint.requests[0][0] == "/v1/chat/completions"


async def test_an_observation_beside_a_picture_counts_for_the_history(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    steps = tuple(replace(plotted(number, 10), observation="x" * 3000) for number in range(1, 6))
    await policy(endpoint, images=9, history=8000)(Conversation("t", steps))
    assert len(sent(endpoint)) == 2 + 2 * 2
