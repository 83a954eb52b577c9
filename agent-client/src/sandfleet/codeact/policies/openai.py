"""A policy that asks a model behind any OpenAI-compatible chat endpoint (`POST {base_url}/chat/completions`).

The base URL comes from OPENAI_BASE_URL, the key from OPENAI_API_KEY. Only the standard library is used.
"""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from sandfleet.codeact import tracing
from sandfleet.codeact.conversation import Action, Conversation, PolicyError
from sandfleet.codeact.observe import encodable
from sandfleet.codeact.policies import calls, history, protocol, replies
from sandfleet.codeact.policies.http import EndpointRefused, JsonClient, OnToken, Retries
from sandfleet.codeact.policies.threads import DaemonThreads
from sandfleet.observe.tracing import Recorder

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIPolicy:
    """Asks a model for each action. One object serves any number of runs at the same time.

    model            as the endpoint calls it.
    base_url, key    None means OPENAI_BASE_URL and OPENAI_API_KEY; a local endpoint may need no key.
    tools            the model calls functions (`run_code`, `final_answer`) instead of writing fences. Both are
                     understood always.
    instructions     the user's own, added to the system prompt.
    on_token         called with each `Token` of a reply as it arrives; the reply is streamed then.
    images           how many plots, the newest, a model that sees is shown as pictures.
    history          characters of earlier steps that a model is shown; the oldest are left out first.
    thinking         show the model its own thinking of earlier steps, which most vendors say not to do.
    max_connections  requests at the same time.
    options          more fields of the request ("temperature", "max_completion_tokens"). None leaves one out that would
                     be sent ("stream_options", which some endpoints refuse).

    Raises PolicyError at once when the base URL is unusable.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        tools: bool = False,
        instructions: str = "",
        on_token: OnToken | None = None,
        images: int = 0,
        history: int = 60_000,
        thinking: bool = False,
        max_connections: int = 16,
        retries: Retries | None = None,
        options: Mapping[str, Any] | None = None,
        client: JsonClient | None = None,
    ) -> None:
        self.model = model
        self._base_url = _usable(base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL)
        self._host = urlsplit(self._base_url).hostname or ""
        self._key = _sendable(key if key is not None else os.environ.get("OPENAI_API_KEY", ""))
        if not self._key and self._base_url == DEFAULT_BASE_URL:
            raise PolicyError("cannot ask a model: neither OPENAI_API_KEY nor OPENAI_BASE_URL is set")
        self._shape = _shape(history, tools=tools, instructions=instructions, thinking=thinking, images=images)
        self._on_token = on_token
        self._options = dict(options or {})
        # Threads of its own: the event loop's default pool has a handful, and a model thinks for seconds.
        self._client = client or JsonClient(DaemonThreads(max_connections, "sandfleet-model"), retries or Retries())

    @property
    def summary(self) -> str:
        """What this is, for people who watch it."""
        return f"model {self.model!r} at {self._base_url}"

    async def __call__(self, conversation: Conversation) -> Action:
        """Ask for the next action. Raises EndpointError (a PolicyError)."""
        messages = history.messages(conversation, self._shape)
        reply = await self._reply(messages, needs_evidence=conversation.needs_evidence)
        return protocol.parse(reply.said, conversation, finish=reply.finish, tools=self._shape.tools)

    async def _reply(self, messages: list[history.Message], *, needs_evidence: bool) -> replies.Reply:
        body: dict[str, Any] = {"stream_options": {"include_usage": True}} if self._on_token is not None else {}
        body |= {"tools": calls.schemas(needs_evidence=needs_evidence)} if self._shape.tools else {}
        body |= self._options
        body |= {"model": self.model, "messages": _encodable(messages), "stream": self._on_token is not None}
        body = {name: value for name, value in body.items() if value is not None}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        with tracing.chat(self.model, self._host) as span:
            url = f"{self._base_url}/chat/completions"
            reply = replies.read(await self._client.post(url, headers, body, on_token=self._on_token))
            _note(span, reply)
            return reply


def _shape(budget: int, *, tools: bool, instructions: str, thinking: bool, images: int) -> history.Shape:
    # Apart from the class, whose argument `history` hides the module.
    return history.Shape(budget, tools, instructions, thinking, images)


def _sendable(key: str) -> str:
    bare = key.strip()
    if not (bare.isascii() and bare.isprintable()):
        raise EndpointRefused("cannot ask a model: the key has a character that no HTTP header can hold")
    return bare


def _usable(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PolicyError(f"cannot ask a model: {base_url!r} is no http or https URL")
    return base_url.rstrip("/").removesuffix("/chat/completions")


def _encodable(value: Any) -> Any:
    """The messages without lone surrogates, which a server may refuse in any text."""
    match value:
        case str():
            return encodable(value)
        case list():
            return [_encodable(each) for each in value]
        case dict():
            return {key: _encodable(each) for key, each in value.items()}
    return value


def _note(span: Recorder, reply: replies.Reply) -> None:
    tokens = reply.said.tokens
    for name, count in (("input", tokens.input), ("output", tokens.output)):
        if count:
            span.set(f"gen_ai.usage.{name}_tokens", count)
    if reply.model:
        span.set("gen_ai.response.model", reply.model)
