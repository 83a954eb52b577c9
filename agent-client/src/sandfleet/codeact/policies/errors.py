"""How a model's endpoint fails, read from what it answered. Pure."""

import contextlib
import email.utils
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandfleet.codeact.conversation import PolicyError

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TOO_LONG = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|too many (input )?tokens|exceeds? the (model's )?(maximum|limit)",
    re.IGNORECASE,
)
# What to do about a refusal, by its status.
_REMEDIES = {
    401: "Check the key (OPENAI_API_KEY or key=)",
    403: "Check what the key may do",
    404: "Check the model's name and base_url (it usually ends in /v1)",
    413: "Make `history` smaller",
}


class EndpointError(PolicyError):
    """The endpoint gave no usable reply. `status` is the HTTP status, None where there was none."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status


class EndpointRefused(EndpointError):
    """It refused the request: wrong key, unknown model, malformed request. Not retried."""


class ContextTooLong(EndpointRefused):
    """The conversation does not fit into the model's context. A smaller `history` of the policy helps."""


class EndpointUnavailable(EndpointError):
    """It could not be reached, or was too busy, also after the retries."""


class MalformedReply(EndpointError):
    """It replied something that is not what the protocol says."""


def refusal(status: int, data: bytes, headers: Mapping[str, str]) -> EndpointError:
    """The error of an answer that is none of the 200s. It is retryable where another attempt may help."""
    said, code = _said(data)
    message = f"the model's endpoint answered {status}: {said}"
    if code == "context_length_exceeded" or (status in {400, 413, 422} and _TOO_LONG.search(said)):
        return ContextTooLong(
            f"{message}. Make `history` of the policy smaller, or take a model with a larger context", status=status
        )
    final = code == "insufficient_quota" or headers.get("x-should-retry", "").lower() == "false"
    if status in _RETRIED and not final:
        return EndpointUnavailable(message, status=status, retryable=True)
    remedy = f". {_REMEDIES[status]}" if status in _REMEDIES else ""
    return EndpointRefused(f"{message}{remedy}", status=status)


def error_in(reply: Mapping[str, Any]) -> EndpointError | None:
    """The error in a reply whose status said that all is well, as gateways in front of several vendors send it."""
    error = reply.get("error")
    if not error or reply.get("choices"):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 502
    return refusal(status, json.dumps({"error": error}).encode(), {})


def waits(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the endpoint asks to wait, from headers with small letters; None where it says nothing usable."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds and re.fullmatch(r"\d{1,12}(\.\d{1,9})?", milliseconds):
        return float(milliseconds) / 1000
    return retry_after(headers.get("retry-after"), now)


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


def _said(data: bytes) -> tuple[str, str]:
    """The message and the code of an error."""
    text, code = data.decode("utf-8", "replace"), ""
    # Most endpoints wrap the message so; what does not is shown as it is.
    with contextlib.suppress(ValueError, KeyError, TypeError):
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
        code = str(error.get("code") or "") if isinstance(error, dict) else ""
    return " ".join(text.split())[:500] or "nothing", code
