"""Which threads make a fork of this process unsafe: a child gets only the forking thread, and the locks of all."""

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# Threads whose end at a fork does no harm, by the beginning of their name: what starts them takes care of it.
HARMLESS_THREADS = ("IPythonHistorySavingThread", "OpenBLAS", "omp_", "jemalloc_bg_thd", "tqdm_monitor")
# Libraries whose nameless pools do so (pthread_atfork), by a part of their file's name.
HARMLESS_POOLS = ("openblas", "libomp", "libiomp", "libmkl")
MAX_NAMES = 16
MAX_NAME = 64
# Code may replace it.
_getpid = os.getpid


def unsafe_threads() -> list[str]:
    """The names of live threads that are not known to survive a fork, a few of them at most; Python's own come first."""
    return [*unsafe(_python_threads()), *_native_threads()][:MAX_NAMES]


def unsafe(names: Iterable[str]) -> list[str]:
    """Of these names (other threads than the one that forks) those that are not known to be safe. Pure."""
    found = sorted(name[:MAX_NAME] for name in names if not name.startswith(HARMLESS_THREADS))
    return found[:MAX_NAMES]


def _python_threads() -> Iterator[str]:
    named: Mapping[int | None, str] = {each.ident: str(each.name) for each in threading.enumerate()}
    for ident in sys._current_frames().keys() - {threading.get_ident()}:  # noqa: SLF001 the only list with the nameless
        yield named.get(ident, "without a name")


def _native_threads() -> Iterator[str]:
    """Of libraries that do not take care of them."""
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
