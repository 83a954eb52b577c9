"""Trees there and back: many small files, and a large one. SANDFLEET_BENCH_FILE_MB=1024 makes the large one larger."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from figures import Figure, progress, quantile
from sandfleet import Sandbox

SMALL, SMALL_BYTES = 1000, 2000
LARGE = int(os.environ.get("SANDFLEET_BENCH_FILE_MB", "256")) << 20
ROUNDS = 5
NOTE = "beside tar | tar on this machine"


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, Sandbox.create() as sandbox:
        base = Path(folder)
        progress(f"{SMALL} small files there and back")
        yield from small(sandbox, make_small(base / "small"), base)
        progress(f"a file of {LARGE >> 20} MiB there and back")
        yield from large(sandbox, make_large(base / "large"), base)


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


def small(sandbox: Sandbox, top: Path, base: Path) -> Iterator[Figure]:
    """Milliseconds for all of them, each time to a new place."""
    up, down, tar = [], [], []
    for number in range(ROUNDS):
        up.append(timed(lambda to=f"small{number}": sandbox.files.upload(top, to)))
        down.append(timed(lambda to=base / f"down{number}": sandbox.files.download("small0", to)))
        tar.append(timed(lambda to=base / f"tar{number}": piped(top, to)))
    baseline = quantile(tar, 0.5) * 1e3
    yield Figure(f"upload of {SMALL} small files, p50", quantile(up, 0.5) * 1e3, "ms", baseline, NOTE)
    yield Figure(f"download of {SMALL} small files, p50", quantile(down, 0.5) * 1e3, "ms", baseline, NOTE)


def large(sandbox: Sandbox, top: Path, base: Path) -> Iterator[Figure]:
    """MB/s. First as a tree, then as a file of its own."""
    rate = LARGE / 1e6
    baseline = rate / timed(lambda: piped(top, base / "tar-large"))
    yield Figure(
        "upload of a large file in a tree",
        rate / timed(lambda: sandbox.files.upload(top, "large")),
        "MB/s",
        baseline,
        NOTE,
    )
    yield Figure(
        "download of a large file in a tree",
        rate / timed(lambda: sandbox.files.download("large", base / "back")),
        "MB/s",
        baseline,
        NOTE,
    )
    sandbox.files.remove("large", recursive=True)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def piped(top: Path, to: Path) -> None:
    to.mkdir()
    subprocess.run(f"tar -C {top} -cf - . | tar -C {to} -xf -", shell=True, check=True)
