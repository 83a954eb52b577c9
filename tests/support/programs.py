"""Programs of others that tests run, as `make cluster-binaries` has built them."""

import shutil
from pathlib import Path

import pytest
from cluster.harness import binaries
from cluster.harness.layout import cache


def built(name: str) -> Path:
    """One of the programs of tests/cluster/go. It is never built here: without it the test is skipped."""
    if found := shutil.which(f"sandfleet-{name}"):
        return Path(found)
    there = [path for path in (cache() / "bin").glob(f"{name}-*/{name}") if binaries.intact(path.parent)]
    if not there:
        pytest.skip(f"needs the program {name} in the cache (make cluster-binaries builds it)")
    return max(there, key=lambda path: path.stat().st_mtime)
