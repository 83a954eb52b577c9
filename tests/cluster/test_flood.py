"""Fair queues under a flood on a real API server, with pretended nodes: proved from the API server's audit log.

SANDFLEET_FLOOD is the number of claims of the flood (300); `make flood` takes 10,000. Figures are printed at the end.
"""

import os
import time

import pytest
from cluster.flood import checks
from cluster.flood.audit import Admitted
from cluster.flood.story import ALONE, FLOODED, IN_ONE_LINE, NEIGHBOUR, at, play, size_of

pytestmark = pytest.mark.scale
CLAIMS = int(os.environ.get("SANDFLEET_FLOOD", "300"))
# Bindings that the fleet writes at the same time may come in any order.
AT_THE_SAME_TIME = 32


@pytest.fixture
def say(capsys):
    began = time.monotonic()

    def show(text):
        with capsys.disabled():
            print(f"\n  {time.monotonic() - began:5.0f} s  {text}", end="", flush=True)

    return show


@pytest.mark.timeout(3600)
async def test_a_flood_of_one_team_delays_another_by_a_bounded_time(tmp_path, say):
    flood = await play(tmp_path, size_of(CLAIMS), say)
    story, events = flood.story, flood.log.events
    steady = {key: one for key, one in story.asked.items() if key in story.steady}
    overtaken = checks.overtaken(steady, events), checks.overtaken(story.asked, events)
    tell(say, flood, overtaken)
    assert flood.verdict.twice == []
    assert flood.verdict.over_quota == []
    assert set(story.asked) <= {one.request for one in events if isinstance(one, Admitted)}
    assert max(overtaken[0].values()) <= AT_THE_SAME_TIME
    # Tickets keep the places. A new leader serves those that are back first, until all are.
    assert max(overtaken[1].values()) <= AT_THE_SAME_TIME + 4 * story.size.quota
    # In sandboxes, not in seconds: a busy machine does not change them. Until all of a burst is served, the flooders
    # get what their quota gives them for each sandbox of the neighbours, and once what they had borrowed.
    size = story.size
    fair = size.burst * size.flooders // size.neighbours + size.quota
    assert max(flood.beside(FLOODED)) <= 2 * fair
    assert min(flood.beside(IN_ONE_LINE)) > 2 * fair


def tell(say, flood, overtaken):
    story, log, verdict = flood.story, flood.log, flood.verdict
    say(f"{'phase':26}{'team':12}{'claims':>8}{'p50':>9}{'p99':>9}{'longest':>9}{'beside alone':>14}{'load':>7}")
    for phase in story.phases:
        for team, waits in phase.waits.items():
            beside = f"{at(waits, 0.99) / flood.p99(ALONE):.2f} times" if team == NEIGHBOUR else ""
            row = f"{phase.name:26}{team:12}{len(waits):8}{at(waits, 0.5):8.2f}s{at(waits, 0.99):8.2f}s"
            say(f"{row}{max(waits):8.2f}s{beside:>14}{phase.load:7.1f}")
    writes = sum(log.writes.values()) / verdict.admitted
    say(f"admitted {verdict.admitted:,}, twice {len(verdict.twice)}, again after a lost pod {verdict.again}")
    say(
        f"admitted beside a burst of {story.size.burst}: {flood.beside(FLOODED)}, in one line {flood.beside(IN_ONE_LINE)}"
    )
    say(f"over quota {len(verdict.over_quota)}; most at once {dict(verdict.most)}")
    say(f"an edit was heeded after {verdict.late:.2f} s at most; tickets {flood.tickets:,}")
    say(f"most overtaken with one leader {overtaken[0]}, through all of them {overtaken[1]}")
    say(f"{writes:.1f} writes per admission: {log.writes.most_common(12)}")
