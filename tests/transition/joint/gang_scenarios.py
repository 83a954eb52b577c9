"""Gangs with operator and fleet together: all claims are answered or none, whichever write a process ends with."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Json, Kind
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.scheduler.queues.gangs import GRACE
from support.fakes.kube_cluster import deleting
from support.fakes.kube_memory import Write
from transition.joint.processes import Process
from transition.joint.queue_scenarios import declare, waits
from transition.joint.scenarios import crash
from transition.joint.world import Session, World

# Seconds for the change of leader and the deletions, beside the grace period of what an earlier leader has bound.
MARGIN = 60.0


async def claim_gang(world: World, gang: str, size: int, wait: float = 300.0) -> list[Session]:
    """As the client does: where one claim fails, what the others had is released. Raises FleetError."""
    said = fleet_pb2.Gang(gang_id=gang, size=size)
    names_ = [f"{gang}-{number}" for number in range(size)]
    calls = (world.claim("alice", name, pool="fast", wait=wait, gang=said) for name in names_)
    found = await asyncio.gather(*calls, return_exceptions=True)
    made = [one for one in found if isinstance(one, Session)]
    failures = [one for one in found if isinstance(one, BaseException)]
    if failures:
        for one in made:
            await world.release(one)
        raise failures[0]
    return made


def bound(world: World, gang: str) -> int:
    """Pods that the fleet has bound to claims of the gang, and that are not ending."""
    pods = [obj for ref, obj in world.cluster.objects.items() if ref.kind == POD]
    return sum(gang_of(pod) == gang for pod in pods if not deleting(pod))


def gang_of(pod: Json) -> str:
    record = read_record(pod["metadata"].get("annotations", {}).get(names.CLAIM, ""))
    return record.gang.gang_id if record is not None and record.gang is not None else ""


async def two_gangs_at_a_queue(world: World) -> None:
    """Each has its quota as a whole; an object waits beside them, and none of the second gang is bound early."""
    await world.make_pool(size=2)
    await world.make_queue(quota=3)
    first = await claim_gang(world, "first", 3)
    for session in first:
        await world.until_used(session)
    second = asyncio.create_task(claim_gang(world, "second", 2))
    await asyncio.sleep(20)
    assert (second.done(), bound(world, "second")) == (False, 0)
    (beside,) = await declare(world, "beside")
    await waits(world, beside, "QuotaReached")
    for session in first:
        await world.release(session)
    for session in await second:
        await world.until_used(session)
    await world.until_used(world.sessions[beside])


async def objects_that_come_after_a_gang(world: World) -> None:
    """Each needs less than the gang, and none passes it."""
    await world.make_pool(size=2)
    await world.make_queue(quota=2)
    (one,) = await declare(world, "one")
    await world.until_used(world.sessions[one])
    gang = asyncio.create_task(claim_gang(world, "gang", 2))
    await asyncio.sleep(20)
    two, three = await declare(world, "two", "three")
    for ref in (two, three):
        await waits(world, ref, "QuotaReached")
    await world.remove(one)
    for session in await gang:
        await world.until_used(session)
        await world.release(session)
    for ref in (two, three):
        await world.until_used(world.sessions[ref])


async def a_gang_that_can_never_be_served(world: World) -> None:
    await world.make_pool(size=2)
    await world.make_queue(quota=2)
    began = world.now()
    try:
        await claim_gang(world, "large", 3)
    except FleetError as error:
        assert error.problem.reason == "GangTooLarge"
    else:
        raise AssertionError("it was served")
    assert world.now() - began < 5
    assert bound(world, "large") == 0
    # The queue is free for others.
    for session in await claim_gang(world, "fits", 2):
        await world.until_used(session)


async def a_gang_whose_callers_are_gone(world: World) -> None:
    """The leader ends with the second bind, and its callers with it: the next one ends what was bound."""
    await world.make_pool(size=3)
    await world.make_queue(quota=3)
    await world.until(lambda: len(world.there(POD, "team-a")) == 3, "full")
    end_at_bind(world, 2)
    leader = world.leader
    claim = asyncio.create_task(claim_gang(world, "lost", 3))
    await world.until(lambda: world.leader is not leader, "crashed")
    assert bound(world, "lost") == 2
    claim.cancel()
    with suppress(asyncio.CancelledError):
        await claim
    await world.until(lambda: world.leader, "led again")
    await asyncio.sleep(GRACE + MARGIN)
    assert bound(world, "lost") == 0
    for session in await claim_gang(world, "next", 3):
        await world.until_used(session)


def end_at_bind(world: World, number: int) -> None:
    """The leader ends with this bind of a pod, which is done."""
    _end_at(world, number, (POD, "patch"), done=True)


def _end_at(world: World, number: int, kind_and_verb: tuple[Kind, str], *, done: bool) -> None:
    """The leader ends with this write of the kind and verb."""

    def counts(process: Process, write: Write) -> bool:
        return (write.ref.kind, write.verb) == kind_and_verb and process is world.leader

    crash(world, number, done=done, counts=counts)


async def a_leader_that_ends_before_all_is_written_down(world: World) -> None:
    """The gang was answered, and one of its CodeSandboxes is there: the next leader goes on with all of it."""
    await world.make_pool(size=3)
    await world.make_queue(quota=3)
    leader = world.leader
    _end_at(world, 2, (CODE_SANDBOX, "create"), done=False)
    made = await claim_gang(world, "gang", 3)
    await world.until(lambda: world.leader is not leader, "crashed")
    world.faults.clear()
    await world.until(lambda: world.leader, "led again")
    await asyncio.sleep(GRACE + MARGIN)
    for session in made:
        await world.until_used(session)
        await world.release(session)


async def a_leader_that_ends_at_each_bind(
    world: World, numbers: Iterable[int] = (1, 2, 3), wait: float = 300.0
) -> None:
    """Its callers come back to the next one, which goes on with what was bound."""
    await world.make_pool(size=3)
    await world.make_queue(quota=3)
    for number in numbers:
        await world.until(lambda: world.leader, "led")
        end_at_bind(world, number)
        made = await claim_gang(world, f"at-{number}", 3, wait)
        world.faults.clear()
        for session in made:
            await world.until_used(session)
            await world.release(session)


async def a_crash_at_any_write(world: World, number: int, *, done: bool) -> None:
    """All of the gang is answered or, in time, nothing of it is bound."""
    await world.make_pool(size=2)
    await world.make_queue(quota=3)
    crash(world, number, done=done)
    try:
        made = await claim_gang(world, "gang", 3)
    except FleetError:
        await asyncio.sleep(GRACE + MARGIN)
        assert bound(world, "gang") == 0
        return
    for session in made:
        await world.until_used(session)
    assert bound(world, "gang") == 3
    for session in made:
        await world.release(session)
    for session in await claim_gang(world, "next", 3):
        await world.until_used(session)
