"""Servers bear the pings of clients whose calls are silent for long; by default gRPC ends their connections."""

import asyncio

import grpc
import pytest
from sandfleet_executor import server as executor
from sandfleet_operator.fleet.gateway import serve as gateway
from sandfleet_operator.fleet.kubernetes import serve as fleet

INTERVAL = "grpc.http2.min_ping_interval_without_data_ms"
# Everything happens so many times faster than in earnest: a client pings every 30 seconds.
FASTER = 50
PING_MS, SILENT = 30_000 // FASTER, 6.0


async def silent_call(options):
    """How a call ends that says nothing for a while, with a client that pings meanwhile."""

    async def silent(_request, _context):
        yield b"first"
        await asyncio.sleep(SILENT)
        yield b"last"

    handler = grpc.method_handlers_generic_handler("s", {"S": grpc.unary_stream_rpc_method_handler(silent)})
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    # Without the last one a client sends two pings and then one a minute: as many, later.
    pings = [("grpc.keepalive_time_ms", PING_MS), ("grpc.keepalive_timeout_ms", 10_000)]
    pings += [("grpc.http2.max_pings_without_data", 0)]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=pings) as channel:
            return [said async for said in channel.unary_stream("/s/S")(b"")][-1]
    except grpc.aio.AioRpcError as error:
        return error.details()
    finally:
        await server.stop(None)


@pytest.mark.parametrize("server", [fleet, gateway, executor], ids=["fleet", "gateway", "executor"])
async def test_a_call_that_is_silent_for_long_keeps_its_connection(server):
    options = dict(server.SERVER_OPTIONS)
    assert await silent_call([*{**options, INTERVAL: options[INTERVAL] // FASTER}.items()]) == b"last"


async def test_without_the_option_the_connection_ends():
    assert await silent_call([]) == "Too many pings"
