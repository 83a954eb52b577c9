"""Modules that the spawner imports before it forks contexts, which then share them in memory.

They come from the image: what user code has installed is not on the spawner's path. The executor hears of each module
before it is imported, {"event":"preloading","module"}, and after, {"event":"preloaded","module","problem"}. A module
that does harm here ends the spawner; the executor starts it again without that module.
"""

import contextlib
import gc
import importlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..base import process
from ..python import fork_safety

# Exit code of a spawner that a module has made unusable.
EXIT_HARMED = 71
MAX_PROBLEM = 300
# What modules find that look for a place of their own: nothing of the workspace, which is the user's.
ENVIRONMENT = {"HOME": "/tmp", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # noqa: S108 - the namespace's own


class Preload:
    def __init__(self, modules: Sequence[str], most_bytes: int, send: Callable[[dict[str, Any]], None]) -> None:
        """`most_bytes`: resident memory that the spawner may have with all of them."""
        self._modules = list(modules)
        self._most_bytes = most_bytes
        self._send = send

    @property
    def due(self) -> bool:
        return bool(self._modules)

    def load(self) -> None:
        """Imports the modules; once."""
        with quiet():
            while self._modules:
                name = self._modules.pop(0)
                self._send({"event": "preloading", "module": name})
                problem = import_one(name)
                harm = self._harm()
                self._send({"event": "preloaded", "module": name, "problem": (harm or problem)[:MAX_PROBLEM]})
                if harm:
                    os._exit(EXIT_HARMED)
        gc.collect()
        # The collector of a context then skips what all contexts share, and does not cause copies of its pages.
        gc.freeze()

    def _harm(self) -> str:
        """Why contexts cannot be forked any more; empty where they can."""
        if threads := fork_safety.unsafe_threads():
            return f"it starts the thread {threads[0]!r}, and threads cannot be shared"
        if process.resident_bytes() > self._most_bytes:
            return f"with it the modules take more than {self._most_bytes >> 20} MiB, half of the sandbox's memory"
        return ""


def import_one(name: str) -> str:
    """Why the module cannot be imported; empty where it was."""
    try:
        importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - a module may raise SystemExit, too
        return f"{type(error).__name__}: {error}"
    return ""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without output, in a folder and with variables that are not the user's; afterwards signals are as before."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)}
    folder, kept, before = os.getcwd(), [os.dup(1), os.dup(2)], dict(os.environ)  # noqa: PTH109 - pathlib is not needed
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)
    os.environ.update(ENVIRONMENT)
    os.chdir("/")
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(before)
        for number, fd in zip((1, 2), kept, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        for number, handler in handlers.items():
            signal.signal(number, handler)
