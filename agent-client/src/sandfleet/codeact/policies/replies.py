"""What an endpoint's reply says, whatever shape its model's family gives it. Pure."""

import json
from dataclasses import dataclass
from typing import Any

from sandfleet.codeact.conversation import Call, Said, Tokens
from sandfleet.codeact.policies.errors import MalformedReply


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's words and calls, why it ended ("stop", "length", "tool_calls"), and which model answered."""

    said: Said
    finish: str = ""
    model: str = ""


def read(reply: dict[str, Any]) -> Reply:
    """Read a chat completion.

    Raises MalformedReply for what is none, and for a reply that the endpoint has withheld.
    """
    try:
        choice = reply["choices"][0]
        message, finish = choice["message"], str(choice.get("finish_reason") or "")
        calls = calls_of(message)
        content = message.get("content") if calls else message["content"]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise MalformedReply("cannot use the endpoint's reply: no choices[0].message.content in it") from error
    text = text_of(content) or text_of(message.get("refusal"))
    if finish == "content_filter" and not text.strip() and not calls:
        raise MalformedReply(
            "cannot use the endpoint's reply: its content was withheld (finish_reason 'content_filter')"
        )
    thought = text_of(message.get("reasoning_content") or message.get("reasoning"))
    model = reply.get("model")
    said = Said(text, calls, thought, tokens=tokens_of(reply.get("usage")))
    return Reply(said, finish, model if isinstance(model, str) else "")


def text_of(content: object) -> str:
    """The text of a content: a string, a list of parts, or nothing at all."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        part = content.get("text")
        return part if isinstance(part, str) else text_of(part)
    if isinstance(content, list):
        # A part of Mistral's that holds thinking has the type "thinking"; it is no text.
        parts = [
            part for part in content if not (isinstance(part, dict) and part.get("type") in {"thinking", "reasoning"})
        ]
        return "".join(text_of(part) for part in parts)
    return ""


def calls_of(message: dict[str, Any]) -> tuple[Call, ...]:
    """The calls of a message: `tool_calls`, or the older `function_call`."""
    listed = message.get("tool_calls")
    old = message.get("function_call")
    functions = (
        [(each.get("function"), each.get("id")) for each in listed if isinstance(each, dict)]
        if isinstance(listed, list)
        else []
    )
    if not functions and isinstance(old, dict):
        functions = [(old, "")]
    return tuple(
        Call(function["name"], _arguments(function.get("arguments")), made if isinstance(made, str) else "")
        for function, made in functions
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    )


def tokens_of(usage: object) -> Tokens:
    """The tokens that a reply has cost, as far as the endpoint says."""
    given = usage if isinstance(usage, dict) else {}
    counts = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return Tokens(*(count if isinstance(count, int) else 0 for count in counts))


def _arguments(value: object) -> str:
    # Some local endpoints give an object where the protocol says text.
    if isinstance(value, str):
        return value
    return json.dumps({} if value is None else value)
