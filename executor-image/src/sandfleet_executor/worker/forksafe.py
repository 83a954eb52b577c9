"""Which threads make a fork of this process unsafe: a child gets only the forking thread, and the locks of all."""

import threading
from collections.abc import Iterable

# By the beginning of their names: threads that hold nothing between two cells, or whose library minds forks. The threads of BLAS and
# of DuckDB are not Python's and not seen here; both make theirs anew in a child.
KNOWN_SAFE = ("IPythonHistorySavingThread", "tqdm_monitor")
MAX_NAMES = 16
MAX_NAME = 64


def unsafe_threads() -> list[str]:
    """The names of live threads that are not known to survive a fork, a few of them at most."""
    own = threading.current_thread()
    return unsafe(str(thread.name) for thread in threading.enumerate() if thread is not own)


def unsafe(names: Iterable[str]) -> list[str]:
    """Of these names (other threads than the one that forks) those that are not known to be safe. Pure."""
    found = sorted(name[:MAX_NAME] for name in names if not name.startswith(KNOWN_SAFE))
    return found[:MAX_NAMES]
