"""Cells of each language beside Python's, in the same sandbox."""

import asyncio
import time
from collections.abc import Iterator

from cells import timed
from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

ROUNDS = 10
CELLS = 30
STARTS = 2
# Nothing, in each language beside Python.
NOTHING = {"bash": ":"}


def figures() -> Iterator[Figure]:
    yield from asyncio.run(measure())


async def measure() -> list[Figure]:
    async with await AsyncSandbox.create() as sandbox:
        return [figure for language in NOTHING for figure in await beside_python(sandbox, language)]


async def beside_python(sandbox: AsyncSandbox, language: str, *, where: str = "") -> list[Figure]:
    progress(f"cells of {language}, and Python's{where}")
    cells = {
        "python": lambda: sandbox.run_code("1"),
        language: lambda: sandbox.run_code(NOTHING[language], language=language),
    }
    samples: dict[str, list[float]] = {each: [] for each in cells}
    starts: dict[str, list[float]] = {each: [] for each in cells}
    for run in cells.values():
        await timed(run, CELLS)
    # By turns, so that both see the same noise.
    for _ in range(ROUNDS):
        for each, run in cells.items():
            samples[each] += await timed(run, CELLS)
            starts[each] += [await first_cell(sandbox, each) for _ in range(STARTS)]
    python = {share: quantile(samples["python"], share) for share in (0.5, 0.99)}
    found = [
        Figure(
            f"trivial cell of {language}{where}, p{share * 100:g}",
            quantile(samples[language], share),
            "ms",
            beside,
            "beside Python's",
        )
        for share, beside in python.items()
    ]
    note = "beside Python's"
    name = f"new context of {language} and its first cell{where}, p50"
    return [*found, Figure(name, quantile(starts[language], 0.5), "ms", quantile(starts["python"], 0.5), note)]


async def first_cell(sandbox: AsyncSandbox, language: str) -> float:
    start = time.perf_counter()
    context = await sandbox.create_context(language=language)
    await sandbox.run_code("", context=context)
    taken = (time.perf_counter() - start) * 1e3
    await sandbox.delete_context(context)
    return taken
