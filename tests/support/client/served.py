"""A fleet of its own for the tests of one file: a process with real executors, and what it leaves behind."""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandfleet._fleets.embedded import Options, Process


@contextmanager
def served_fleet(options: Options) -> Iterator[Process]:
    """The process, which has ended afterwards and has left nothing."""
    # A short name: the paths of sockets below it are limited.
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        process = Process(options, state_dir=Path(base) / f"f-{secrets.token_hex(3)}")
        yield process
        process.stop()
        assert list(Path(base).iterdir()) == []
