"""What a claim of a warm sandbox writes to the API server: before its answer, behind it, and with release and refill.

Refused writes count as well. Leases, the pool's status and the record of ended requests, which is written once a second
for all of them, are left out: no claim alone causes them.
"""

import asyncio
from collections import Counter

import pytest
from sandfleet_operator.api.kube import CONFIG_MAP, LEASE, POD, SANDBOX_POOL, SANDBOX_TEMPLATE, Ref, ServerError
from support.fakes.kube_memory import Before
from transition.joint.play import faults
from transition.joint.scenarios import is_warm

pytestmark = pytest.mark.slow

# Seconds after which nothing is left to write.
CALM = 60.0
# Seconds for which a claim is young, and less.
SHORT = 4.0
BOUND = Counter({"fleet: patch pods": 1})
RECORDED = Counter(
    {
        "fleet: create codesandboxes": 1,
        # Its binding, and then that it owns the pod.
        "fleet: merge codesandboxes status": 1,
        "fleet: patch pods": 1,
        "operator: merge codesandboxes status": 1,
    }
)
VOLUME_RECORDED = Counter(
    {
        "fleet: patch persistentvolumeclaims": 1,
        # Refused: the fleet was first.
        "operator: patch persistentvolumeclaims": 1,
    }
)
REFILLED = Counter({"fleet: create pods": 1})
VOLUME_REFILLED = Counter({"fleet: create persistentvolumeclaims": 1})
ENDED = Counter({"fleet: delete pods": 1})
RELEASED = ENDED + Counter({"fleet: delete codesandboxes": 1})
# By who, verb, resource and subresource.
CYCLES = {
    "an ephemeral workspace": (True, BOUND + RECORDED + REFILLED, RELEASED),
    "a volume": (False, BOUND + RECORDED + REFILLED + VOLUME_RECORDED + VOLUME_REFILLED, RELEASED),
}


async def furnish(world, *, ephemeral):
    """A full pool whose first claim is over: policies, keys and the kept spec of the template are there."""
    template = Ref(SANDBOX_TEMPLATE, "team-a", "python")
    await world.user.merge(template, {"spec": {"workspace": {"ephemeral": ephemeral}}})
    await world.make_pool(size=2)
    await world.until(lambda: sum(map(is_warm, world.there(POD, "team-a").values())) == 2, "full")
    session = await world.claim("alice", "r0", pool="fast")
    await asyncio.sleep(CALM)
    await world.release(session)
    await asyncio.sleep(CALM)


def counted(writes):
    found = (one.removeprefix("sandfleet-").split("/", 1) for one in writes)
    shortened = (f"{what.split('.')[0]} {rest.partition(' ')[2]}".strip() for what, rest in found)
    shared = (LEASE.plural, SANDBOX_POOL.plural, CONFIG_MAP.plural)
    return Counter(one for one in shortened if not any(left in one for left in shared))


def test_a_short_session_costs_three_writes_and_no_object():
    async def day(world):
        await furnish(world, ephemeral=True)
        world.writes.clear()
        session = await world.claim("alice", "r1", pool="fast", lease=3600)
        await asyncio.sleep(SHORT)
        await world.release(session)
        await asyncio.sleep(CALM)
        assert counted(world.writes) == BOUND + REFILLED + ENDED

    assert faults(day) == []


@pytest.mark.parametrize("workspace", CYCLES)
def test_each_write_of_a_cycle_is_accounted_for(workspace):
    ephemeral, claim, release = CYCLES[workspace]

    async def day(world):
        await furnish(world, ephemeral=ephemeral)
        world.writes.clear()
        session = await world.claim("alice", "r1", pool="fast", lease=3600)
        await asyncio.sleep(CALM)
        assert counted(world.writes) == claim
        world.writes.clear()
        await world.release(session)
        await asyncio.sleep(CALM)
        assert counted(world.writes) == release

    assert faults(day) == []


def test_a_claim_is_answered_after_one_write_though_the_api_server_takes_no_other():
    async def day(world):
        await furnish(world, ephemeral=False)
        world.writes.clear()
        taken = []

        def one_only(_process, write):
            if write.ref.kind == LEASE:
                return None
            if (write.verb, write.ref.kind) == ("patch", POD) and not taken:
                taken.append(write)
                return None
            return Before(ServerError(500, "InternalError", "cannot write: 500"))

        world.faults.append(one_only)
        await world.claim("alice", "r1", pool="fast", lease=3600)
        assert len(taken) == 1

    assert faults(day) == []
