"""Trees there and back: many small files, and a large one. SANDFLEET_BENCH_FILE_MB=1024 makes the large one larger."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

SMALL, SMALL_BYTES = 1000, 2000
LARGE = int(os.environ.get("SANDFLEET_BENCH_FILE_MB", "256")) << 20
ROUNDS = 5
NOTE = "beside tar | tar on this machine"


def figures() -> Iterator[Figure]:
    yield from asyncio.run(measure(AsyncSandbox.create))


async def measure(create: Callable[[], Awaitable[AsyncSandbox]]) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        async with await create() as sandbox:
            base = Path(folder)
            progress(f"{SMALL} small files there and back")
            found = await small(sandbox, make_small(base / "small"), base)
            progress(f"a file of {LARGE >> 20} MiB there and back")
            return found + await large(sandbox, make_large(base / "large"), base)


def make_small(top: Path) -> Path:
    for number in range(SMALL):
        path = top / f"d{number % 20}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    return top


def make_large(top: Path) -> Path:
    top.mkdir()
    piece = os.urandom(1 << 20)
    with (top / "file").open("wb") as file:
        for _ in range(LARGE >> 20):
            file.write(piece)
    return top


async def small(sandbox: AsyncSandbox, top: Path, base: Path) -> list[Figure]:
    """Milliseconds for all of them, each time to a new place."""
    up, down, tar = [], [], []
    for number in range(ROUNDS):
        up.append(await timed(sandbox.files.upload(top, f"small{number}")))
        down.append(await timed(sandbox.files.download("small0", base / f"down{number}")))
        tar.append(await timed(piped(top, base / f"tar{number}")))
    baseline = quantile(tar, 0.5) * 1e3
    return [
        Figure(f"upload of {SMALL} small files, p50", quantile(up, 0.5) * 1e3, "ms", baseline, NOTE),
        Figure(f"download of {SMALL} small files, p50", quantile(down, 0.5) * 1e3, "ms", baseline, NOTE),
    ]


async def large(sandbox: AsyncSandbox, top: Path, base: Path) -> list[Figure]:
    """MB/s of a file in a tree."""
    rate = LARGE / 1e6
    baseline = rate / await timed(piped(top, base / "tar-large"))
    up = rate / await timed(sandbox.files.upload(top, "large"))
    down = rate / await timed(sandbox.files.download("large", base / "back"))
    await sandbox.files.remove("large", recursive=True)
    return [
        Figure("upload of a large file in a tree", up, "MB/s", baseline, NOTE),
        Figure("download of a large file in a tree", down, "MB/s", baseline, NOTE),
    ]


async def timed(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def piped(top: Path, to: Path) -> None:
    to.mkdir()
    process = await asyncio.create_subprocess_shell(f"tar -C {top} -cf - . | tar -C {to} -xf -")
    assert await process.wait() == 0
