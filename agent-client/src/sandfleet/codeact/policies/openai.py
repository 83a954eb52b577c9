"""A policy that asks a model behind any OpenAI-compatible chat endpoint (`POST {base_url}/chat/completions`).

The base URL comes from OPENAI_BASE_URL, the key from OPENAI_API_KEY. Only the standard library is used.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from sandfleet.codeact import tracing
from sandfleet.codeact.conversation import Action, Conversation, PolicyError
from sandfleet.codeact.policies import protocol
from sandfleet.codeact.policies.http import JsonClient, MalformedReply, Retries
from sandfleet.telemetry import Recorder

DEFAULT_BASE_URL = "https://api.openai.com/v1"
# A reply that was cut off in the middle of its code is asked for again, this often.
_ASKED_AGAIN = 1


class OpenAIPolicy:
    """Asks a model for each action. One object serves any number of runs at the same time.

    model            as the endpoint calls it.
    base_url, key    None means OPENAI_BASE_URL and OPENAI_API_KEY; a local endpoint may need no key.
    history          characters of earlier steps that a model is shown; the oldest are left out first.
    max_connections  requests at the same time.
    options          more fields of the request ("temperature", "max_completion_tokens").

    Raises PolicyError at once when the base URL is unusable.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        history: int = 60_000,
        max_connections: int = 16,
        retries: Retries | None = None,
        options: Mapping[str, Any] | None = None,
        client: JsonClient | None = None,
    ) -> None:
        self.model = model
        self._base_url = _usable(base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL)
        self._host = urlsplit(self._base_url).hostname or ""
        self._key = key if key is not None else os.environ.get("OPENAI_API_KEY", "")
        if not self._key and self._base_url == DEFAULT_BASE_URL:
            raise PolicyError("cannot ask a model: neither OPENAI_API_KEY nor OPENAI_BASE_URL is set")
        self._history = history
        self._options = dict(options or {})
        # Threads of its own: the event loop's default pool has a handful, and a model thinks for seconds.
        threads = ThreadPoolExecutor(max_connections, "sandfleet-model")
        self._client = client or JsonClient(threads, retries or Retries())

    @property
    def summary(self) -> str:
        """What this is, for people who watch it."""
        return f"model {self.model!r} at {self._base_url}"

    async def __call__(self, conversation: Conversation) -> Action:
        """Ask for the next action. Raises EndpointError (a PolicyError)."""
        messages = protocol.messages(conversation, budget=self._history)
        for _ in range(1 + _ASKED_AGAIN):
            text, finish = await self._reply(messages)
            if finish != "length" or not protocol.is_cut_off(text):
                return protocol.parse(text, conversation)
            hint = "Your reply was cut off in the middle of its code, nothing was run. Be shorter: do less in one step."
            messages = [*messages, protocol.Message(role="user", content=hint)]
        raise PolicyError("cannot act: the model's replies are cut off in the middle of their code")

    async def _reply(self, messages: list[protocol.Message]) -> tuple[str, str]:
        with tracing.chat(self.model, self._host) as span:
            body = {**self._options, "model": self.model, "messages": messages, "stream": False}
            headers = {"Content-Type": "application/json"} | (
                {"Authorization": f"Bearer {self._key}"} if self._key else {}
            )
            reply = await self._client.post(f"{self._base_url}/chat/completions", headers, body)
            _note(span, reply)
            return _content(reply)


def _usable(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PolicyError(f"cannot ask a model: {base_url!r} is no http or https URL")
    return base_url.rstrip("/")


def _content(reply: dict[str, Any]) -> tuple[str, str]:
    try:
        choice = reply["choices"][0]
        text, finish = choice["message"]["content"], choice.get("finish_reason") or ""
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise MalformedReply("cannot use the endpoint's reply: no choices[0].message.content in it") from error
    if not isinstance(text, str) or not text.strip():
        raise MalformedReply(f"cannot use the endpoint's reply: its content is empty (finish_reason {finish!r})")
    return text, str(finish)


def _note(span: Recorder, reply: dict[str, Any]) -> None:
    usage = reply.get("usage")
    for ours, theirs in (("input", "prompt_tokens"), ("output", "completion_tokens")):
        count = usage.get(theirs) if isinstance(usage, dict) else None
        if isinstance(count, int):
            span.set(f"gen_ai.usage.{ours}_tokens", count)
    if isinstance(reply.get("model"), str):
        span.set("gen_ai.response.model", reply["model"])
