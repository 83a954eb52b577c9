"""A table of replies in the shapes that models of each family give: replies.yaml."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sandfleet.codeact import (
    Action,
    Conversation,
    FinalAnswer,
    GiveUp,
    NoAction,
    RunCode,
    RunCommand,
    Step,
    Verdict,
)
from sandfleet.codeact.evidence import Evidence
from sandfleet.codeact.policies import history, protocol, replies, sse
from sandfleet.values.execution import Outcome

CORPUS = yaml.safe_load(Path(__file__).with_name("replies.yaml").read_text())


def completion(case: dict[str, Any]) -> dict[str, Any]:
    message = case["message"] if isinstance(case["message"], dict) else {"content": case["message"]}
    return {"choices": [{"message": message, "finish_reason": case.get("finish", "stop")}]}


def conversation(case: dict[str, Any]) -> Conversation:
    step = Step(1, RunCode("print(42)"), Verdict.OK, "[execution 1] ok", Evidence("id-1", Outcome.OK, stdout="42"))
    return Conversation("How many?", (step,), needs_evidence=not case.get("free"))


def parsed(case: dict[str, Any], reply: dict[str, Any]) -> Action:
    read = replies.read(reply)
    return protocol.parse(read.said, conversation(case), finish=read.finish)


def expected(expect: dict[str, Any]) -> Action | None:
    if "run" in expect:
        return RunCode(expect["run"], expect.get("language", "python"))
    if "command" in expect:
        return RunCommand(expect["command"])
    if "answer" in expect:
        return FinalAnswer(expect["answer"], expect["execution"])
    return GiveUp(expect["give_up"]) if "give_up" in expect else None


def shape(action: Action) -> Action:
    """An action without what is compared apart."""
    match action:
        case RunCode():
            return RunCode(action.code, action.language)
        case RunCommand():
            return RunCommand(action.command)
        case FinalAnswer():
            return FinalAnswer(action.value, action.execution_id)
        case GiveUp():
            return GiveUp(action.reason)
    return action


def check(action: Action, expect: dict[str, Any]) -> None:
    if "nothing" in expect:
        assert isinstance(action, NoAction)
        assert expect["nothing"] in action.reason
    else:
        assert shape(action) == expected(expect)
    if "intent" in expect:
        assert action.intent == expect["intent"]
    assert action.said is not None
    assert expect.get("remark", "") in action.said.remark
    assert bool(action.said.remark) == ("remark" in expect)


def test_the_corpus_is_large_and_names_each_reply_once() -> None:
    names = [case["name"] for case in CORPUS]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CORPUS, ids=[case["name"] for case in CORPUS])
def test_a_reply_means(case: dict[str, Any]) -> None:
    check(parsed(case, completion(case)), case["expect"])


def pieces(text: str | None, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text or ""), size)] if text else []


def streamed(message: dict[str, Any], finish: str, size: int) -> list[dict[str, Any]]:
    """The deltas of a message, as an endpoint streams them in pieces."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(message.get("reasoning_content"), size)]
    content = message.get("content")
    for text in [content] if isinstance(content, str) else []:
        deltas += [{"content": piece} for piece in pieces(text, size)]
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        deltas.append({"tool_calls": [{"index": index, "id": call.get("id"), "function": {"name": function["name"]}}]})
        for piece in pieces(function["arguments"], size):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]


STREAMABLE = [
    case
    for case in CORPUS
    if isinstance(case["message"], str)
    or (
        not isinstance(case["message"].get("content"), list)
        and not {"function_call", "refusal"} & set(case["message"])
        and all(isinstance(call["function"]["arguments"], str) for call in case["message"].get("tool_calls", []))
    )
]


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("case", STREAMABLE, ids=[case["name"] for case in STREAMABLE])
def test_a_reply_means_the_same_when_it_is_streamed(case: dict[str, Any], size: int) -> None:
    choice = completion(case)["choices"][0]
    assembly = sse.Assembly()
    for chunk in streamed(choice["message"], choice["finish_reason"], size):
        list(assembly.add(json.dumps(chunk)))
    assert assembly.is_whole
    check(parsed(case, assembly.reply()), case["expect"])


TEXTS = [case for case in CORPUS if isinstance(case["message"], str) and case["message"].strip()]


@pytest.mark.parametrize("case", TEXTS, ids=[case["name"] for case in TEXTS])
def test_the_history_shows_a_model_its_own_words_verbatim_without_its_thinking(case: dict[str, Any]) -> None:
    action = parsed(case, completion(case))
    step = Step(1, action, Verdict.FAILED, "[step 1] no")
    told = history.messages(Conversation("t", (step,)), history.Shape(thinking=True))
    assert told[2] == {"role": "assistant", "content": case["message"]}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<think>\nHm.\n</think>\n\nI count.\n```py\nx\n```", "I count.\n```py\nx\n```"),
        ("Hm.\n</think>\n\n```python\nx\n```\nGo.", "```python\nx\n```\nGo."),
        ("<think>\nHm.", "(thinking only)"),
        ("The `<think>` tag.\r\n```python\r\nx\r\n```", "The `<think>` tag.\r\n```python\r\nx\r\n```"),
    ],
)
def test_a_model_is_not_shown_its_thinking_again_unless_asked_for(said: str, shown: str) -> None:
    step = Step(1, protocol.parse(said, Conversation("t")), Verdict.OK, "[execution 1] ok")
    assert history.messages(Conversation("t", (step,)), history.Shape())[2]["content"] == shown
