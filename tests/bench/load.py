"""Bytes through a gateway, or directly: what sends them, and what reads them, each in a process of its own."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.fleet.gateway.identity import NAME

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.ports import free_port

MIB = 1 << 20
TUNNELS = 8
# What an executor sends at once.
PIECE = 256 << 10
# Of what is elsewhere in a cluster: only what the others leave.
ELSEWHERE_NICE = 19
# Sends without end to each connection that says something.
SOURCE = f"""
import socket, threading
def serve(connection):
    connection.recv(16)
    try:
        while True:
            connection.sendall(bytes({MIB}))
    except OSError:
        pass
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
# Is what a gateway is for its clients, without one: makes the bytes itself, as an executor that is reached directly.
SENDER = f"""
import asyncio, sys
from pathlib import Path
import grpc
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayServiceServicer, add_GatewayServiceServicer_to_server
class Sender(GatewayServiceServicer):
    async def Tunnel(self, messages, context):
        await context.write(pb.TunnelResponse(opened=pb.TunnelOpened()))
        while True:
            await context.write(pb.TunnelResponse(data=bytes({PIECE})))
async def main():
    server = grpc.aio.server()
    add_GatewayServiceServicer_to_server(Sender(), server)
    pair = [Path(name).read_bytes() for name in sys.argv[1:]]
    print(server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair])), flush=True)
    await server.start()
    await server.wait_for_termination()
asyncio.run(main())
"""
# Reads so many MB/s in streams of what serves at 127.0.0.1:PORT, and says each second how many bytes.
READER = """
import asyncio, sys, time
import grpc
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayServiceStub
port, ca, token, sandbox, tunnels, rate = sys.argv[1:]
got, begin = 0, 0.0
async def read(stub):
    global got
    call = stub.Tunnel(metadata=(("authorization", "Bearer " + token),), wait_for_ready=True)
    await call.write(pb.TunnelRequest(open=pb.TunnelOpen(sandbox_id=sandbox)))
    await call.read()
    await call.write(pb.TunnelRequest(data=b"go"))
    while (message := await call.read()) is not grpc.aio.EOF:
        got += len(message.data)
        await asyncio.sleep(max(0.0, begin + got / float(rate) / 1e6 - time.monotonic()))
async def main():
    global got, begin
    begin = time.monotonic()
    options = [("grpc.ssl_target_name_override", "sandfleet-gateway")]
    credentials = grpc.ssl_channel_credentials(open(ca, "rb").read())
    async with grpc.aio.secure_channel("127.0.0.1:" + port, credentials, options=options) as channel:
        tasks = [asyncio.ensure_future(read(GatewayServiceStub(channel))) for _ in range(int(tunnels))]
        last = 0
        while not any(task.done() for task in tasks):
            await asyncio.sleep(1)
            print(got - last, flush=True)
            last = got
asyncio.run(main())
"""


@dataclass(frozen=True)
class Carrier:
    """Serves streams of bytes at a port of this machine; `ca` signed its certificate."""

    port: int
    pid: int
    ca: Path


@contextlib.contextmanager
def gateway(folder: Path, fleet: int, nice: int = 0) -> Iterator[Carrier]:
    """A gateway's process with the credentials of the folder."""
    port = free_port()
    command = ["-m", "sandfleet_operator", "gateway", "--credentials", str(folder), "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, *command, "--fleet", f"localhost:{fleet}"], stderr=subprocess.DEVNULL, start_new_session=True
    )
    _give_way(process.pid, nice)
    try:
        yield Carrier(port, process.pid, folder / "ca.crt")
    finally:
        process.terminate()
        process.wait()


def _give_way(pid: int, nice: int) -> None:
    """Of a process with a session of its own. Linux weighs sessions, and niceness within each."""
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


@contextlib.contextmanager
def source() -> Iterator[int]:
    with _elsewhere(SOURCE) as process:
        assert process.stdout
        yield int(process.stdout.readline())


@contextlib.contextmanager
def sender(folder: Path) -> Iterator[Carrier]:
    now = time.time()
    authority = Authority.new(now)
    files = [folder / name for name in ("sender.key", "sender.crt", "sender-ca.crt")]
    for file, pem in zip(files, (*authority.server([NAME], now, 86400.0), authority.pem), strict=True):
        file.write_bytes(pem)
    with _elsewhere(SENDER, *map(str, files[:2])) as process:
        assert process.stdout
        yield Carrier(int(process.stdout.readline()), process.pid, files[2])


@contextlib.contextmanager
def reader(carrier: Carrier, token: str, sandbox: str, rate: float) -> Iterator[list[float]]:
    """Reads so many MB/s; the list has the bytes of each second, when it is over."""
    read: list[float] = []
    with _elsewhere(READER, str(carrier.port), str(carrier.ca), token, sandbox, str(TUNNELS), str(rate)) as process:
        assert process.stdout
        # The first second opens the tunnels.
        process.stdout.readline()
        yield read
        process.kill()
        read += [float(line) for line in process.stdout.read().split()]


@contextlib.contextmanager
def _elsewhere(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        _give_way(process.pid, ELSEWHERE_NICE)
        try:
            yield process
        finally:
            process.kill()
