"""A conversation as a chat: system prompt, task, and the model's own words with what came of them. Pure."""

import base64
import json
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from sandfleet.codeact.conversation import (
    Call,
    Conversation,
    FinalAnswer,
    GiveUp,
    NoAction,
    RunCode,
    RunCommand,
    Said,
    Step,
)
from sandfleet.codeact.evidence import Image
from sandfleet.codeact.observe import cut
from sandfleet.codeact.policies import blocks, calls, prompts


class Message(TypedDict):
    """A message as an OpenAI-compatible endpoint wants it."""

    role: str
    content: str | list[dict[str, Any]] | None
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]
    reasoning_content: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a conversation is told to a model.

    budget        characters of steps; the oldest are left out first.
    tools         the model calls functions. instructions: the user's own.
    thinking      show the model its own thinking as well; most vendors say not to.
    images        how many plots, the newest, are shown as pictures. largest_image: bytes of one; larger ones are only
                  named.
    """

    budget: int = 60_000
    tools: bool = False
    instructions: str = ""
    thinking: bool = False
    images: int = 0
    largest_image: int = 2 * 1024 * 1024


def messages(conversation: Conversation, shape: Shape) -> list[Message]:
    """The messages: system prompt, task, and the newest steps that fit."""
    newest: list[list[Message]] = []
    used = 0
    images = shape.images
    for step in reversed(conversation.steps):
        turn = _turn(step, shape, images)
        used += sum(_size(message) for message in turn)
        if newest and used > shape.budget:
            break
        images -= sum(len(_parts(message)) for message in turn)
        newest.insert(0, turn)
    left_out = len(conversation.steps) - len(newest)
    note = f"\n\n[{left_out} earlier steps are left out here.]" if left_out else ""
    prompt = prompts.system(
        tools=shape.tools,
        needs_evidence=conversation.needs_evidence,
        instructions=shape.instructions,
        stubs=conversation.tools,
        skills=conversation.skills,
    )
    task = Message(role="user", content=f"Task: {conversation.task}{note}")
    return [Message(role="system", content=prompt), task, *(message for turn in newest for message in turn)]


def _size(message: Message) -> int:
    content = message["content"]
    called = sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    return called + sum(len(text) for text in texts)


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    return [part for part in content if part["type"] == "image_url"] if isinstance(content, list) else []


def _turn(step: Step, shape: Shape, images: int) -> list[Message]:
    limit = shape.budget // 2
    seen, too_large = _images(step, shape, images)
    observation = cut(step.observation, limit) + too_large
    said = step.action.said
    if said is not None and said.calls and shape.tools:
        turn = [_calling(step, said, limit, shape), *_answered(step, said, observation)]
        # A function's answer is text; pictures go into a message of their own.
        return turn + ([Message(role="user", content=_content("What it has shown:", seen))] if seen else [])
    own = Message(role="assistant", content=cut(_own_words(step, limit, shape), limit))
    return [_with_thinking(own, said, shape), Message(role="user", content=_content(observation, seen))]


def _own_words(step: Step, limit: int, shape: Shape) -> str:
    said = step.action.said
    if said is not None and said.text.strip() and not said.calls:
        text = said.text if shape.thinking else blocks.without_thinking(said.text)
        # An endpoint wants an assistant's message to say something.
        return text if text.strip() else "(thinking only)"
    return "\n".join(part for part in (step.intent, _written(step, limit)) if part) or "(nothing)"


def _with_thinking(message: Message, said: Said | None, shape: Shape) -> Message:
    if shape.thinking and said is not None and said.reasoning:
        message["reasoning_content"] = said.reasoning
    return message


def _calling(step: Step, said: Said, limit: int, shape: Shape) -> Message:
    text = said.text if shape.thinking else blocks.without_thinking(said.text)
    made = [
        {
            "id": _id(call, step, n),
            "type": "function",
            "function": {"name": call.name, "arguments": _within(call, limit)},
        }
        for n, call in enumerate(said.calls)
    ]
    message = Message(role="assistant", content=cut(text, limit) or None, tool_calls=made)
    return _with_thinking(message, said, shape)


def _answered(step: Step, said: Said, observation: str) -> list[Message]:
    """One message for each call: an endpoint refuses a call that was not answered."""
    contents = [observation, *["(see the observation of the first call)"] * (len(said.calls) - 1)]
    return [
        Message(role="tool", tool_call_id=_id(call, step, n), content=content)
        for n, (call, content) in enumerate(zip(said.calls, contents, strict=True))
    ]


def _id(call: Call, step: Step, index: int) -> str:
    # Nine letters and digits, which is what the strictest endpoint takes.
    return call.id or f"c{step.number:06}{index:02}"


def _within(call: Call, limit: int) -> str:
    """The arguments as the model wrote them. Where they are too long, their texts are cut, so that they stay JSON."""
    given = calls.arguments(call)
    if given is not None and len(call.arguments) <= limit:
        try:
            json.loads(call.arguments)
        except ValueError:
            return json.dumps(given)
        return call.arguments
    if given is None:
        return json.dumps({"malformed": cut(call.arguments, limit)})
    return json.dumps({name: cut(value, limit) if isinstance(value, str) else value for name, value in given.items()})


def _images(step: Step, shape: Shape, most: int) -> tuple[list[Image], str]:
    shown = step.evidence.images if step.evidence is not None and shape.images else ()
    small = [image for image in shown if len(image.data) <= shape.largest_image]
    large = len(shown) - len(small)
    note = (
        f"\n({large} of the plots not shown: larger than {shape.largest_image:,} bytes. Save them smaller.)"
        if large
        else ""
    )
    return small[-most:] if most > 0 else [], note


def _content(text: str, images: list[Image]) -> str | list[dict[str, Any]]:
    if not images:
        return text
    urls = [f"data:{image.mime};base64,{base64.b64encode(image.data).decode()}" for image in images]
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def _written(step: Step, limit: int) -> str:
    match step.action:
        case RunCode(code=code, language=language):
            return f"```{language}\n{cut(code.rstrip(), limit)}\n```"
        case RunCommand(command=command):
            line = command if isinstance(command, str) else " ".join(command)
            return f"```bash\n{cut(line, limit)}\n```"
        case FinalAnswer() as answer:
            return f"FINAL ANSWER: {'; '.join(str(value) for value in answer.values)}"
        case GiveUp(reason=reason):
            return f"GIVE UP: {reason}"
        case NoAction():
            return ""
