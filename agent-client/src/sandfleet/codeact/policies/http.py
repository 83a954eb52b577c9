"""One POST of JSON with bounded retries, its reply in one piece or streamed, by the standard library, in threads."""

import asyncio
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    # A redirect would carry the key to another host.
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


@dataclass(slots=True)
class _Screen:
    """Hands tokens from a request's thread to the event loop. What the callback raises is raised by the request."""

    loop: asyncio.AbstractEventLoop
    on_token: OnToken
    given_up: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    shown: bool = False

    def show(self, token: sse.Token) -> None:
        """Called in the thread."""
        self.shown = True
        self.loop.call_soon_threadsafe(self._deliver, token)

    def _deliver(self, token: sse.Token) -> None:
        if self.error is not None or self.given_up.is_set():
            return
        try:
            self.on_token(token)
        except Exception as error:  # noqa: BLE001  the user's callback may raise anything; `post` raises it again
            self.error = error


@dataclass(frozen=True, slots=True)
class JsonClient:
    """Posts JSON to one place."""

    executor: Executor
    retries: Retries = field(default_factory=Retries)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def post(
        self, url: str, headers: Mapping[str, str], body: object, *, on_token: OnToken | None = None
    ) -> dict[str, Any]:
        """The reply's object; with `on_token` it is read as a stream.

        Raises EndpointRefused, EndpointUnavailable or MalformedReply.
        """
        request = urllib.request.Request(url, json.dumps(body).encode(), dict(headers), method="POST")  # noqa: S310  the scheme is checked by the caller
        for attempt in range(1, self.retries.attempts + 1):
            reply = await self._once(request, on_token, attempt)
            if not isinstance(reply, _Trouble):
                return reply
            wait = self._wait(attempt, reply.retry_after)
            if wait > self.retries.longest_wait:
                raise _asks_too_much(reply.error, wait, self.retries.longest_wait)
            if attempt == self.retries.attempts:
                raise reply.error
            await self.sleep(wait)
        raise AssertionError("unreachable: attempts is at least 1")

    async def _once(
        self, request: urllib.request.Request, on_token: OnToken | None, attempt: int
    ) -> dict[str, Any] | _Trouble:
        loop = asyncio.get_running_loop()
        screen = _Screen(loop, on_token) if on_token is not None else None
        try:
            reply = await loop.run_in_executor(self.executor, _post, request, self.retries, screen)
        finally:
            if screen is not None:
                screen.given_up.set()
        if screen is not None and screen.error is not None:
            raise screen.error
        if screen is not None and isinstance(reply, _Trouble) and screen.shown and attempt < self.retries.attempts:
            screen.on_token(sse.Token("\n[the connection was lost; the model is asked again]\n", "again"))
        return reply

    def _wait(self, attempt: int, asked: float | None) -> float:
        if asked is not None:
            return asked
        # Full jitter, so that many agents do not come back at the same moment.
        return min(self.retries.longest_wait, self.retries.first_wait * 2.0 ** (attempt - 1)) * (
            0.5 + self.chance() / 2
        )


def _asks_too_much(error: EndpointError, wait: float, longest: float) -> EndpointError:
    message = f"{error}; it asks to wait {wait:,.0f} s, and {longest:,.0f} s is the longest wait (Retries.longest_wait)"
    return EndpointUnavailable(message, status=error.status, retryable=True)


def _post(request: urllib.request.Request, retries: Retries, screen: _Screen | None) -> dict[str, Any] | _Trouble:
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=retries.timeout) as response:
            streamed = response.headers.get_content_type() == "text/event-stream"
            reply = _stream(response, screen, retries) if streamed else _whole(response, screen)
        error = error_in(reply)
    except urllib.error.HTTPError as answered:
        with answered:
            headers = {name.lower(): value for name, value in answered.headers.items()}
            error = refusal(answered.code, answered.read(64 * 1024), headers)
            asked = waits(headers, datetime.now(UTC))
        return _again_or_raise(error, asked)
    except EndpointError as failed:
        error = failed
    except (OSError, http.client.HTTPException) as failed:
        why = getattr(failed, "reason", None) or str(failed) or type(failed).__name__
        return _Trouble(EndpointUnavailable(f"cannot reach the model's endpoint: {why}", retryable=True))
    except ValueError as failed:
        raise EndpointRefused(f"cannot ask the model's endpoint: {failed}") from failed
    return reply if error is None else _again_or_raise(error)


def _again_or_raise(error: EndpointError, asked: float | None = None) -> _Trouble:
    if not error.retryable:
        raise error
    return _Trouble(error, asked)


def _whole(response: Any, screen: _Screen | None) -> dict[str, Any]:
    reply = _decode(response.read(_LARGEST_REPLY + 1))
    if screen is not None and reply.get("choices"):
        # The endpoint does not stream; what it said is shown at once.
        screen.show(sse.Token(_text(reply)))
    return reply


def _text(reply: dict[str, Any]) -> str:
    try:
        return text_of(reply["choices"][0]["message"].get("content"))
    except (KeyError, IndexError, TypeError, AttributeError):
        return ""


def _stream(response: Any, screen: _Screen | None, retries: Retries) -> dict[str, Any]:
    assembly, size, began = sse.Assembly(), 0, time.monotonic()
    while not assembly.done and (line := response.readline(_LARGEST_REPLY)):
        size += len(line)
        if size > 4 * _LARGEST_REPLY:
            raise MalformedReply(f"cannot use the endpoint's reply: it is larger than {4 * _LARGEST_REPLY:,} bytes")
        if time.monotonic() - began > retries.longest_reply:
            raise EndpointUnavailable(f"the model's reply was not complete after {retries.longest_reply:,.0f} s")
        if screen is not None and screen.given_up.is_set():
            raise EndpointUnavailable("the reply is not wanted any more")
        if (data := sse.data_of(line)) is not None:
            for token in assembly.add(data):
                if screen is not None:
                    screen.show(token)
    if not assembly.is_whole:
        raise http.client.IncompleteRead(b"")
    return assembly.reply()


def _decode(data: bytes) -> dict[str, Any]:
    if len(data) > _LARGEST_REPLY:
        raise MalformedReply(f"cannot use the endpoint's reply: it is larger than {_LARGEST_REPLY:,} bytes")
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MalformedReply(f"cannot use the endpoint's reply: it is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedReply("cannot use the endpoint's reply: it is no JSON object")
    return value
