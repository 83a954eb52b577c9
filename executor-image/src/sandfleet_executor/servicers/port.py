"""PortService."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import grpc
from sandfleet_api.executor.v1 import port_pb2 as pb
from sandfleet_api.executor.v1 import port_pb2_grpc

from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.network import tunnels
from sandfleet_executor.effects.network.tunnels import Tunnel, Tunnels
from sandfleet_executor.servicers.errors import ApiError, about

MAX_DATA_BYTES = 1 << 20
OPEN_SECONDS = 30.0


class ResetByClient(Exception):
    """The client went away in the middle."""


# Exception → (status, reason, retryable, why).
FAILURES: dict[type[Exception], tuple[grpc.StatusCode, str, bool, str]] = {
    tunnels.OwnPortError: (grpc.StatusCode.PERMISSION_DENIED, "OwnPort", False, "it is the executor's own"),
    tunnels.ConnectionRefused: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "ConnectionRefused",
        True,
        "no process listens on that port of the sandbox's loopback",
    ),
    tunnels.ConnectTimeout: (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "ConnectTimeout",
        True,
        "the process that listens there does not accept the connection",
    ),
    tunnels.TooManyTunnelsError: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TooMany",
        True,
        f"{tunnels.MOST_TUNNELS} connections are open",
    ),
    tunnels.ConnectionIdle: (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "ConnectionIdle",
        False,
        f"no byte came or went for {tunnels.IDLE_SECONDS:g} s",
    ),
    tunnels.ResetByPeer: (grpc.StatusCode.ABORTED, "ConnectionReset", False, "the other end reset the connection"),
    ResetByClient: (grpc.StatusCode.ABORTED, "ConnectionReset", False, "its client ended without saying so"),
}


class PortService(port_pb2_grpc.PortServiceServicer):
    def __init__(self, opener: Tunnels) -> None:
        self._tunnels = opener

    async def Tunnel(self, request_iterator: AsyncIterator[pb.TunnelRequest], context: Any) -> None:  # type: ignore[override] # the stubs know generators alone
        port = await first(request_iterator)
        with told(port), about(str(port)):
            async with self._tunnels.open(port) as tunnel:
                await context.write(pb.TunnelResponse(opened=pb.TunnelOpened()))
                await carry(tunnel, send(tunnel, request_iterator), receive(tunnel, context))


async def first(messages: AsyncIterator[pb.TunnelRequest]) -> int:
    """The port that the first message names. Raises BadRequest."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            message = await anext(aiter(messages), pb.TunnelRequest())
    except TimeoutError:
        message = pb.TunnelRequest()
    if message.WhichOneof("message") != "open":
        raise BadRequest("cannot open a tunnel: the first message has to name the port")
    return requests.check_port(message.open.port)


async def carry(tunnel: Tunnel, *directions: Coroutine[Any, Any, None]) -> None:
    """Takes both directions to their ends. Raises what ended the first that failed, or ConnectionIdle."""
    running = {asyncio.ensure_future(work) for work in (*directions, tunnel.until_idle())}
    try:
        while not tunnel.over:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    finally:
        for one in running:
            one.cancel()
        # Before the descriptor is closed, and its number perhaps in use again.
        await asyncio.gather(*running, return_exceptions=True)


async def receive(tunnel: Tunnel, context: Any) -> None:
    """Until the other end says that it sends no more. Raises ResetByPeer."""
    async for piece in tunnel.read():
        await context.write(pb.TunnelResponse(data=piece))
    await context.write(pb.TunnelResponse(end=pb.TunnelEnd()))


async def send(tunnel: Tunnel, messages: AsyncIterator[pb.TunnelRequest]) -> None:
    """Until the client says that it sends no more. Raises BadRequest, ResetByPeer and ResetByClient."""
    async for message in messages:
        match message.WhichOneof("message"):
            case "data":
                if len(message.data) > MAX_DATA_BYTES:
                    raise BadRequest(f"cannot send {len(message.data)} bytes at once: the most is {MAX_DATA_BYTES}")
                await tunnel.write(message.data)
            case "end":
                tunnel.end()
                return
            case "open":
                raise BadRequest("cannot open another port: a tunnel is one connection")
    raise ResetByClient


@contextlib.contextmanager
def told(port: int) -> Iterator[None]:
    """Turns what becomes of a connection into ApiError."""
    try:
        yield
    except tuple(FAILURES) as error:
        status, reason, retryable, why = FAILURES[type(error)]
        message = f"cannot go on with port {port}: {why}"
        raise ApiError(status, reason, message, retryable=retryable, subject=str(port).encode()) from error
