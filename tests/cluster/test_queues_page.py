"""The half of docs/howto/queues.md that needs a cluster: its blocks run as written, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.harness.testing import Cluster
from cluster.readers import SYSTEM, Reader, reading
from support.pages import blocks_of

PAGE, METRICS = "docs/howto/queues.md", "docs/reference/metrics.md"
TEAMS = ("search", "support", "batch")


def save(reader: Reader) -> None:
    """The files that the page shows: the queues, and values under the name in their first line."""
    shown = [block for block in blocks_of(PAGE) if block.language == "yaml"]
    for block in shown:
        name = block.text.splitlines()[0].removeprefix("# ") if block.kind == "values" else "queues.yaml"
        (reader.folder / name).write_text(block.text)


@pytest.fixture
def reader(images: Cluster, kinds: None, program: Callable[[str], Path], tmp_path: Path) -> Iterator[Reader]:
    """All that the page makes goes after the test."""
    with reading(images, program, tmp_path, SYSTEM, makes=TEAMS) as one:
        yield one
        images.kubectl("delete", "clusterrolebinding", "queue-admins", "--ignore-not-found")


@pytest.mark.timeout(600)
def test_a_reader_goes_from_helm_values_to_a_client_that_waits_and_gets_in(reader: Reader) -> None:
    save(reader)
    followed = [block for block in blocks_of(PAGE) if block.only_read == "needs a cluster"]
    said = {block: reader.follow(block) for block in followed}
    assert {block.language for block in said} == {"bash", "python"}
    (listed,) = (text for block, text in said.items() if "get sbq" in block.text)
    rows = [line.split()[:2] for line in listed.splitlines()]
    assert [[team, team] for team in sorted(TEAMS)] == [row for row in rows if row[0] in TEAMS]
    (look,) = (block for block in blocks_of(METRICS) if block.language == "bash")
    assert "# TYPE sandfleet_claim_wait_error_ratio gauge" in reader.follow(look)
