"""`ask_model`: a language model as a tool of the host, for code that asks over pieces of what it works on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, cast

from sandfleet.codeact.conversation import PolicyError, Said
from sandfleet.codeact.policies.blocks import without_thinking
from sandfleet.codeact.policies.chat import Chat
from sandfleet.codeact.policies.history import Message
from sandfleet.errors import InvalidArgument
from sandfleet.tools.budget import Settling, settling
from sandfleet.tools.declared import ToolOptions, tool
from sandfleet.tools.ledger import Failure, Kind
from sandfleet.tools.sources import CallFailed
from sandfleet.values.tools import OnTools, Tool, ToolLimits, ToolSource

if TYPE_CHECKING:
    from sandfleet.codeact.policies.http import JsonClient, Retries

NAME = "ask_model"
# A model thinks longer than other tools.
LIMITS = ToolLimits(timeout=300.0)
_BYTES_PER_TOKEN = 4
_DOC = """\
Ask a language model, which sees the prompt and the context and nothing else. The text of its answer.

Split a text that is too long for one context, ask over the pieces, in threads or with `.aio`, then over the answers.\
"""


@dataclass(frozen=True, slots=True)
class AskedModel(ToolSource):
    """A language model that code in a brokered sandbox may ask. `sandfleet.ask_model` makes one."""

    chat: Chat
    instructions: str
    most: int
    options: ToolOptions

    async def open(self, changed: OnTools) -> tuple[Sequence[Tool], Callable[[], Awaitable[None]]]:  # noqa: ARG002 - never
        """The tool, which stays the same, and what ends requests whose callers have gone."""
        options: ToolOptions = {"name": NAME, "doc": _DOC, "limits": LIMITS, "cost": self._estimated}
        given = {name: value for name, value in self.options.items() if value is not None}
        asking = _Asking(self, asyncio.Semaphore(self.most))

        async def ask_model(prompt: str, context: str = "") -> str:
            return await asking.ask(prompt, context)

        return [tool(ask_model, **cast("ToolOptions", {**options, **given}))], asking.close

    @property
    def counts_tokens(self) -> bool:
        """Whether the budget is in tokens; otherwise the caller's own cost says in what."""
        return self.options.get("cost") is None

    def messages(self, prompt: str, context: str) -> list[Message]:
        """What the model is sent."""
        system = [Message(role="system", content=self.instructions)] if self.instructions else []
        shown = f"{prompt}\n\n<context>\n{context}\n</context>" if context else prompt
        return [*system, Message(role="user", content=shown)]

    def _estimated(self, arguments: Mapping[str, Any]) -> float:
        given = self.instructions, arguments["prompt"], arguments.get("context", "")
        return max(1.0, tokens_in("".join(given)))


class _Asking:
    """The requests of one server of tools. One goes on without its caller: the endpoint charges it all the same."""

    def __init__(self, model: AskedModel, turn: asyncio.Semaphore) -> None:
        self._model = model
        self._turn = turn
        self._running: set[asyncio.Task[str]] = set()

    async def ask(self, prompt: str, context: str) -> str:
        """Raises CallFailed."""
        messages, settle = self._model.messages(prompt, context), settling()
        await self._turn.acquire()
        task = asyncio.ensure_future(self._asked(messages, settle))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._turn.release()
        self._running.discard(task)
        if not task.cancelled():
            # Its caller may have gone, and asyncio would complain of an error that was not looked at.
            task.exception()

    async def _asked(self, messages: list[Message], settle: Settling) -> str:
        chat = self._model.chat
        try:
            reply = await chat.ask(messages)
        except PolicyError as error:
            raise self._failed(type(error).__name__, chat.masked(str(error))) from None
        if self._model.counts_tokens:
            settle(cost_of(reply.said, messages))
        text = without_thinking(reply.said.text).strip()
        if not text:
            raise self._failed("EmptyAnswer", f"the model has said nothing (finish_reason {reply.finish!r})")
        return text

    def _failed(self, reason: str, why: str) -> CallFailed:
        name = self._model.options.get("name", NAME)
        return CallFailed(Failure(Kind.ERROR, reason, f"{name} has failed: {why}"))

    async def close(self) -> None:
        """End the requests that still run."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def tokens_in(text: str) -> float:
    """About as many tokens as a text has."""
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def cost_of(said: Said, messages: Sequence[Message]) -> float:
    """The tokens of a reply and of what it answers, as the endpoint says; estimated where it does not."""
    told = said.tokens.input + said.tokens.output
    return told or tokens_in("".join(str(each["content"]) for each in messages)) + tokens_in(said.text)


def ask_model(
    model: str,
    /,
    *,
    base_url: str | None = None,
    key: str | None = None,
    instructions: str = "",
    max_connections: int = 16,
    request: Mapping[str, Any] | None = None,
    retries: Retries | None = None,
    client: JsonClient | None = None,
    **options: Unpack[ToolOptions],
) -> AskedModel:
    """Name a language model for `tools=`: code asks it as `tools.ask_model(prompt, context="…")` and gets its text.

    model            as the endpoint calls it.
    base_url, key    None means OPENAI_BASE_URL and OPENAI_API_KEY, as of `OpenAIPolicy`. The code sees neither.
    instructions     a system prompt of yours.
    max_connections  requests at the same time. More calls wait, which counts in the time that they have.
    request          more fields of each request ("max_completion_tokens", "temperature").
    retries          how often and how long an endpoint is waited for; its Retry-After is kept to.
    options          as of `tool`. `limits=ToolLimits(calls_per_session=500, budget=200_000)` bounds calls and tokens;
                     without limits a call has 300 s.

    The budget counts the tokens that the endpoint says, question and answer; with a `cost` of yours it counts that. A
    call is charged an estimate of its question before it starts, so that none starts when nothing is left, and is
    charged what it has cost when the answer is there. So the budget can be overdrawn by the calls that run at that
    moment, each by its answer and the error of the estimate. A call that the code gives up is charged, too. An error of
    the endpoint is a ToolError with its message, its class (`EndpointRefused`, `EndpointUnavailable`, `ContextTooLong`,
    `MalformedReply`) as the reason, and no key. Raises PolicyError for an endpoint that cannot be asked.
    """
    if max_connections < 1:
        raise InvalidArgument("cannot ask a model over no connection: max_connections is at least 1")
    chat = Chat(
        model,
        base_url=base_url,
        key=key,
        max_connections=max_connections,
        retries=retries,
        options=request,
        client=client,
    )
    return AskedModel(chat, instructions, max_connections, options)
