"""Threads that make a fork of this process unsafe: the child has only the forking thread, but the locks of all."""

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# The beginnings of names of threads that may be missing after a fork: their libraries handle that.
HARMLESS_THREADS = ("IPythonHistorySavingThread", "OpenBLAS", "omp_", "jemalloc_bg_thd", "tqdm_monitor")
# Libraries that handle it for their nameless pools (pthread_atfork), by a part of their file's name.
HARMLESS_POOLS = ("openblas", "libomp", "libiomp", "libmkl")
MAX_NAMES = 16
MAX_NAME = 64
# Kept, because code may replace it.
_getpid = os.getpid


def unsafe_threads() -> list[str]:
    """Names of live threads that are not known to be safe at a fork; Python's threads first, `MAX_NAMES` at most."""
    return [*unsafe(_python_threads()), *_native_threads()][:MAX_NAMES]


def unsafe(names: Iterable[str]) -> list[str]:
    """The names that are not known to be safe, of those of all threads but the forking one. Pure."""
    found = sorted(name[:MAX_NAME] for name in names if not name.startswith(HARMLESS_THREADS))
    return found[:MAX_NAMES]


def _python_threads() -> Iterator[str]:
    named: Mapping[int | None, str] = {each.ident: str(each.name) for each in threading.enumerate()}
    for ident in sys._current_frames().keys() - {threading.get_ident()}:  # noqa: SLF001 the only list with the nameless threads
        yield named.get(ident, "without a name")


def _native_threads() -> Iterator[str]:
    """Names of threads that libraries started and do not handle at a fork."""
    known = {each.native_id for each in threading.enumerate()} | {_getpid()}
    own = Path("/proc/self/comm").read_text().strip()
    pools: bool | None = None
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - numbers, not paths
        if int(task) in known:
            continue
        try:
            name = Path(f"/proc/self/task/{task}/comm").read_text().strip()
        except OSError:
            continue
        if name == own:
            pools = _has_harmless_pools() if pools is None else pools
        if not name.startswith(HARMLESS_THREADS) and not (name == own and pools):
            yield f"{name} (not Python's)"


def _has_harmless_pools() -> bool:
    maps = Path("/proc/self/maps").read_text(errors="replace")
    return any(name in maps for name in HARMLESS_POOLS)
