"""What listens in a sandbox, and the ways to it: for the tests of tunnels."""

import asyncio
import contextlib

import grpc
import pytest
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.executor.v1 import port_pb2 as pb
from sandfleet_api.executor.v1.port_pb2_grpc import PortServiceStub

MIB = 1 << 20
ECHO, UPPER_AT_END, SINK, SOURCE, RESETS, SILENT, GREETS, SIX = 7001, 7002, 7003, 7004, 7005, 7006, 7007, 7008
# The server in the sandbox; each port does one thing with its connections.
SERVERS = f"""
import asyncio, hashlib, socket, struct

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def upper_at_end(reader, writer):
    writer.write((await reader.read()).upper())
    writer.close()

async def sink(reader, writer):
    seen, size = hashlib.sha256(), 0
    while data := await reader.read(65536):
        seen.update(data)
        size += len(data)
    writer.write(f"{{size}} {{seen.hexdigest()}}".encode())
    writer.close()

async def source(reader, writer):
    size = int(await reader.readline())
    for _ in range(size >> 16):
        writer.write(b"s" * 65536)
        await writer.drain()
    writer.close()

async def resets(reader, writer):
    await reader.readline()
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

async def silent(reader, writer):
    await asyncio.sleep(1e6)

async def greets(reader, writer):
    # Says all that it has to say at once, and goes on listening.
    writer.write(b"hello")
    writer.write_eof()
    heard = await reader.read()
    open("/workspace/heard", "wb").write(heard)
    writer.close()

async def main():
    handlers = [echo, upper_at_end, sink, source, resets, silent, greets]
    servers = [await asyncio.start_server(each, "127.0.0.1", 7001 + n, backlog=256) for n, each in enumerate(handlers)]
    servers.append(await asyncio.start_server(echo, "::1", {SIX}))
    print("ready", flush=True)
    await asyncio.sleep(1e6)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def serving(sandbox):
    """While `SERVERS` run."""
    await sandbox.files.write("servers.py", SERVERS)
    handle = await sandbox.commands.run(["python3", "servers.py"], background=True, timeout=3000)
    assert (await anext(handle)).text == "ready\n"
    yield
    await handle.kill()


@contextlib.asynccontextmanager
async def connected(sandbox, port):
    async with await sandbox.forward(port) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        yield reader, writer
        writer.close()


class Bare:
    """The RPC itself."""

    def __init__(self, executor, channel, token=None):
        self.call = PortServiceStub(channel).Tunnel(
            metadata=(("authorization", f"Bearer {token or executor.token()}"),)
        )

    async def open(self, port):
        await self.call.write(pb.TunnelRequest(open=pb.TunnelOpen(port=port)))
        answer = await self.call.read()
        assert answer.WhichOneof("message") == "opened"
        return self

    async def send(self, data):
        await self.call.write(pb.TunnelRequest(data=data))

    async def end(self):
        await self.call.write(pb.TunnelRequest(end=pb.TunnelEnd()))

    async def rest(self):
        """(bytes until the end of the other side, whether it said that it ends)."""
        found = b""
        while (message := await self.call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("message") == "end":
                return found, True
            found += message.data
        return found, False

    async def failure(self):
        """How it failed; what comes before is dropped."""
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            while await self.call.read() is not grpc.aio.EOF:
                pass
            # A stream that ended well raises nothing: then this is the failure.
            assert await self.call.code() is not grpc.StatusCode.OK
        return detail_of(failed.value)


def detail_of(error):
    raw = dict(error.trailing_metadata())["sandfleet-error-bin"]
    return error.code().name, common_pb2.ErrorDetail.FromString(raw)


async def refused(executor, channel, port, token=None):
    bare = Bare(executor, channel, token)
    # The refusal may come before the request is sent.
    with contextlib.suppress(grpc.aio.AioRpcError):
        await bare.call.write(pb.TunnelRequest(open=pb.TunnelOpen(port=port)))
    return await bare.failure()
