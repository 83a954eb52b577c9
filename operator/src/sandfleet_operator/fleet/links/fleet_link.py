"""A connection to the fleet that leads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.reasons import ClaimReason, GatewayReason
from sandfleet_operator.fleet.calls import BEARER, DETAIL

CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # A connection that is made again may lead to another replica.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
# Seconds that the fleet may take to answer.
ASK_SECONDS = 10.0
# Attempts of one call to find the replica that leads, and the seconds between them.
ATTEMPTS, PAUSE = 4, 0.3
# Seconds that calls on an old channel have to end.
OLD_CALLS = 30.0
CODES = {code.value for code in Code}
# Reasons to look for another replica.
ELSEWHERE = {ClaimReason.NOT_SERVING.value, GatewayReason.ROUTE_UNKNOWN.value}


class FleetLink:
    """`address` is HOST:PORT, and HOST a name in the fleet's certificate; `authority` is a file that may change."""

    def __init__(self, address: str, authority: Path) -> None:
        self._address = address
        self._authority = authority
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, method: Callable[[grpc.aio.Channel], Callable[..., Any]], request: Any, token: str) -> Any:
        """Calls as the owner of the token. Raises FleetError."""
        metadata = (("authorization", f"{BEARER}{token}"),)
        for left in reversed(range(ATTEMPTS)):
            channel = self._dial()
            try:
                return await method(channel)(request, metadata=metadata, timeout=ASK_SECONDS)
            except grpc.aio.AioRpcError as error:
                problem = problem_of(error)
                if not left or problem.reason not in ELSEWHERE:
                    raise FleetError(problem) from error
            self._drop(channel)
            await asyncio.sleep(PAUSE)
        raise AssertionError("the last attempt returns or raises")

    def open(
        self, method: Callable[[grpc.aio.Channel], Callable[..., Any]], requests: AsyncIterator[Any], token: str
    ) -> Any:
        """A stream as the owner of the token. Raises FleetError; AioRpcError comes from its messages."""
        return method(self._dial())(requests, metadata=(("authorization", f"{BEARER}{token}"),))

    def leave(self) -> None:
        """The next call looks for another replica."""
        if self._channel is not None:
            self._drop(self._channel)

    def _dial(self) -> grpc.aio.Channel:
        """Raises FleetError where the authority is not there yet."""
        if self._channel is None:
            try:
                credentials = grpc.ssl_channel_credentials(self._authority.read_bytes())
            except OSError as error:
                why = f"the file of the authority cannot be read: {error}"
                raise GatewayReason.ROUTE_UNKNOWN.error(f"cannot ask the fleet: {why}") from error
            self._channel = grpc.aio.secure_channel(self._address, credentials, options=CHANNEL_OPTIONS)
        return self._channel

    def _drop(self, broken: grpc.aio.Channel) -> None:
        """The next call connects again, unless another one has done so since."""
        if self._channel is broken:
            self._channel = None
            task = asyncio.ensure_future(broken.close(OLD_CALLS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)


def problem_of(error: grpc.aio.AioRpcError) -> Problem:
    """What the fleet said; RouteUnknown where it said nothing."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    said = next((value for key, value in pairs if key == DETAIL and isinstance(value, bytes)), None)
    code = error.code().name
    try:
        detail = ErrorDetail.FromString(said) if said is not None else None
    except DecodeError:
        detail = None
    if detail is None or code not in CODES:
        return GatewayReason.ROUTE_UNKNOWN.problem(f"cannot ask the fleet: it does not answer ({code})")
    subject = detail.subject.decode("utf-8", "surrogateescape")
    return Problem(Code(code), detail.reason, detail.message, subject, passing=detail.retryable)
