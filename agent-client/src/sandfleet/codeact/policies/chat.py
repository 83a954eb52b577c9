"""A model behind any OpenAI-compatible chat endpoint (`POST {base_url}/chat/completions`)."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from sandfleet.codeact import tracing
from sandfleet.codeact.conversation import PolicyError
from sandfleet.codeact.observe import encodable
from sandfleet.codeact.policies import replies
from sandfleet.codeact.policies.history import Message
from sandfleet.codeact.policies.http import EndpointRefused, JsonClient, OnToken, Retries
from sandfleet.observe.tracing import Recorder

DEFAULT_BASE_URL = "https://api.openai.com/v1"
# Shorter keys are no secrets, as the "none" that local endpoints are given.
_SECRET = 8


class Chat:
    """Asks one model. `options` are more fields of each request; None leaves one out that would be sent.

    Raises PolicyError at once when the base URL is unusable, when there is no key for OpenAI's own, or without httpx2.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        max_connections: int = 16,
        retries: Retries | None = None,
        options: Mapping[str, Any] | None = None,
        client: JsonClient | None = None,
    ) -> None:
        self.model = model
        self.base_url = _usable(base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL)
        self._host = urlsplit(self.base_url).hostname or ""
        self._key = _sendable(key if key is not None else os.environ.get("OPENAI_API_KEY", ""))
        if not self._key and self.base_url == DEFAULT_BASE_URL:
            raise PolicyError("cannot ask a model: neither OPENAI_API_KEY nor OPENAI_BASE_URL is set")
        if find_spec("httpx2") is None:
            raise PolicyError("cannot ask a model: httpx2 is not installed; it comes with the extra sandfleet[agents]")
        self._options = dict(options or {})
        self._client = client or JsonClient(max_connections, retries or Retries())

    async def ask(
        self, messages: list[Message], fields: Mapping[str, Any] | None = None, *, on_token: OnToken | None = None
    ) -> replies.Reply:
        """The model's reply; with `on_token` it is streamed. `fields` are of this request. Raises EndpointError."""
        body: dict[str, Any] = {"stream_options": {"include_usage": True}} if on_token is not None else {}
        body |= dict(fields or {}) | self._options
        body |= {"model": self.model, "messages": _encodable(messages), "stream": on_token is not None}
        body = {name: value for name, value in body.items() if value is not None}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        with tracing.chat(self.model, self._host) as span:
            url = f"{self.base_url}/chat/completions"
            reply = replies.read(await self._client.post(url, headers, body, on_token=on_token))
            _note(span, reply)
            return reply

    def masked(self, text: str) -> str:
        """The text without words that have the key in them, or its beginning or end: endpoints repeat wrong keys."""
        if len(self._key) < _SECRET:
            return text
        parts = (self._key[: _SECRET - 2], self._key[2 - _SECRET :])
        words = ("[key]" if any(part in word for part in parts) else word for word in text.split(" "))
        return " ".join(words)


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
