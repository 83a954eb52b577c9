"""A tunnel to a port of a sandbox beside a direct connection of this machine."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

MIB = 1 << 20
ROUND_TRIPS, CONNECTIONS, BULK = 500, 50, 256 * MIB
ROUNDS = 5
# Echoes lines of "size\n" with so many bytes: one byte for a round trip, many for the throughput.
SERVER = f"""
import asyncio
async def serve(reader, writer):
    while line := await reader.readline():
        left = int(line)
        while left > 0:
            writer.write(b"x" * min(left, {MIB}))
            left -= {MIB}
            await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(1e6)
asyncio.run(main())
"""
DIRECT = "beside a direct connection of this machine to the same program"


def figures() -> Iterator[Figure]:
    progress("a tunnel, and a direct connection")
    yield from asyncio.run(measure(AsyncSandbox.create))


async def measure(create: Callable[[], Awaitable[AsyncSandbox]]) -> list[Figure]:
    async with await create() as sandbox, directly() as direct:
        handle = await sandbox.commands.run(["python3", "-c", SERVER.replace("PORT", "7000")], background=True)
        await anext(handle)
        async with await sandbox.forward(7000) as forward:
            ours, theirs = ([[], [], []], [[], [], []])
            # By turns, so that both see the same noise.
            for _ in range(ROUNDS):
                for port, samples in ((forward.local_port, ours), (direct, theirs)):
                    samples[0] += await round_trips(port)
                    samples[1] += [await first_byte(port) for _ in range(CONNECTIONS // ROUNDS)]
                    samples[2].append(await throughput(port))
    return [
        Figure("round trip of a byte by a tunnel, p50", quantile(ours[0], 0.5), "ms", quantile(theirs[0], 0.5), DIRECT),
        Figure(
            "round trip of a byte by a tunnel, p99", quantile(ours[0], 0.99), "ms", quantile(theirs[0], 0.99), DIRECT
        ),
        Figure("new connection's first byte, p50", quantile(ours[1], 0.5), "ms", quantile(theirs[1], 0.5), DIRECT),
        Figure("throughput of one tunnel", quantile(ours[2], 0.5), "MB/s", quantile(theirs[2], 0.5), DIRECT),
    ]


@asynccontextmanager
async def directly() -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        "python3", "-c", SERVER.replace("PORT", "0"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    yield int(await process.stdout.readline())
    process.kill()
    await process.wait()


async def round_trips(port: int) -> list[float]:
    """Milliseconds of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    samples = []
    for _ in range(ROUND_TRIPS // ROUNDS):
        start = time.perf_counter()
        writer.write(b"1\n")
        await reader.readexactly(1)
        samples.append((time.perf_counter() - start) * 1e3)
    writer.close()
    return samples


async def first_byte(port: int) -> float:
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"1\n")
    await reader.readexactly(1)
    elapsed = time.perf_counter() - start
    writer.close()
    return elapsed * 1e3


async def throughput(port: int) -> float:
    """MB/s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    start = time.perf_counter()
    writer.write(f"{BULK // ROUNDS}\n".encode())
    left = BULK // ROUNDS
    while left > 0:
        left -= len(await reader.read(MIB))
    seconds = time.perf_counter() - start
    writer.close()
    return BULK / ROUNDS / 1e6 / seconds
