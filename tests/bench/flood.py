"""A flood of claims on a real API server with pretended nodes: how long another team waits, and what the bed carries.

SANDFLEET_FLOOD is the number of claims of the flood (300). It is the story of `make flood`.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, progress

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.flood.story import ALONE, FLOODED, IN_ONE_LINE, play, size_of
from cluster.harness import binaries
from cluster.harness.layout import ClusterError

CLAIMS = int(os.environ.get("SANDFLEET_FLOOD", "300"))


def figures() -> Iterator[Figure]:
    """None, and one line that says why, where no API server can be built."""
    try:
        binaries.toolchain(binaries.MODULES[0])
    except ClusterError as error:
        progress(f"skipped the figures of a flood: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        flood = asyncio.run(play(Path(folder), size_of(CLAIMS), progress))
    alone = flood.p99(ALONE)
    yield Figure("p99 wait beside a flood", flood.p99(FLOODED), "s", alone, "beside the same team alone; below 2")
    yield Figure(
        "p99 wait in one line with the flood", flood.p99(IN_ONE_LINE), "s", alone, "the same without fair queues"
    )
    line = next(one for one in flood.story.phases if one.name == IN_ONE_LINE)
    served = sum(map(len, line.waits.values())) / line.seconds
    yield Figure(f"admitted of {CLAIMS:,} on a real API server", served, "claims/s", None, "with release and refill")
    writes = sum(flood.log.writes.values()) / flood.verdict.admitted
    yield Figure("API writes of an admission in a flood", writes, "writes", None, "of all writers, the whole life")
