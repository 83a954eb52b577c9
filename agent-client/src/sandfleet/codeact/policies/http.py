"""One POST of JSON with bounded retries, its reply in one piece or streamed. Needs the extra `sandfleet[agents]`."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sandfleet.codeact.policies import sse
from sandfleet.codeact.policies.errors import (
    ContextTooLong,
    EndpointError,
    EndpointRefused,
    EndpointUnavailable,
    MalformedReply,
    error_in,
    refusal,
    retry_after,
    waits,
)
from sandfleet.codeact.policies.replies import text_of

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = [
    "ContextTooLong",
    "EndpointError",
    "EndpointRefused",
    "EndpointUnavailable",
    "JsonClient",
    "MalformedReply",
    "OnToken",
    "Retries",
    "retry_after",
]

_LARGEST_REPLY = 8 * 1024 * 1024
_LARGEST_ERROR = 64 * 1024
OnToken = Callable[[sse.Token], object]


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long to wait for an endpoint, in seconds.

    longest_wait   a Retry-After beyond it ends the attempts.
    timeout        the longest silence of the endpoint. longest_reply: the longest time of a streamed reply in all.
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    timeout: float = 120.0
    longest_reply: float = 900.0


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A failed attempt that may be repeated."""

    error: EndpointError
    retry_after: float | None = None


@dataclass(slots=True)
class _Screen:
    """Hands tokens to the callback, and remembers that there were some."""

    on_token: OnToken | None
    shown: bool = False

    def show(self, token: sse.Token) -> None:
        if self.on_token is not None:
            self.shown = True
            self.on_token(token)


@dataclass(frozen=True, slots=True)
class JsonClient:
    """Posts JSON to one place, over `max_connections` at most in each event loop."""

    max_connections: int = 16
    retries: Retries = field(default_factory=Retries)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(default_factory=WeakKeyDictionary)

    async def post(
        self, url: str, headers: Mapping[str, str], body: object, *, on_token: OnToken | None = None
    ) -> dict[str, Any]:
        """The reply's object; with `on_token` it is read as a stream.

        Raises EndpointRefused, EndpointUnavailable or MalformedReply.
        """
        for attempt in range(1, self.retries.attempts + 1):
            screen = _Screen(on_token)
            reply = await self._once(url, headers, json.dumps(body).encode(), screen)
            if not isinstance(reply, _Trouble):
                return reply
            if screen.shown and attempt < self.retries.attempts:
                screen.show(sse.Token("\n[the connection was lost; the model is asked again]\n", "again"))
            wait = self._wait(attempt, reply.retry_after)
            if wait > self.retries.longest_wait:
                raise _asks_too_much(reply.error, wait, self.retries.longest_wait)
            if attempt == self.retries.attempts:
                raise reply.error
            await self.sleep(wait)
        raise AssertionError("unreachable: attempts is at least 1")

    async def _once(
        self, url: str, headers: Mapping[str, str], body: bytes, screen: _Screen
    ) -> dict[str, Any] | _Trouble:
        # Late: the import takes longer than that of all other policies.
        import httpx2

        turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.max_connections))
        plain = {**headers, "Accept-Encoding": "identity"}
        try:
            async with (
                turn,
                # A redirect would carry the key to another host.
                httpx2.AsyncClient(verify=_trusted(), timeout=self.retries.timeout, follow_redirects=False) as client,
                client.stream("POST", url, headers=plain, content=body) as response,
            ):
                return await _answer(response, screen, self.retries)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as failed:
            raise EndpointRefused(f"cannot ask the model's endpoint: {failed}") from failed
        except httpx2.SSEError as failed:
            raise MalformedReply(f"cannot use the endpoint's reply: {failed}") from failed
        except httpx2.TransportError as failed:
            silent = f"it was silent for {self.retries.timeout:g} s"
            why = silent if isinstance(failed, httpx2.ReadTimeout) else str(failed) or type(failed).__name__
            return _Trouble(EndpointUnavailable(f"cannot reach the model's endpoint: {why}", retryable=True))

    def _wait(self, attempt: int, asked: float | None) -> float:
        if asked is not None:
            return asked
        # Full jitter, so that many agents do not come back at the same moment.
        return min(self.retries.longest_wait, self.retries.first_wait * 2.0 ** (attempt - 1)) * (
            0.5 + self.chance() / 2
        )


@cache
def _trusted() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than a connection."""
    import httpx2

    return httpx2.create_ssl_context()


def _asks_too_much(error: EndpointError, wait: float, longest: float) -> EndpointError:
    message = f"{error}; it asks to wait {wait:,.0f} s, and {longest:,.0f} s is the longest wait (Retries.longest_wait)"
    return EndpointUnavailable(message, status=error.status, retryable=True)


async def _answer(response: httpx2.Response, screen: _Screen, retries: Retries) -> dict[str, Any] | _Trouble:
    if not response.is_success:
        said = await _bytes_of(response, _LARGEST_ERROR)
        headers = dict(response.headers)
        return _again_or_raise(
            refusal(response.status_code, said[:_LARGEST_ERROR], headers), waits(headers, datetime.now(UTC))
        )
    streamed = response.headers.get("content-type", "").partition(";")[0].strip() == "text/event-stream"
    try:
        reply = await (_stream(response, screen, retries) if streamed else _whole(response, screen))
    except EndpointError as error:
        return _again_or_raise(error)
    refused = error_in(reply)
    return reply if refused is None else _again_or_raise(refused)


def _again_or_raise(error: EndpointError, asked: float | None = None) -> _Trouble:
    if not error.retryable:
        raise error
    return _Trouble(error, asked)


async def _bytes_of(response: httpx2.Response, most: int) -> bytes:
    """The body, or a little more than `most` of it."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > most:
            break
    return bytes(data)


async def _whole(response: httpx2.Response, screen: _Screen) -> dict[str, Any]:
    reply = _decode(await _bytes_of(response, _LARGEST_REPLY))
    if reply.get("choices"):
        # The endpoint does not stream; what it said is shown at once.
        screen.show(sse.Token(_text(reply)))
    return reply


def _text(reply: dict[str, Any]) -> str:
    try:
        return text_of(reply["choices"][0]["message"].get("content"))
    except (KeyError, IndexError, TypeError, AttributeError):
        return ""


async def _stream(response: httpx2.Response, screen: _Screen, retries: Retries) -> dict[str, Any]:
    import httpx2

    assembly, size = sse.Assembly(), 0
    try:
        async with asyncio.timeout(retries.longest_reply):
            async for event in httpx2.EventSource(response, sse.LARGEST_EVENT):
                size += len(event.data)
                if size > 4 * _LARGEST_REPLY:
                    raise _too_large(4 * _LARGEST_REPLY)
                for token in assembly.add(event.data):
                    screen.show(token)
                if assembly.done:
                    break
    except TimeoutError:
        raise EndpointUnavailable(f"the model's reply was not complete after {retries.longest_reply:,.0f} s") from None
    if not assembly.is_whole:
        raise httpx2.RemoteProtocolError("the stream ended before the reply")
    return assembly.reply()


def _too_large(most: int) -> MalformedReply:
    return MalformedReply(f"cannot use the endpoint's reply: it is larger than {most:,} bytes")


def _decode(data: bytes) -> dict[str, Any]:
    if len(data) > _LARGEST_REPLY:
        raise _too_large(_LARGEST_REPLY)
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MalformedReply(f"cannot use the endpoint's reply: it is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedReply("cannot use the endpoint's reply: it is no JSON object")
    return value
