"""Tells a URL that a review waits, as Standard Webhooks: signed, without the content, and answered through the API.

https://www.standardwebhooks.com: the headers webhook-id, webhook-timestamp and webhook-signature, the last one
`v1,` and the base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Protocol

from sandfleet_api.executor.v1 import review_pb2
from sandfleet_rules.backoff import Backoff

from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.plan.lanes import Bounds, Party

URL, SECRET = "SANDFLEET_REVIEW_WEBHOOK_URL", "SANDFLEET_REVIEW_WEBHOOK_SECRET"
PREFIX = "whsec_"
# Bytes of a secret, as the standard has them.
LEAST_SECRET, MOST_SECRET = 24, 64
TYPE = "review.pending"
# Messages that wait to be sent, in all and of one namespace. A later one is dropped; the API lists all reviews.
MAX_WAITING, MAX_OF_NAMESPACE = 1000, 250
# Attempts at the same time, each in a thread.
BOUNDS = Bounds(total=4, per_namespace=2, per_node=4)
PATIENCE = 300.0
ATTEMPTS = 6
PAUSES = Backoff(first=1.0, longest=60.0)
# Seconds that one attempt may take.
TIMEOUT = 10.0

_LOG = logging.getLogger(__name__)


class WebhookError(Exception):
    """The webhook cannot be set up. Its message is "cannot X: why"."""


@dataclass(frozen=True, slots=True)
class Message:
    """`id` stays the same in each attempt, so that its receiver can tell a repetition."""

    id: str
    body: bytes
    # Each has a lane of its own.
    namespace: str = ""


class Post(Protocol):
    """Sends a message and returns the HTTP status. Raises OSError."""

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> int: ...


def read_secret(text: str) -> bytes:
    """`whsec_` and the base64 of 24 to 64 bytes. Raises WebhookError, which does not show it."""
    try:
        key = base64.b64decode(text.strip().removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not text.strip().startswith(PREFIX) or not LEAST_SECRET <= len(key) <= MOST_SECRET:
        why = f"{SECRET} is no {PREFIX}… with the base64 of {LEAST_SECRET} to {MOST_SECRET} bytes"
        raise WebhookError(f"cannot sign webhooks: {why}")
    return key


def signature(key: bytes, message: Message, timestamp: int) -> str:
    """`timestamp`: seconds since the epoch."""
    signed = b".".join((message.id.encode(), str(timestamp).encode(), message.body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode("ascii")


def pending_message(sandbox_id: str, holder: str, approvals: int, review: review_pb2.PendingReview) -> Message:
    """What waits, by names and numbers: no code, no intent, no settings."""
    data = {
        "sandbox_id": sandbox_id,
        "review_id": review.review_id,
        "kind": review.kind[:32],
        "digest": review.digest.hex()[:128],
        "holder": holder,
        "approvals": approvals,
        "since": review.since.seconds,
    }
    name = hashlib.sha256(f"{sandbox_id}\0{review.review_id}".encode()).hexdigest()[:32]
    body = json.dumps({"type": TYPE, "data": data}, sort_keys=True).encode()
    return Message(f"msg_{name}", body, sandbox_id.partition("/")[0])


class Webhook:
    """Sends in the background, each message a few times at most. `clock` gives seconds since the epoch."""

    def __init__(self, url: str, key: bytes, clock: Callable[[], float], post: Post | None = None) -> None:
        self._url, self._key, self._clock = url, key, clock
        self._post = post or posted
        self._turns, self._background = Turns(BOUNDS), BackgroundTasks()
        # Threads of its own: a slow receiver takes none of anything else.
        self._threads = ThreadPoolExecutor(BOUNDS.total, "webhook")
        # Messages under way of each namespace.
        self._waiting: Counter[str] = Counter()

    def send(self, message: Message) -> None:
        """Returns at once; on the event loop."""
        mine = self._waiting[message.namespace]
        if mine >= MAX_OF_NAMESPACE or self._waiting.total() >= MAX_WAITING:
            _LOG.warning("a webhook is dropped: %d of namespace %r wait to be sent", mine, message.namespace)
            return
        self._waiting[message.namespace] += 1
        self._background.begin(self._sent(message), f"send webhook {message.id}")

    def close(self) -> None:
        self._background.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _sent(self, message: Message) -> None:
        try:
            await self._deliver(message)
        finally:
            self._waiting[message.namespace] -= 1
            if not self._waiting[message.namespace]:
                del self._waiting[message.namespace]

    async def _deliver(self, message: Message) -> None:
        why = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._turns.turn(Party(message.namespace), PATIENCE):
                    status = await asyncio.get_running_loop().run_in_executor(
                        self._threads, self._post, self._url, message.body, self._headers(message)
                    )
            except (OSError, HTTPException, ValueError, NoTurnError) as error:
                why = str(error) or type(error).__name__
            else:
                if 200 <= status < 300:
                    return
                why = f"it answered {status}"
            if attempt < ATTEMPTS:
                await asyncio.sleep(PAUSES.after(attempt))
        _LOG.warning("a webhook is given up after %d attempts: %s", ATTEMPTS, why[:200])

    def _headers(self, message: Message) -> dict[str, str]:
        """Each attempt is signed with its own time, so that receivers can refuse old ones."""
        now = int(self._clock())
        return {
            "content-type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self._key, message, now),
        }


def webhook(environment: Mapping[str, str], clock: Callable[[], float]) -> Webhook | None:
    """As the environment asks for it; None: it does not. Raises WebhookError."""
    url = environment.get(URL, "")
    if not url:
        return None
    if not url.startswith(("https://", "http://")):
        raise WebhookError(f"cannot send webhooks: {URL} is no http or https URL")
    return Webhook(url, read_secret(environment.get(SECRET, "")), clock)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A receiver that sends us elsewhere is not the one that was configured."""

    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        return None


def posted(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """POST, without following redirects. Raises OSError."""
    request = urllib.request.Request(url, body, dict(headers), method="POST")  # noqa: S310 - http and https were checked
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
