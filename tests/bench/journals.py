"""Journals: how fast they are checked, exported and replayed."""

import asyncio
import hashlib
import json
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, progress, quantile, repeat
from sandfleet import AsyncSandbox
from sandfleet.journal.verify import verify
from sandfleet.replay import load, replay
from sandfleet_executor.core.journal import records
from sandfleet_executor.core.journal.records import Head

RECORDS, CELLS, RUNS = 20_000, 100, 5
CHUNK = 1 << 18


def figures() -> Iterator[Figure]:
    progress("a journal of cells")
    with tempfile.TemporaryDirectory() as folder:
        yield from checked(Path(folder) / "long.journal")
        yield from asyncio.run(replayed(Path(folder) / "session.journal"))


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
