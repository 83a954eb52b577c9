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
CELLS, WARM_UP, BLOCKS = 800, 20, 8
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


def figures() -> Iterator[Figure]:
    progress("tool calls, and a bare gRPC echo")
    yield from asyncio.run(measure())


async def echo(number: int) -> int:
    return number


async def measure() -> list[Figure]:
    async with AsyncSandbox.create(contract="brokered", tools=[echo]) as sandbox:
        found = await calls(sandbox, "", "≤ 1.5 ms without gVisor")
        async with AsyncSandbox.create() as autonomous:
            return [*found, await idle_broker(sandbox, autonomous, "")]


async def calls(sandbox: AsyncSandbox, where: str, target: str) -> list[Figure]:
    """Calls from a brokered sandbox to which this process gives `echo`."""
    async with bare() as call:
        ours: list[float] = []
        theirs: list[float] = []
        await sandbox.run_code(ONE_BY_ONE)
        # By turns, so that both see the same noise.
        for _ in range(ROUNDS):
            ours += json.loads((await sandbox.run_code(ONE_BY_ONE)).logs.stdout)
            theirs += [await timed(call) for _ in range(CALLS // ROUNDS)]
        threads, tasks = [float((await sandbox.run_code(code)).logs.stdout) for code in (BY_THREADS, BY_TASKS)]
    note = f"beside a bare gRPC echo over a unix socket; target {target}"
    return [
        Figure(f"tool call from a cell{where}, p50", quantile(ours, 0.5), "ms", quantile(theirs, 0.5), note),
        Figure(f"tool call from a cell{where}, p99", quantile(ours, 0.99), "ms", quantile(theirs, 0.99), note),
        Figure(f"tool calls of one cell{where}, {THREADS} threads", threads, "1/s", note="target ≥ 1,000/s"),
        Figure(f"tool calls of one cell{where}, {AT_ONCE} tasks", tasks, "1/s"),
    ]


async def idle_broker(brokered: AsyncSandbox, autonomous: AsyncSandbox, where: str) -> Figure:
    """A cell that calls no tool, by turns in two sandboxes."""
    # Thousands of calls, threads and tasks leave a large interpreter, of which each copy costs more: both begin anew.
    for sandbox in (brokered, autonomous):
        await sandbox.run_code("1")
        await sandbox.restart_context()
    taken: dict[AsyncSandbox, list[float]] = {brokered: [], autonomous: []}
    for number in range(CELLS + WARM_UP):
        for sandbox in taken if number % 2 else reversed(taken):
            start = time.perf_counter()
            await sandbox.run_code("pass")
            if number >= WARM_UP:
                taken[sandbox].append((time.perf_counter() - start) * 1e3)
    ours, theirs = (quantile(taken[sandbox], 0.5) for sandbox in (brokered, autonomous))
    blocks = sorted(
        quantile(taken[brokered][number::BLOCKS], 0.5) / quantile(taken[autonomous][number::BLOCKS], 0.5)
        for number in range(BLOCKS)
    )
    note = (
        f"{ours / theirs:.3f} of one of an autonomous sandbox; of {BLOCKS} blocks {blocks[1]:.3f} to {blocks[-2]:.3f}"
        " without the outermost two; target ≤ 1.02"
    )
    return Figure(f"cell of a brokered sandbox that calls no tool{where}, p50", ours, "ms", theirs, note)


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
