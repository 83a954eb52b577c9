"""When the status of a SandboxPool is written: at once where it says something new, numbers alone less often."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.pool import PoolSpec
from sandfleet_operator.fleet.kubernetes.catalog import Recipe
from sandfleet_operator.fleet.kubernetes.pool_status import QUIET_SECONDS, PoolSizes, PoolStatuses
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary

RECIPE = Recipe(
    namespace="team",
    pool="fast",
    template="python",
    spec=PoolSpec(template="python", replicas=3),
    owner_kind="SandboxPool",
    owner=Meta(name="fast", namespace="team"),
)
FULL = PoolSummary(warm=3, stale=0, starting=0, claimed=0, waiting=0, hit_rate=1.0, reason="")
FEWER = replace(FULL, warm=2, claimed=1)


class Kube:
    def __init__(self):
        self.said = []

    async def merge(self, _ref, patch, _subresource):
        self.said.append(patch["status"])


@pytest.mark.parametrize(
    ("change", "seconds", "writes"),
    [
        (FULL, QUIET_SECONDS, 1),
        (FEWER, 1.0, 1),
        (FEWER, QUIET_SECONDS, 2),
        # A clock that was set back.
        (FEWER, -3600.0, 2),
        (replace(FEWER, waiting=1), 1.0, 2),
        (replace(FEWER, reason=PoolReason.FILLING.value), 1.0, 2),
    ],
)
async def test_numbers_alone_wait_while_no_claim_does(change, seconds, writes):
    kube, now = Kube(), [1e9]
    statuses = PoolStatuses(kube, PoolSizes(), lambda: 1, lambda: now[0])
    await statuses.write([(RECIPE, FULL)])
    now[0] += seconds
    await statuses.write([(RECIPE, change)])
    assert len(kube.said) == writes


async def test_the_last_numbers_are_written_in_the_end():
    kube, now = Kube(), [1e9]
    statuses = PoolStatuses(kube, PoolSizes(), lambda: 1, lambda: now[0])
    for claimed in (0, 1, 2, 2, 2, 2):
        await statuses.write([(RECIPE, replace(FULL, claimed=claimed))])
        now[0] += 1.0
    assert [one["claimed"] for one in kube.said] == [0, 2]
