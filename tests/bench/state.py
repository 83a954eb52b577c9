"""Saved variables beside pickle.dump to a file, and what automatic saves cost the next cell."""

import asyncio
import os
import pickle
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

RUNS, ROUNDS, CELLS = 7, 6, 25
ROWS, COLUMNS = 1_250_000, 10
MAKE = f"import numpy as np, pandas as pd\ndf = pd.DataFrame(np.arange({ROWS * COLUMNS}.0).reshape({ROWS}, {COLUMNS}))"


def figures() -> Iterator[Figure]:
    progress("save and restore of a data frame of 100 MB")
    yield from asyncio.run(measure(AsyncSandbox.create))


async def measure(create: Callable[..., Awaitable[AsyncSandbox]]) -> list[Figure]:
    """Of sandboxes that `create(autosave=…)` makes."""
    async with await create(autosave=False) as sandbox:
        found = await moves(sandbox)
    progress("the next cell, with and without automatic saves")
    async with await create(autosave=False) as plain, await create(autosave=True) as saving:
        return found + await next_cells(plain, saving)


async def moves(sandbox: AsyncSandbox) -> list[Figure]:
    """Save and restore; the baseline writes as durably, in one process."""
    await sandbox.run_code(MAKE)
    frame = pd.DataFrame(np.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS))
    saves, restores, dumps, loads = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frame"
        # By turns, so that both see the same noise.
        for _ in range(RUNS):
            saves.append(await timed(sandbox.states.save("frame")))
            dumps.append(clock(lambda: dump(frame, path)))
            restores.append(await timed(sandbox.states.restore("frame")))
            loads.append(clock(lambda: load(path)))
    note = "beside pickle to a file and fsync in one process"
    return [
        Figure("save of 100 MB, p50", quantile(saves, 0.5), "ms", quantile(dumps, 0.5), note),
        Figure("restore of 100 MB, p50", quantile(restores, 0.5), "ms", quantile(loads, 0.5), note),
    ]


async def next_cells(plain: AsyncSandbox, saving: AsyncSandbox) -> list[Figure]:
    """A trivial cell right after another one, and one that meets a save of 100 MB."""
    found = []
    for what, prepare in (("nothing", "x = 1"), ("100 MB", MAKE)):
        without, beside = [], []
        for sandbox in (plain, saving):
            await sandbox.run_code(prepare)
        for _ in range(ROUNDS):
            for sandbox, samples in ((plain, without), (saving, beside)):
                for _ in range(CELLS):
                    # Long enough for a save to have begun.
                    await asyncio.sleep(0.12)
                    samples.append(await timed(sandbox.run_code("1")))
        for share in (0.5, 0.99):
            name = f"cell with autosave, {what} to save, p{share * 100:g}"
            yielded = Figure(name, quantile(beside, share), "ms", quantile(without, share), "beside one without")
            found.append(yielded)
    return found


async def timed(work: Awaitable[object]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await work
    return (time.perf_counter() - start) * 1e3


def clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def dump(frame: pd.DataFrame, path: Path) -> None:
    with path.open("wb") as file:
        pickle.dump(frame, file, protocol=5)
        file.flush()
        os.fsync(file.fileno())


def load(path: Path) -> object:
    with path.open("rb") as file:
        return pickle.load(file)
