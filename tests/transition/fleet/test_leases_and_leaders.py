"""Renewed leases over a change of leader, and over the loss of the executor's pod."""

import pytest
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Ref, Unreachable
from sandfleet_operator.api.validate import MAX_LEASE
from sandfleet_operator.api.values import State
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.plan.pods import names
from support.fakes.kube_memory import Before
from support.kubernetes.world import TEAM, World, pool_object, template_object

SILENT = FleetError(Problem(Code.UNAVAILABLE, "ExecutorUnreachable", "cannot reach the executor: it is silent"))


class Clock:
    """The wall's time, and what the test adds."""

    def __init__(self):
        self.more = 0.0

    def __call__(self):
        return wall_clock() + self.more


@pytest.fixture
async def world():
    async with World(clock=Clock()) as made:
        await made.add(template_object(), pool_object())
        yield made


async def renewed(world, fleet, seconds=3600.0, **fields):
    """A session that was claimed for 2 s, and renewed."""
    sandbox = await world.claim(fleet, lease=2.0, **fields)
    await fleet.fleet.renew(sandbox.sandbox_id, seconds)
    return sandbox


def written(world):
    return [one["metadata"]["annotations"].get(names.LEASE_EXPIRES) for one in world.objects()]


async def pass_time(world, fleet, seconds):
    """Until the fleet has looked at everything at the later time, twice."""
    world.clock.more += seconds
    for _ in range(2):
        ticked, tick = [], fleet.scheduler.tick
        fleet.scheduler.tick = lambda now, ticked=ticked, tick=tick: (ticked.append(now), tick(now))[1]
        await world.until(lambda ticked=ticked: ticked)
        fleet.scheduler.tick = tick


@pytest.mark.parametrize("kept", [True, False], ids=["written down", "not written down"])
async def test_a_renewed_session_outlives_a_change_of_leader(world, kept):
    kube = world.client()
    first = await world.fleet(kube)
    if not kept:
        # The first fleet ends before the write arrives.
        kube.fault = lambda write: (
            Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
            if write.verb == "patch" and write.ref.kind == CODE_SANDBOX
            else None
        )
    sandbox = await renewed(world, first)
    await world.until(world.objects)
    await world.until(lambda: any(written(world)) is kept)
    await world.kill(first)
    second = await world.fleet()
    await pass_time(world, second, 100.0)
    found = await second.fleet.get(sandbox.sandbox_id, reachable=False)
    assert found.state is State.CLAIMED
    assert found.lease_expires == pytest.approx(world.clock() + 3500, abs=5)
    # It ends with the renewed lease.
    await pass_time(world, second, 3600.0)
    await world.until(lambda: not world.objects() and not world.pods("claimed"))


async def test_a_claim_that_was_not_recorded_keeps_its_renewed_lease(world):
    kube = world.client()
    first = await world.fleet(kube)
    kube.fault = lambda write: (
        Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
        if write.verb == "create" and write.ref.kind == CODE_SANDBOX
        else None
    )
    sandbox = await renewed(world, first)
    await world.kill(first)
    assert not world.objects()
    second = await world.fleet()
    await world.until(lambda: sandbox.sandbox_uid in second.pretended.opened)
    _, lease = second.pretended.opened[sandbox.sandbox_uid]
    assert lease == pytest.approx(3600, abs=5)
    await pass_time(world, second, 100.0)
    assert await second.fleet.get(sandbox.sandbox_id, reachable=False)


async def test_a_renewed_session_outlives_its_pod_and_its_leader(world):
    first = await world.fleet()
    await renewed(world, first)
    await world.until(lambda: any(written(world)))
    name = world.objects()[0]["metadata"]["name"]
    await world.kill(first)
    (pod,) = world.pods("claimed")
    await world.kube.delete(Ref(POD, TEAM, pod["metadata"]["name"]), uid=pod["metadata"]["uid"])
    world.leases.clear()
    await world.recover(name)
    second = await world.fleet()
    await pass_time(world, second, 100.0)
    session = second.session_of(f"{TEAM}/{name}")
    assert session.lease_expires == pytest.approx(world.clock() + 3500, abs=5)


@pytest.mark.parametrize("left", [1e300, MAX_LEASE + 1])
async def test_an_executor_cannot_say_more_than_a_longest_lease(world, left):
    first = await world.fleet()
    sandbox = await world.claim(first, lease=2.0)
    await world.until(world.objects)
    await world.kill(first)
    world.leases[sandbox.sandbox_uid] = world.clock() + left
    second = await world.fleet()
    found = await second.fleet.get(sandbox.sandbox_id, reachable=False)
    assert found.lease_expires <= world.clock() + MAX_LEASE


async def test_an_annotation_of_the_owner_cannot_end_a_session_nor_keep_it_longer_than_a_lease(world):
    first = await world.fleet()
    sandbox = await renewed(world, first)
    await world.until(lambda: any(written(world)))
    ref = Ref(CODE_SANDBOX, TEAM, world.objects()[0]["metadata"]["name"])
    await world.kill(first)
    for text, most in (("1", 3600.0), ("9" * 12, MAX_LEASE), ("soon", 3600.0)):
        await world.kube.merge(ref, {"metadata": {"annotations": {names.LEASE_EXPIRES: text}}})
        fleet = await world.fleet()
        await pass_time(world, fleet, 10.0)
        known = fleet.scheduler.inventory.get(sandbox.sandbox_id)
        assert known.lease_expires <= world.clock() + most
        assert (await fleet.fleet.get(sandbox.sandbox_id, reachable=False)).state is State.CLAIMED
        await world.kill(fleet)


async def test_a_silent_executor_has_its_session_ended_after_the_patience(world):
    first = await world.fleet()
    sandbox = await world.claim(first, lease=2.0)
    # Until it is written down: a leader opens what was not.
    await world.until(lambda: any(one["metadata"].get("ownerReferences") for one in world.pods("claimed")))
    await world.kill(first)
    second = await world.fleet()
    second.pretended.refuses[sandbox.sandbox_uid] = SILENT
    await pass_time(world, second, 20.0)
    assert second.scheduler.inventory.get(sandbox.sandbox_id).lease_asked is not None
    await pass_time(world, second, second.scheduler.limits.lease_patience)
    await world.until(lambda: not world.objects() and not world.pods("claimed"))
