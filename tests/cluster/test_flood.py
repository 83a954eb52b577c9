"""Fair queues under a flood on a real API server, with pretended nodes: proved from the API server's audit log.

SANDFLEET_FLOOD is the number of claims of the flood (300); `make flood` takes 10,000. Figures are printed at the end.
"""

import os
import statistics
import time

import pytest
from cluster.flood import checks
from cluster.flood.audit import read
from cluster.flood.control_plane import audit_log, control_plane
from cluster.flood.story import NEIGHBOUR, Story, fleet, size_of
from cluster.flood.teams import clients

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
    size = size_of(CLAIMS)
    with control_plane(tmp_path, size.nodes) as cluster:
        (tmp_path / "fleet").mkdir()
        with fleet(cluster, tmp_path / "fleet", size) as bed:
            async with clients(bed, size.claims + 10 * size.burst) as made:
                story = Story(bed, made, size, say)
                await story.of_two_queues()
                await story.of_one_queue()
        log = read(audit_log(cluster))
    verdict = checks.Replay().play(log.events)
    steady = {key: one for key, one in story.asked.items() if key in story.steady}
    overtaken = checks.overtaken(steady, log.events), checks.overtaken(story.asked, log.events)
    tell(say, story, log, verdict, overtaken, made.tickets)
    assert verdict.twice == []
    assert verdict.over_quota == []
    assert verdict.admitted - verdict.again == len(story.asked)
    assert max(overtaken[0].values()) <= AT_THE_SAME_TIME
    waits = {phase.name: at(phase.waits[NEIGHBOUR], 0.99) for phase in story.phases}
    assert waits["beside a flood"] < 2 * waits["alone"]
    assert waits["first come, first served"] > 2 * waits["alone"]


def tell(say, story, log, verdict, overtaken, tickets):
    alone = at(story.phases[0].waits[NEIGHBOUR], 0.99)
    say(f"{'phase':26}{'team':12}{'claims':>8}{'p50':>9}{'p99':>9}{'longest':>9}{'beside alone':>14}{'load':>7}")
    for phase in story.phases:
        for team, waits in phase.waits.items():
            beside = f"{at(waits, 0.99) / alone:.2f} times" if team == NEIGHBOUR else ""
            row = f"{phase.name:26}{team:12}{len(waits):8}{at(waits, 0.5):8.2f}s{at(waits, 0.99):8.2f}s"
            say(f"{row}{max(waits):8.2f}s{beside:>14}{phase.load:7.1f}")
    writes = sum(log.writes.values()) / verdict.admitted
    say(f"admitted {verdict.admitted:,}, twice {len(verdict.twice)}, again after a lost pod {verdict.again}")
    say(
        f"over quota {len(verdict.over_quota)}; most at once {dict(verdict.most)}; edits heeded after {verdict.late:.2f} s"
    )
    say(f"most overtaken with one leader {overtaken[0]}, through all of them {overtaken[1]}, tickets {tickets:,}")
    say(f"{writes:.1f} writes per admission: {log.writes.most_common(12)}")


def at(samples, share):
    return statistics.quantiles(samples, n=100, method="inclusive")[round(share * 100) - 1]
