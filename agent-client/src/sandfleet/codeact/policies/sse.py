"""A streamed reply: its events become tokens for the screen and, at the end, an unstreamed reply. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandfleet.codeact.policies.errors import MalformedReply, error_in
from sandfleet.codeact.policies.replies import text_of

# Bytes of one event, and calls of one reply.
LARGEST_EVENT = 1024 * 1024
_MOST_CALLS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a reply as it arrives.

    kind is "text", "thinking" (where the endpoint hands it over apart), "call" (a piece of a function's arguments), or
    "again": the connection was lost and the reply begins anew.
    """

    text: str
    kind: str = "text"


@dataclass(slots=True)
class Assembly:
    """Puts the pieces of one reply together."""

    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    # By the index that the endpoint gives a call.
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish: str = ""
    model: str = ""
    usage: dict[str, Any] | None = None
    done: bool = False

    def add(self, data: str) -> Iterator[Token]:
        """Take the data of one event; yields what it has for the screen. Raises EndpointError."""
        if data.strip() == "[DONE]":
            self.done = True
            return
        chunk = _decoded(data)
        if (error := error_in(chunk)) is not None:
            raise error
        self.usage = chunk["usage"] if isinstance(chunk.get("usage"), dict) else self.usage
        self.model = chunk["model"] if isinstance(chunk.get("model"), str) else self.model
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self.finish = str(choices[0].get("finish_reason") or self.finish)
            delta = choices[0].get("delta")
            yield from self._delta(delta if isinstance(delta, dict) else {})

    @property
    def is_whole(self) -> bool:
        """Whether the endpoint has ended the reply; otherwise the connection was lost."""
        return self.done or bool(self.finish)

    def reply(self) -> dict[str, Any]:
        """The reply, in the shape of an unstreamed reply."""
        message = {
            "role": "assistant",
            "content": "".join(self.text),
            "reasoning_content": "".join(self.thinking),
            "tool_calls": [self.calls[index] for index in sorted(self.calls)],
        }
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {"choices": [choice], "usage": self.usage, "model": self.model}

    def _delta(self, delta: dict[str, Any]) -> Iterator[Token]:
        for kind, pieces, piece in (
            ("thinking", self.thinking, text_of(delta.get("reasoning_content") or delta.get("reasoning"))),
            ("text", self.text, text_of(delta.get("content") or delta.get("refusal"))),
        ):
            if piece:
                pieces.append(piece)
                yield Token(piece, kind)
        listed = delta.get("tool_calls")
        for position, piece in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(piece, dict):
                yield from self._call(piece, position)

    def _call(self, piece: dict[str, Any], position: int) -> Iterator[Token]:
        index = piece.get("index")
        index = index if isinstance(index, int) else position
        if len(self.calls) >= _MOST_CALLS and index not in self.calls:
            return
        call = self.calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        given_function = piece.get("function")
        function = given_function if isinstance(given_function, dict) else {}
        call["id"] = piece.get("id") or call["id"]
        call["function"]["name"] = function.get("name") or call["function"]["name"]
        given = function.get("arguments")
        text = given if isinstance(given, str) else json.dumps(given) if given else ""
        call["function"]["arguments"] += text
        if text:
            yield Token(text, "call")


def _decoded(data: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MalformedReply(f"cannot use the endpoint's reply: an event of it is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedReply("cannot use the endpoint's reply: an event of it is no JSON object")
    return value
