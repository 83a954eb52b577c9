"""ToolBrokerService."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sandfleet_api.executor.v1 import tools_pb2 as pb
from sandfleet_api.executor.v1 import tools_pb2_grpc

from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.tools.broker import MOST_TOGETHER, HostStream, ToolBroker
from sandfleet_executor.servicers.convert import tools as convert

OFFER_SECONDS = 30.0


class ToolBrokerService(tools_pb2_grpc.ToolBrokerServiceServicer):
    def __init__(self, broker: ToolBroker) -> None:
        self._broker = broker

    async def Serve(self, request_iterator: AsyncIterator[pb.ServeRequest], context: Any) -> None:  # type: ignore[override] # the stubs know generators alone
        offer = await first(request_iterator)
        host = requests.check_id("host id", offer.host_id)
        stream, outstanding = self._broker.connect(host, convert.offer(offer), takes_many=offer.takes_many)
        broken = True
        try:
            await context.write(pb.ServeResponse(ready=pb.ServeReady(outstanding=outstanding, takes_many=True)))
            broken = not await self._carry(stream, request_iterator, context)
        finally:
            self._broker.disconnect(stream, broken=broken)

    async def _carry(self, stream: HostStream, messages: AsyncIterator[pb.ServeRequest], context: Any) -> bool:
        """Until the stream ends; whether its host said that it stops. Raises ReplacedError and BadRequest."""
        sending = asyncio.ensure_future(send(stream, context))
        reading = asyncio.ensure_future(self._read(stream, messages))
        try:
            await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            if is_over := reading.result():
                stream.stop()
                await sending
            return is_over
        finally:
            sending.cancel()
            reading.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)

    async def _read(self, stream: HostStream, messages: AsyncIterator[pb.ServeRequest]) -> bool:
        """Whether the host said that it stops. Raises BadRequest."""
        async for request in messages:
            match request.WhichOneof("message"):
                case "answer":
                    if len(request.more_answers) >= MOST_TOGETHER:
                        raise BadRequest(f"cannot take more than {MOST_TOGETHER} answers in one message")
                    for each in (request.answer, *request.more_answers):
                        await self._broker.answer(stream, each.call_id, convert.answer(each))
                case "review":
                    self._broker.review(stream, request.review.call_id, over=request.review.over)
                case "end":
                    return True
                case _:
                    raise BadRequest("cannot take another offer: a new stream makes one")
        return False


async def first(messages: AsyncIterator[pb.ServeRequest]) -> pb.ToolOffer:
    """The offer. Raises BadRequest."""
    try:
        async with asyncio.timeout(OFFER_SECONDS):
            message = await anext(aiter(messages), pb.ServeRequest())
    except TimeoutError:
        message = pb.ServeRequest()
    if message.WhichOneof("message") != "offer":
        raise BadRequest("cannot serve tools: the first request has to be an offer")
    return message.offer


async def send(stream: HostStream, context: Any) -> None:
    """Until the host stops serving. Raises ReplacedError."""
    while (message := await stream.next()) is not None:
        await context.write(convert.response(message))
