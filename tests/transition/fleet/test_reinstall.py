"""A fleet after an uninstall: the Lease begins anew, and the pods and claims of before are still there."""

import json
from contextlib import asynccontextmanager

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref, Unreachable
from sandfleet_operator.cluster.lease import Lease
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.leadership import HIGHEST_SEEN, Terms
from sandfleet_operator.plan.pods import names
from support.fakes.kube_memory import Before
from support.kubernetes.world import LEASE_REF, TEAM, World, pool_object, sandbox_object, template_object

QUICK = Terms(duration=5.0, renew_deadline=4.0)


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


@asynccontextmanager
async def reinstalled(world):
    """The next fleet, which finds no Lease."""
    await world.kube.delete(LEASE_REF)
    lease = Lease(world.client(), LEASE_REF, "reinstalled", QUICK)
    try:
        yield lease, await world.fleet(lease=lease)
    finally:
        await lease.release()


async def test_the_numbers_of_a_new_lease_are_above_those_of_earlier_claims(world):
    kube = world.client()
    first = await world.fleet(kube, number=7)
    await world.until(lambda: first.scheduler.summary("team/fast").warm == 2)
    kube.fault = lambda write: (
        Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
        if write.verb == "create" and write.ref.kind == CODE_SANDBOX
        else None
    )
    claimed = await world.claim(first)
    await world.kill(first)
    assert not world.objects()
    async with reinstalled(world) as (lease, second):
        assert lease.fencing == 8
        # The claim of before is not left for ever: its session goes on, and ends with its lease.
        assert (await world.claim(second)).sandbox_id == claimed.sandbox_id
        await world.until(world.objects)
        (pod,) = world.pods("claimed")
        assert read_record(pod["metadata"]["annotations"][names.CLAIM]).number == 8
        assert await second.fleet.release(claimed.sandbox_id)
        await world.until(lambda: not world.objects() and not world.pods("claimed"))


async def test_a_forged_number_does_not_use_up_the_count(world):
    first = await world.fleet(number=7)
    await world.claim(first)
    await world.until(world.objects)
    await world.kill(first)
    said = json.loads(world.objects()[0]["metadata"]["annotations"][names.CLAIM])
    forged = json.dumps({**said, "fencing": HIGHEST_SEEN + 1, "uid": "mine"})
    await world.add(sandbox_object())
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, "mine"), {"metadata": {"annotations": {names.CLAIM: forged}}})
    async with reinstalled(world) as (lease, _):
        assert lease.fencing == 8
