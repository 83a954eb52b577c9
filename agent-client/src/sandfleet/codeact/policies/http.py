"""One POST of JSON with bounded retries, by the standard library, in threads."""

import asyncio
import contextlib
import email.utils
import http.client
import json
import random
import re
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sandfleet.codeact.conversation import PolicyError

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_LARGEST_REPLY = 8 * 1024 * 1024


class EndpointError(PolicyError):
    """The endpoint gave no usable reply. `status` is the HTTP status, None where there was none."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status


class EndpointRefused(EndpointError):  # noqa: N818  the name says what happened
    """It refused the request: wrong key, unknown model, malformed request. Not retried."""


class EndpointUnavailable(EndpointError):  # noqa: N818  the name says what happened
    """It could not be reached, or was too busy, also after the retries."""


class MalformedReply(EndpointError):  # noqa: N818  the name says what happened
    """It replied something that is not what the protocol says."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long to wait for an endpoint, in seconds. A Retry-After beyond `longest_wait` is not waited for."""

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A failed attempt that may be repeated."""

    error: EndpointError
    retry_after: float | None = None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    # A redirect would carry the key to another host.
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class JsonClient:
    """Posts JSON to one place."""

    executor: Executor
    retries: Retries = field(default_factory=Retries)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def post(self, url: str, headers: Mapping[str, str], body: object) -> dict[str, Any]:
        """The reply's object. Raises EndpointRefused, EndpointUnavailable or MalformedReply."""
        request = urllib.request.Request(url, json.dumps(body).encode(), dict(headers), method="POST")  # noqa: S310  the scheme is checked by the caller
        loop = asyncio.get_running_loop()
        for attempt in range(1, self.retries.attempts + 1):
            reply = await loop.run_in_executor(self.executor, _post, request, self.retries.timeout)
            if not isinstance(reply, _Trouble):
                return reply
            wait = self._wait(attempt, reply.retry_after)
            if attempt == self.retries.attempts or wait > self.retries.longest_wait:
                raise reply.error
            await self.sleep(wait)
        raise AssertionError("unreachable: attempts is at least 1")

    def _wait(self, attempt: int, asked: float | None) -> float:
        if asked is not None:
            return asked
        # Full jitter, so that many agents do not come back at the same moment.
        return min(self.retries.longest_wait, self.retries.first_wait * 2.0 ** (attempt - 1)) * (
            0.5 + self.chance() / 2
        )


def _post(request: urllib.request.Request, timeout: float) -> dict[str, Any] | _Trouble:
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=timeout) as response:
            return _decode(response.read(_LARGEST_REPLY + 1))
    except urllib.error.HTTPError as error:
        with error:
            return _refusal(error)
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        return _Trouble(EndpointUnavailable(f"cannot reach the model's endpoint: {why}", retryable=True))


def _refusal(error: urllib.error.HTTPError) -> _Trouble:
    message = f"the model's endpoint answered {error.code}: {_said(error.read(64 * 1024))}"
    if error.code not in _RETRIED:
        raise EndpointRefused(message, status=error.code)
    waits = retry_after(error.headers.get("Retry-After"), datetime.now(UTC))
    return _Trouble(EndpointUnavailable(message, status=error.code, retryable=True), waits)


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


def _said(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    # Most endpoints wrap the message so; what does not is shown as it is.
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:500] or "nothing"


def retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for: a number or a date; None where it says nothing usable."""
    if not header:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", header):
        return float(header)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(header) - now).total_seconds())
    except (ValueError, TypeError):
        return None
