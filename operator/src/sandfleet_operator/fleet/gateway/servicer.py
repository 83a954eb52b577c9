"""The gRPC face of the gateway: messages in and out, and failures as status codes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from sandfleet_api.executor.v1.port_pb2 import TunnelEnd
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import GatewayReason
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.calls import Context
from sandfleet_operator.fleet.gateway.messages import data_response
from sandfleet_operator.fleet.gateway.tunnels import Tunnel, Tunnels

MAX_DATA_BYTES = 256 << 10
# Seconds that a client may take to name the sandbox.
OPEN_SECONDS = 5.0


class GatewayServicer(GatewayServiceServicer):
    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels = tunnels

    async def Tunnel(self, request_iterator: AsyncIterator[pb.TunnelRequest], context: Context) -> None:  # type: ignore[override] # noqa: N802 - gRPC's name; the stubs know generators alone
        try:
            sandbox_id = await first(request_iterator)
            async with self._tunnels.open(sandbox_id, calls.token(context)) as tunnel:
                await serve(tunnel, self._tunnels.until_refused, request_iterator, context)
        except FleetError as error:
            await calls.abort(context, error.problem)


async def serve(
    tunnel: Tunnel,
    until_refused: Callable[[Tunnel], Coroutine[Any, Any, None]],
    messages: AsyncIterator[pb.TunnelRequest],
    context: Context,
) -> None:
    """From the first answer to the last; `until_refused` raises FleetError when the tunnel has to end."""
    try:
        await context.write(pb.TunnelResponse(opened=pb.TunnelOpened(sandbox_uid=tunnel.route.sandbox_uid)))
        await carry(tunnel, until_refused(tunnel), send(tunnel, messages), receive(tunnel, context))
    except FleetError as error:
        tunnel.close()
        # It counts until the client has read what was sent before: a client that reads nothing cannot pile them up.
        await calls.abort(context, error.problem)


async def first(messages: AsyncIterator[pb.TunnelRequest]) -> str:
    """The sandbox that the first message names. Raises FleetError."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            message = await anext(aiter(messages), pb.TunnelRequest())
    except TimeoutError:
        message = pb.TunnelRequest()
    if message.WhichOneof("message") != "open":
        raise GatewayReason.INVALID_TUNNEL.error("cannot open a tunnel: the first message has to name the sandbox")
    return message.open.sandbox_id


async def carry(tunnel: Tunnel, *work: Coroutine[Any, Any, None]) -> None:
    """Takes both directions to their ends. Raises what ended the first that failed."""
    running = {asyncio.ensure_future(one) for one in work}
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


async def receive(tunnel: Tunnel, context: Context) -> None:
    """Until the executor says that it sends no more."""
    async for piece in tunnel.read():
        await context.write(data_response(piece))
    await context.write(pb.TunnelResponse(end=TunnelEnd()))


async def send(tunnel: Tunnel, messages: AsyncIterator[pb.TunnelRequest]) -> None:
    """Until the client says that it sends no more. Raises FleetError."""
    async for message in messages:
        match message.WhichOneof("message"):
            case "data" if len(message.data) <= MAX_DATA_BYTES:
                await tunnel.write(message.data)
            case "token":
                tunnel.token = message.token
            case "end":
                tunnel.end()
                return
            case other:
                raise GatewayReason.INVALID_TUNNEL.error(
                    f"cannot go on with the connection: no {other!r} is allowed here"
                )
    raise GatewayReason.INVALID_TUNNEL.error("cannot go on with the connection: its client ended without saying so")
