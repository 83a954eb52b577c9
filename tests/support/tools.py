"""Programs of others that tests run. `make tools` brings them; a test never builds or downloads one."""

import functools
import os
import shutil
from pathlib import Path

import pytest
from cluster.harness import binaries
from cluster.harness.layout import cache

HOW = "make tools"
# Set in CI, where `make tools` has run: a test that lacks a program fails there instead of being skipped.
REQUIRED = "SANDFLEET_TOOLS_REQUIRED"


def tool(name: str) -> Path:
    """A program on the path, or one of tests/cluster/go in the cache; without it the test is skipped."""
    if (path := located(name)) is None:
        missing(name)
    return path


@functools.cache
def located(name: str) -> Path | None:
    """Where the program is; None: it is missing. A build in the cache is compared with its checksums once."""
    for program in (name, f"sandfleet-{name}"):
        if path := shutil.which(program):
            return Path(path)
    built = [path for path in (cache() / "bin").glob(f"*/{name}") if binaries.intact(path.parent)]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)


def missing(name: str) -> None:
    """Skip this test, or fail it where all programs have to be there."""
    said = f"needs {name}: {HOW}"
    if os.environ.get(REQUIRED):
        pytest.fail(said)
    pytest.skip(said)
