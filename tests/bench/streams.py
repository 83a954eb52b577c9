"""Streams: attaching and replaying beside the live stream, many at once beside one by one, and the cost of storing."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator

from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox
from sandfleet_executor.core.executions.events import STDOUT, Finished, Output, Started
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.effects.executions.registry import Executions
from sandfleet_executor.effects.executions.store.log import Store
from sandfleet_executor.servicers.convert import common as convert

MIB = 1 << 20
SIZE = 10 * MIB
STREAMS = 1000
RUNS = 300


def figures() -> Iterator[Figure]:
    progress("a stream of 10 MB, live and again")
    yield from asyncio.run(measure(AsyncSandbox.create))
    progress("what storing costs a cell")
    yield from asyncio.run(storing())


async def measure(create: Callable[[], Awaitable[AsyncSandbox]]) -> list[Figure]:
    """A live stream and its replay, and many short replays at once and one after the other."""
    async with await create() as sandbox:
        line = f"head -c {SIZE} /dev/zero | tr '\\0' x"
        live, replay = [], []
        for turn in range(5):
            began = time.perf_counter()
            handle = await sandbox.commands.run(line, background=True, execution_id=f"big-{turn}")
            await handle.wait()
            live.append(time.perf_counter() - began)
            began = time.perf_counter()
            await (await sandbox.commands.connect(f"big-{turn}")).wait()
            replay.append(time.perf_counter() - began)
        await sandbox.run_code("print('short')", execution_id="short")
        began = time.perf_counter()
        await asyncio.gather(*(sandbox.attach("short") for _ in range(STREAMS)))
        many = (time.perf_counter() - began) / STREAMS
        began = time.perf_counter()
        for _ in range(STREAMS // 5):
            await sandbox.attach("short")
        single = (time.perf_counter() - began) / (STREAMS // 5)
    note = "beside the live stream that it was"
    return [
        Figure("replay of 10 MB", quantile(replay, 0.5) * 1e3, "ms", quantile(live, 0.5) * 1e3, note),
        Figure(f"{STREAMS} replays at once, each", many * 1e3, "ms", single * 1e3, "beside one after the other"),
    ]


async def storing() -> list[Figure]:
    """What an executor does for a trivial cell itself: from its id to the batch that goes to the client."""
    with tempfile.TemporaryDirectory() as folder:
        stored, unstored = Executions(Store(folder), convert.stored), Executions(None, convert.stored)
        took: dict[bool, list[float]] = {True: [], False: []}
        # By turns, so that both see the same noise.
        for turn in range(RUNS):
            for with_store, executions in ((True, stored), (False, unstored)):
                began = time.perf_counter()
                execution = executions.begin(CELL, f"e-{turn}", b"f" * 16, MIB)
                execution.emit(Started(execution.id, "default", turn))
                execution.emit(Output(STDOUT, b"1\n"))
                execution.emit(Finished("ok"))
                async for _ in execution.batches():
                    took[with_store].append((time.perf_counter() - began) * 1e3)
                await executions.end(execution)
    note = "beside the same without a store; two small writes to open files"
    return [
        Figure(
            f"a cell's events, p{share * 100:g}", quantile(took[True], share), "ms", quantile(took[False], share), note
        )
        for share in (0.5, 0.99)
    ]
