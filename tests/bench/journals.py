"""Journals: how fast they are checked, exported and replayed."""

import asyncio
import hashlib
import json
import tempfile
import time
import tracemalloc
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from figures import Figure, progress, quantile, repeat
from sandfleet import AsyncSandbox
from sandfleet.journal.verify import verify
from sandfleet.replay import load, replay
from sandfleet_executor.core.executions.events import STDOUT, Files, Finished, Output, Usage
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.core.journal import records
from sandfleet_executor.core.journal.records import Head
from sandfleet_executor.core.journal.transcript import cell_asked
from sandfleet_executor.effects.executions.store.files import Folder
from sandfleet_executor.effects.journal.journal import Journal
from sandfleet_executor.effects.journal.recording import Recorder

RECORDS, CELLS, RUNS, WRITERS = 20_000, 100, 5, 8
CHUNK = 1 << 18


def figures() -> Iterator[Figure]:
    progress("a journal of cells")
    with tempfile.TemporaryDirectory() as folder:
        yield from checked(Path(folder) / "long.journal")
        yield from asyncio.run(replayed(Path(folder) / "session.journal"))
        yield from asyncio.run(cost(Path(folder) / "cost"))
        yield asyncio.run(exported(Path(folder) / "many.journal"))


def checked(path: Path) -> Iterator[Figure]:
    path.write_bytes(long_journal())
    size = path.stat().st_size
    seconds = min(repeat(lambda: verify(chunks(path)), RUNS, warm_up=1)) / 1e3
    plain = min(repeat(lambda: parsed(path), RUNS, warm_up=1)) / 1e3
    note = "beside the same lines only hashed and parsed; ≥ 20,000/s"
    yield Figure("records that are checked in a second", RECORDS / seconds, "", RECORDS / plain, note)
    yield Figure("record of a small cell", size / RECORDS, "bytes", None, "")
    tracemalloc.start()
    verify(chunks(path))
    most = tracemalloc.get_traced_memory()[1] / (1 << 20)
    tracemalloc.stop()
    yield Figure("memory of a check, at most", most, "MiB", size / (1 << 20), "beside the size of the journal: flat")


def long_journal() -> bytes:
    """Lines as an executor writes them for cells."""
    empty = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest(), "text": "", "cut": False}
    lines, head = [], Head()
    for number in range(RECORDS):
        code = f"total += rows[{number}]['margin']\nprint(total)"
        body = {
            "id": f"{number:032x}",
            "type": "cell",
            "begun": 1795598445.5,
            "outcome": "ok",
            "blame": "",
            "reason": "",
            "exit_code": None,
            "seconds": 0.0071,
            "error": None,
            "results": [],
            "files": {"changed": [], "removed": [], "complete": True},
            "rollback": None,
            "stdout": {**empty, "text": f"{number}\n"},
            "stderr": empty,
            "code": {**empty, "text": code},
            "context": "default",
            "language": "python",
            "env": {},
            "deadline": None,
            "rolls_back": False,
        }
        line, head = records.follow(head, "execution" if number else "opened", body, 1795598445.5)
        lines.append(line)
    return b"".join(lines)


async def cost(folder: Path) -> list[Figure]:
    """What an executor does for the record of a cell, on a disk, beside a whole cell of a client, in turns.

    The processor's time is counted, so that what else the machine does is in neither.
    """
    journal = Journal(Folder(str(folder)), "pod", time.time)
    journal.begin(dict)
    journal.open("session")
    recorder = Recorder(journal, time.time)
    end = Finished(outcome="ok", blame="", reason="", exit_code=None, files=Files(), usage=Usage(wall_seconds=0.007))
    async with await AsyncSandbox.create() as sandbox:
        await sandbox.run_code("0")
        cells, before, behind = [], [], []
        for number in range(CELLS * RUNS):
            code = f"x = {number}\nprint(x)"
            started = time.perf_counter()
            await sandbox.run_code(code)
            cells.append((time.perf_counter() - started) * 1e6)
            started = time.thread_time()
            recording = recorder.begin(f"{number:032x}", CELL)
            recording.note(**cell_asked(code, "default", "python", {}, None, on_failure=False))
            recording.see(Output(STDOUT, f"{number}\n".encode()))
            recording.see(end)
            shown = time.thread_time()
            await journal.settled()
            before.append((shown - started) * 1e6)
            behind.append((time.thread_time() - shown) * 1e6)
    whole = quantile(cells, 0.5)
    return [
        Figure("record of a cell, before its result, p50", quantile(before, 0.5), "µs", whole, spread(before)),
        Figure("record of a cell, behind its result, p50", quantile(behind, 0.5), "µs", whole, spread(behind)),
    ]


def spread(found: list[float]) -> str:
    return f"beside a whole cell, in turns; ≤ 0.03; p25 {quantile(found, 0.25):.0f}, p75 {quantile(found, 0.75):.0f}"


async def exported(path: Path) -> Figure:
    """The most memory that an export takes beside what the process had before it."""
    progress("exports of 1,000 and of 10,000 records")
    grown = []
    async with await AsyncSandbox.create() as sandbox:

        async def writes(part: int, count: int) -> None:
            for number in range(count):
                await sandbox.files.write(f"{part}.txt", f"{number}" + "x" * 600)

        for count in (1_000, 9_000):
            await asyncio.gather(*(writes(part, count // WRITERS) for part in range(WRITERS)))
            # The first one brings what each export needs.
            grown.append([await peak(sandbox.journal.export(path)) for _ in range(RUNS)][1:])
    note = f"beside 1,000 records: flat; {min(grown[1]):.1f} to {max(grown[1]):.1f}"
    return Figure(
        "memory of an export of 10,000 records, p50", quantile(grown[1], 0.5), "MiB", quantile(grown[0], 0.5), note
    )


async def peak(work: Coroutine[Any, Any, object]) -> float:
    """By how many MiB the resident memory rises while something is done."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    await work
    return max(0.0, memory("VmHWM") - before)


def memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(CHUNK), b"")


def parsed(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            hashlib.sha256(line).hexdigest()
            json.loads(line)


async def replayed(path: Path) -> list[Figure]:
    progress(f"a session of {CELLS} cells, exported and replayed")
    async with await AsyncSandbox.create() as sandbox:
        started = time.perf_counter()
        for number in range(CELLS):
            await sandbox.run_code(f"x = {number}\nprint(x)")
        first = time.perf_counter() - started
        exports = []
        for _ in range(RUNS):
            started = time.perf_counter()
            await sandbox.journal.export(path)
            exports.append((time.perf_counter() - started) * 1e3)
    found = load(path)
    async with await AsyncSandbox.create() as sandbox:
        started = time.perf_counter()
        done = await replay(found, sandbox)
        again = time.perf_counter() - started
    assert done.ok
    return [
        Figure(f"replay of {CELLS} cells", again * 1e3, "ms", first * 1e3, "beside their first run; ≤ 1.5"),
        Figure(f"export of {CELLS} cells with a signature, p50", quantile(exports, 0.5), "ms", None, ""),
    ]
