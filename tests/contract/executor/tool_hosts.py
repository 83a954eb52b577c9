"""Hosts of tools beside the client: a bare one that sends what the client never does, and one in another process.

`python tool_hosts.py` is that process: it is told the executor on its standard input, and says what it runs.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from contract.executor.harness import ExecutorUnderTest
from sandfleet import tool
from sandfleet_api.executor.v1 import tools_pb2 as pb
from sandfleet_api.executor.v1 import tools_pb2_grpc


def spec(name, **said):
    return pb.ToolSpec(name=name, **{"schema_json": "{}", **said})


def value(text, *blobs):
    """An outcome."""
    return {"value": pb.ToolValue(json=text, blobs=blobs)}


class BareHost:
    """One stream to the broker."""

    def __init__(self, stream):
        self.stream = stream

    @classmethod
    async def begin(cls, executor, channel, offer):
        """The stream, with its offer sent."""
        metadata = (("authorization", f"Bearer {executor.token()}"),)
        made = cls(tools_pb2_grpc.ToolBrokerServiceStub(channel).Serve(metadata=metadata))
        await made.stream.write(pb.ServeRequest(offer=offer))
        return made

    @classmethod
    async def serving(cls, executor, channel, *names, host_id="bare"):
        """As `begin`, when the executor says that it is ready."""
        made = await cls.begin(executor, channel, pb.ToolOffer(tools=map(spec, names), host_id=host_id))
        assert (await made.stream.read()).WhichOneof("message") == "ready"
        return made

    async def call(self):
        """The next call."""
        while (message := await self.stream.read()).WhichOneof("message") != "call":
            pass
        return message.call

    async def answer(self, call_id, **outcome):
        await self.stream.write(pb.ServeRequest(answer=pb.ToolAnswer(call_id=call_id, **outcome)))


@asynccontextmanager
async def host_process(executor):
    """Another process that serves `pay` and `look` to the executor, and ends no call."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    said = {"config": executor.config, "ca": executor.ca.decode(), "token": executor.token()}
    process.stdin.write(json.dumps(said).encode() + b"\n")
    try:
        assert await process.stdout.readline() == b"serving\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def main():
    said = json.loads(sys.stdin.readline())
    client = ExecutorUnderTest(None, said["config"], ca=said["ca"].encode()).client(token=said["token"])

    async def pay():
        print("runs", flush=True)
        await asyncio.Event().wait()

    async def look():
        await pay()

    await client.serve_tools([pay, tool(look, idempotent=True)])
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
