"""A policy that asks a model behind any OpenAI-compatible chat endpoint (`POST {base_url}/chat/completions`).

The base URL comes from OPENAI_BASE_URL, the key from OPENAI_API_KEY. Needs `sandfleet[agents]`.
"""

from collections.abc import Mapping
from typing import Any

from sandfleet.codeact.conversation import Action, Conversation
from sandfleet.codeact.policies import calls, history, protocol
from sandfleet.codeact.policies.chat import Chat
from sandfleet.codeact.policies.http import JsonClient, OnToken, Retries


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
        self._shape = _shape(history, tools=tools, instructions=instructions, thinking=thinking, images=images)
        self._on_token = on_token
        self._chat = Chat(
            model,
            base_url=base_url,
            key=key,
            max_connections=max_connections,
            retries=retries,
            options=options,
            client=client,
        )

    @property
    def summary(self) -> str:
        """What this is, for people who watch it."""
        return f"model {self.model!r} at {self._chat.base_url}"

    async def __call__(self, conversation: Conversation) -> Action:
        """Ask for the next action. Raises EndpointError (a PolicyError)."""
        messages = history.messages(conversation, self._shape)
        offered = {"tools": calls.schemas(needs_evidence=conversation.needs_evidence)} if self._shape.tools else {}
        reply = await self._chat.ask(messages, offered, on_token=self._on_token)
        return protocol.parse(reply.said, conversation, finish=reply.finish, tools=self._shape.tools)


def _shape(budget: int, *, tools: bool, instructions: str, thinking: bool, images: int) -> history.Shape:
    # Apart from the class, whose argument `history` hides the module.
    return history.Shape(budget, tools, instructions, thinking, images)
