"""PortService."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from sandfleet_api.executor.v1 import port_pb2 as pb
from sandfleet_api.executor.v1 import port_pb2_grpc

from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.network.tunnels import Tunnel, TunnelError, Tunnels
from sandfleet_executor.servicers.errors import about, typed

MAX_DATA_BYTES = 1 << 20
OPEN_SECONDS = 30.0


class ResetByClient(TunnelError, code="ABORTED", reason="ConnectionReset"):
    why = "its client ended without saying so"


class PortService(port_pb2_grpc.PortServiceServicer):
    def __init__(self, opener: Tunnels) -> None:
        self._tunnels = opener

    async def Tunnel(self, request_iterator: AsyncIterator[pb.TunnelRequest], context: Any) -> None:  # type: ignore[override] # the stubs know generators alone
        port = await first(request_iterator)
        with about(str(port)), told(port):
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
    except TunnelError as error:
        raise typed(error, str(port), f"cannot go on with port {port}: {error.why}") from error
