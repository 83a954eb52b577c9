from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sandfleet.codeact import (
    Conversation,
    FinalAnswer,
    GiveUp,
    NoAction,
    PolicyError,
    RunCode,
    RunCommand,
    Step,
    Verdict,
)
from sandfleet.codeact.evidence import Evidence
from sandfleet.codeact.policies import history, protocol
from sandfleet.codeact.policies.http import (
    EndpointRefused,
    EndpointUnavailable,
    JsonClient,
    MalformedReply,
    Retries,
    retry_after,
)
from sandfleet.codeact.policies.openai import OpenAIPolicy
from sandfleet.values.execution import Outcome
from support.client.chat_endpoint import Endpoint

pytestmark = pytest.mark.process

TASK = Conversation("How many?")


def done(number: int, stdout: str = "42", code: str = "print(42)") -> Step:
    evidence = Evidence(f"id-{number}", Outcome.OK, stdout=stdout)
    return Step(
        number, RunCode(code, intent="count"), Verdict.OK, f"[execution {number}] ok\nstdout: {stdout}", evidence
    )


PARSED = [
    ("python", "I count.\n```python\nprint(1)\n```", RunCode("print(1)\n", "python", "I count.")),
    ("a fence without a language", "```\nprint(1)\n```", RunCode("print(1)\n")),
    ("a fence that is indented and never closed", "x\n  ```py\nprint(1)\n", RunCode("print(1)\n", "python", "x")),
    ("code with back-ticks inside a line", "```python\nprint('```')\n```", RunCode("print('```')\n")),
    ("two blocks, in order", "```python\na\n```\nthen\n```python\nb\n```", RunCode("a\n\nb\n")),
    ("a shell", "Look.\n```bash\nls -l\n```", RunCommand("ls -l", "Look.")),
    ("another language goes on under its name", "```julia\nx\n```", RunCode("x\n", "julia")),
    ("an answer", "Done.\nFINAL ANSWER (execution 1): 42", FinalAnswer("42", "id-1", intent="Done.")),
    ("an answer in bold", "**FINAL ANSWER (execution 1):** `42`", FinalAnswer("42", "id-1")),
    ("an answer on an execution that never was", "FINAL ANSWER (execution 9): 42", FinalAnswer("42", "execution 9")),
    ("code before an answer", "```python\nx\n```\nFINAL ANSWER (execution 1): 42", RunCode("x\n")),
    ("giving up", "GIVE UP: no data", GiveUp("no data")),
    ("an answer that names nothing", "FINAL ANSWER: 42", FinalAnswer("42", "")),
]


@pytest.mark.parametrize(("what", "reply", "action"), PARSED, ids=[case[0] for case in PARSED])
def test_what_a_reply_means(what: str, reply: str, action: object) -> None:
    assert protocol.parse(reply, Conversation("t", (done(1),))) == action


def test_a_conversation_becomes_messages_in_turn() -> None:
    messages = history.messages(Conversation("How many?", (done(1), done(2))), history.Shape(10_000))
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[1]["content"] == "Task: How many?"
    assert messages[2]["content"] == "count\n```python\nprint(42)\n```"
    assert messages[5]["content"] == "[execution 2] ok\nstdout: 42"


def test_the_oldest_steps_are_left_out_of_a_long_history_and_counted() -> None:
    steps = tuple(done(number, "x" * 1000) for number in range(1, 101))
    messages = history.messages(Conversation("t", steps), history.Shape(5000))
    assert sum(len(message["content"]) for message in messages[2:]) <= 5000
    assert "[execution 100]" in messages[-1]["content"]
    left_out = 100 - (len(messages) - 2) // 2
    assert f"[{left_out} earlier steps are left out here.]" in messages[1]["content"]


def test_one_huge_step_is_cut_to_the_budget() -> None:
    messages = history.messages(Conversation("t", (done(1, "x" * 100_000, "y" * 100_000),)), history.Shape(4000))
    assert len(messages) == 4
    assert sum(len(message["content"]) for message in messages[2:]) < 4500


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (RunCommand(("ls", "-l")), "```bash\nls -l\n```"),
        (FinalAnswer((1, 2), "e"), "FINAL ANSWER: 1; 2"),
        (GiveUp("why"), "GIVE UP: why"),
    ],
)
def test_every_action_can_be_told_again(action: object, text: str) -> None:
    step = Step(1, action, Verdict.FAILED, "no")
    assert history.messages(Conversation("t", (step,)), history.Shape(1000))[2]["content"] == text


NOW = datetime(2025, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", None),
        ("Wed, 01 Jan 2025 12:00:30 GMT", 30.0),
        ("Wed, 01 Jan 2025 11:00:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
        (None, None),
    ],
)
def test_a_retry_after_is_read(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Endpoint() as server:
        yield server


class Waits(list[float]):
    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


def policy(endpoint: Endpoint, waits: Waits | None = None, **options: object) -> OpenAIPolicy:
    retries = Retries(attempts=3, first_wait=1.0, longest_wait=20.0, timeout=10.0)
    client = JsonClient(2, retries, (waits if waits is not None else Waits()).sleep, lambda: 1.0)
    return OpenAIPolicy("tiny", base_url=endpoint.url, client=client, **options)


async def test_a_model_is_asked_as_the_protocol_says(endpoint: Endpoint) -> None:
    endpoint.say("I count.\n```python\nprint(42)\n```")
    action = await policy(endpoint, key="secret", options={"temperature": 0})(TASK)
    assert action == RunCode("print(42)\n", "python", "I count.")
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], body["temperature"], body["stream"]) == ("tiny", 0, False)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


async def test_a_local_endpoint_needs_no_key(endpoint: Endpoint) -> None:
    endpoint.say("GIVE UP: x")
    await policy(endpoint)(TASK)
    assert "Authorization" not in endpoint.requests[0][1]


async def test_base_url_and_key_come_from_the_environment(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url + "/")
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    endpoint.say("GIVE UP: x")
    await OpenAIPolicy("tiny")(TASK)
    assert endpoint.requests[0][0] == "/v1/chat/completions"
    assert endpoint.requests[0][1]["Authorization"] == "Bearer from-env"


async def test_a_busy_endpoint_is_asked_again_when_it_says(endpoint: Endpoint) -> None:
    endpoint.refuse(429, Retry_After="7")
    endpoint.refuse(503)
    endpoint.say("GIVE UP: x")
    waits = Waits()
    assert await policy(endpoint, waits)(TASK) == GiveUp("x")
    assert waits == [7.0, 2.0]


async def test_retries_are_bounded(endpoint: Endpoint) -> None:
    for _ in range(3):
        endpoint.refuse(500, "overloaded")
    with pytest.raises(EndpointUnavailable, match="answered 500: overloaded") as caught:
        await policy(endpoint)(TASK)
    assert (caught.value.status, len(endpoint.requests)) == (500, 3)


async def test_a_wait_of_an_hour_is_not_waited_for(endpoint: Endpoint) -> None:
    endpoint.refuse(429, "quota", Retry_After="3600")
    waits = Waits()
    with pytest.raises(EndpointUnavailable, match="quota"):
        await policy(endpoint, waits)(TASK)
    assert waits == []


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_refusal_is_not_repeated(endpoint: Endpoint, status: int) -> None:
    endpoint.refuse(status, "no such model")
    with pytest.raises(EndpointRefused, match=f"answered {status}: no such model"):
        await policy(endpoint)(TASK)
    assert len(endpoint.requests) == 1


async def test_a_redirect_does_not_carry_the_key_away(endpoint: Endpoint) -> None:
    endpoint.refuse(302, Location=f"{endpoint.url}/elsewhere")
    with pytest.raises(EndpointRefused, match="302"):
        await policy(endpoint, key="secret")(TASK)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", r"no choices\[0\]"),
        (b'{"choices": []}', r"no choices\[0\]"),
        (b'{"choices": [{"message": {"content": null}, "finish_reason": "content_filter"}]}', "content_filter"),
        (b" " * (8 * 1024 * 1024 + 1), "larger than"),
    ],
)
async def test_a_malformed_reply_is_named(endpoint: Endpoint, body: bytes, why: str) -> None:
    endpoint.replies.append((200, {}, body))
    with pytest.raises(MalformedReply, match=why):
        await policy(endpoint)(TASK)


async def test_code_that_was_cut_off_is_not_run_and_the_model_is_told(endpoint: Endpoint) -> None:
    endpoint.say("```python\nfor x in", "length")
    action = await policy(endpoint)(TASK)
    assert isinstance(action, NoAction)
    assert "cut off" in action.reason
    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_is_not_there_is_tried_and_named() -> None:
    waits = Waits()
    client = JsonClient(1, Retries(attempts=2), waits.sleep)
    with pytest.raises(EndpointUnavailable, match="cannot reach"):
        await OpenAIPolicy("tiny", base_url="http://127.0.0.1:9", key="", client=client)(TASK)
    assert len(waits) == 1


@pytest.mark.parametrize("url", ["ftp://host/v1", "localhost:8000", "file:///etc/passwd", "http://"])
def test_a_base_url_that_is_no_web_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(PolicyError, match="no http or https URL"):
        OpenAIPolicy("tiny", base_url=url)


def test_no_key_for_the_public_endpoint_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(PolicyError, match="neither OPENAI_API_KEY nor OPENAI_BASE_URL"):
        OpenAIPolicy("tiny")


def test_the_key_is_not_shown(endpoint: Endpoint) -> None:
    shown = policy(endpoint, key="secret")
    assert "secret" not in repr(shown) + shown.summary
