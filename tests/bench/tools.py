"""A tool call from a cell to a host function and back, beside a bare gRPC echo of this machine."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

CALLS, ROUNDS = 500, 5
AT_ONCE, THREADS = 1000, 16
METHOD = "/echo/Echo"
# Milliseconds of each call, and calls in a second from threads and from tasks.
ONE_BY_ONE = f"""
import json, time
samples = []
for number in range({CALLS // ROUNDS}):
    start = time.perf_counter()
    tools.echo(number)
    samples.append((time.perf_counter() - start) * 1e3)
print(json.dumps(samples))
"""
BY_THREADS = f"""
import time
from concurrent.futures import ThreadPoolExecutor
start = time.perf_counter()
with ThreadPoolExecutor({THREADS}) as pool:
    list(pool.map(tools.echo, range({AT_ONCE})))
print({AT_ONCE} / (time.perf_counter() - start))
"""
BY_TASKS = f"""
import asyncio, time
start = time.perf_counter()
await asyncio.gather(*(tools.echo.aio(number) for number in range({AT_ONCE})))
print({AT_ONCE} / (time.perf_counter() - start))
"""
BARE = "beside a bare gRPC echo over a unix socket; target ≤ 1.5 ms without gVisor"


def figures() -> Iterator[Figure]:
    progress("tool calls, and a bare gRPC echo")
    yield from asyncio.run(measure())


async def echo(number: int) -> int:
    return number


async def measure() -> list[Figure]:
    async with AsyncSandbox.create(contract="brokered", tools=[echo]) as sandbox, bare() as call:
        ours: list[float] = []
        theirs: list[float] = []
        await sandbox.run_code(ONE_BY_ONE)
        # By turns, so that both see the same noise.
        for _ in range(ROUNDS):
            ours += json.loads((await sandbox.run_code(ONE_BY_ONE)).logs.stdout)
            theirs += [await timed(call) for _ in range(CALLS // ROUNDS)]
        threads, tasks = [float((await sandbox.run_code(code)).logs.stdout) for code in (BY_THREADS, BY_TASKS)]
    return [
        Figure("tool call from a cell, p50", quantile(ours, 0.5), "ms", quantile(theirs, 0.5), BARE),
        Figure("tool call from a cell, p99", quantile(ours, 0.99), "ms", quantile(theirs, 0.99), BARE),
        Figure(f"tool calls of one cell, {THREADS} threads", threads, "1/s", note="target ≥ 1,000/s"),
        Figure(f"tool calls of one cell, {AT_ONCE} tasks", tasks, "1/s"),
    ]


@asynccontextmanager
async def bare() -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable]:
    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return request

    handler = grpc.method_handlers_generic_handler("echo", {"Echo": grpc.unary_unary_rpc_method_handler(answer)})
    with tempfile.TemporaryDirectory() as folder:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{Path(folder) / 's'}")
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{Path(folder) / 's'}") as channel:
            yield channel.unary_unary(METHOD)
        await server.stop(0)


async def timed(call: grpc.aio.UnaryUnaryMultiCallable) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    await call(b"x")
    return (time.perf_counter() - start) * 1e3
