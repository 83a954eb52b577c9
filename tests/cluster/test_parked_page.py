"""The half of docs/tutorial/park-a-session.md that needs a cluster: its blocks run as written, one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.harness.layout import REPOSITORY
from cluster.harness.testing import Cluster
from cluster.readers import Reader, reading
from support.pages import blocks_of

PAGE = "docs/tutorial/park-a-session.md"
ENVIRONMENT = "/var/lib/sandfleet-cluster/s3.env"

# Its pods and volumes are in the namespace "default", where each must be the page's.
pytestmark = pytest.mark.alone(on="cluster")


@pytest.fixture
def server(node: Cluster) -> Iterator[Path]:
    """`make cluster-bucket` in a terminal; the file with its address, which goes with it."""
    assert node.layout is not None
    command = [sys.executable, "-m", "cluster.harness", "s3"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")}
    file = node.layout.root / "s3.env"
    process = subprocess.Popen(command, env=environment)
    node.api.wait("the S3 server", lambda: file.exists() and bool(file.read_text()), 60)
    yield file
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert not file.exists()


@pytest.fixture
def reader(images: Cluster, kinds: None, program: Callable[[str], Path], tmp_path: Path) -> Iterator[Reader]:
    with reading(images, program, tmp_path, "default") as one:
        yield one
        images.kubectl("delete", "rolebinding", "agents", "-n", "default", "--ignore-not-found")


@pytest.mark.timeout(600)
def test_a_reader_parks_a_session_of_a_cluster_and_takes_it_on(server: Path, reader: Reader, images: Cluster) -> None:
    followed = [block for block in blocks_of(PAGE) if block.only_read == "needs a cluster"]
    said = [reader.follow(block, (ENVIRONMENT, str(server))) for block in followed]
    session = (reader.folder / "session.txt").read_text().strip().partition("/")[2]
    (listed,) = (text for text in said if "codesandbox.sandfleet.io/" in text and "pod/" in text)
    # It is nothing but its object.
    named = [line.split() for line in listed.splitlines() if session in line and "condition met" not in line]
    assert [line[0] for line in named] == [f"codesandbox.sandfleet.io/{session}"]
    assert "Suspended" in named[0]
    (objects,) = (text for text in said if "before-the-experiment" in text and "deleted" in text)
    assert "NAME" in objects
