"""What an upload says when the server refuses it while the client still sends."""

import asyncio
import collections

import grpc
import pytest
from sandfleet.resources.files.transfer import sending

CALLS = 300
DETAIL = (("sandfleet-error-bin", b"the reason"),)


@pytest.fixture
async def refusing():
    """A channel to a server that refuses each upload before it reads anything."""

    async def refuse(_, context):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no", DETAIL)

    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    methods = {"Put": grpc.stream_unary_rpc_method_handler(refuse)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(0)


async def write(call, number):
    for _ in range(3 + number % 3):
        await call.write(b"x" * (1 << (number % 17)))


@pytest.mark.slow
async def test_a_refused_upload_fails_with_the_servers_reason(refusing):
    codes = collections.Counter()
    for number in range(CALLS):
        call = refusing.stream_unary("/test/Put")()
        async with asyncio.timeout(30):
            async with sending(call):
                await write(call, number)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
        codes[caught.value.code().name] += 1
    # gRPC itself rarely overwrites the server's status with that of the failed write.
    assert codes["FAILED_PRECONDITION"] >= CALLS * 0.9, codes


@pytest.mark.slow
async def test_without_it_some_refused_uploads_lose_the_servers_reason(refusing):
    codes = collections.Counter()
    for number in range(CALLS):
        call = refusing.stream_unary("/test/Put")()
        try:
            async with asyncio.timeout(30):
                await write(call, number)
                await call
        except grpc.aio.AioRpcError as error:
            codes[error.code().name] += 1
        except asyncio.InvalidStateError:
            codes["none"] += 1
        call.cancel()
    assert codes["INTERNAL"] > 0, codes


async def test_an_error_of_the_callers_data_cancels_the_upload(refusing):
    call = refusing.stream_unary("/test/Put")()
    with pytest.raises(ValueError, match="data"):
        async with sending(call):
            raise ValueError("data")
    assert call.cancelled()
