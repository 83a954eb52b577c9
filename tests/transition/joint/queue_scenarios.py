"""Queues with operator and fleet together: the quota holds at every instant, and each that waits gets in."""

import asyncio

from sandfleet_operator.api import kube
from sandfleet_operator.api.kube import Ref
from support.fakes.kube_memory import Before, Write
from transition.joint.processes import Process
from transition.joint.world import Session, World
from transition.nodes import ended


def pods(world: World, namespace: str = "team-a") -> int:
    """That serve a sandbox."""
    refs = [one.ref for one in world.sessions.values() if one.ref.namespace == namespace]
    return sum(world.pod_of(ref) is not None for ref in refs)


async def declare(world: World, *names: str, **spec: object) -> list[Ref]:
    """One after the other: of those of one second a later leader knows no order but that of their names."""
    refs = []
    for name in names:
        refs.append(await world.declare("bob", name, **spec))
        await asyncio.sleep(1)
    return refs


async def is_admitted(world: World, ref: Ref, within: float = 120.0) -> None:
    await world.until(lambda: world.condition(ref, "Admitted").get("status") == "True", f"admitted: {ref}", within)


async def waits(world: World, ref: Ref, reason: str) -> None:
    await world.until(lambda: world.condition(ref, "Admitted").get("reason") == reason, f"{reason}: {ref}")


async def suspend(world: World, ref: Ref) -> None:
    await world.user.merge(ref, {"spec": {"operatingMode": "Suspended"}})
    await world.until(lambda: world.condition(ref, "Suspended").get("status") == "True", f"suspended: {ref}")


async def resume(world: World, ref: Ref) -> None:
    await world.user.merge(ref, {"spec": {"operatingMode": "Running"}})


async def a_queue_of_two(world: World) -> None:
    """Three objects and a claim on a quota of two: who waits is told why, and gets in as others leave."""
    await world.make_pool()
    await world.make_queue(quota=2)
    one, two, three = await declare(world, "one", "two", "three")
    for ref in (one, two):
        await world.until_used(world.sessions[ref])
    await waits(world, three, "QuotaReached")
    claim = asyncio.create_task(world.claim("alice", "r1", pool="fast", wait=300.0))
    await asyncio.sleep(20)
    assert not claim.done()
    assert pods(world) == 2
    await world.remove(one)
    await world.until_used(world.sessions[three])
    await suspend(world, two)
    session = await claim
    await world.until_used(session)
    await resume(world, two)
    await waits(world, two, "QuotaReached")
    await world.release(session)
    await is_admitted(world, two)


async def a_session_that_is_woken_with_kubectl(world: World) -> None:
    """It gave its quota back as it fell asleep, and waits for it like others, through a change of leader."""
    await world.make_pool()
    await world.make_queue()
    first = await world.claim("alice", "r1", pool="fast", lease=3600.0)
    await world.until(lambda: world.status(first.ref).get("binding"), "written down")
    await suspend(world, first.ref)
    second = await world.claim("bob", "r2", pool="fast", lease=3600.0)
    await resume(world, first.ref)
    await waits(world, first.ref, "QuotaReached")
    await asyncio.sleep(20)
    assert world.pod_of(first.ref) is None
    await suspend(world, first.ref)
    await waits(world, first.ref, "Suspended")
    await resume(world, first.ref)
    world.end_leader()
    await asyncio.sleep(60)
    assert world.pod_of(first.ref) is None
    await world.release(second)
    await world.until(lambda: world.pod_of(first.ref), "returned by itself")
    await world.until_used(first)
    await suspend(world, first.ref)
    await world.resume(first)


async def a_session_that_is_woken_before_it_gave_its_quota_back(world: World) -> None:
    """The API server does not take the fleet's word for it: until it does, the quota is the session's own."""
    await world.make_pool()
    await world.make_queue()
    first = await world.claim("alice", "r1", pool="fast", lease=3600.0)
    await world.until(lambda: world.status(first.ref).get("binding"), "written down")

    def busy(process: Process, write: Write) -> Before | None:
        admits = "admission" in ((write.body or {}).get("status") or {}) if write.verb == "merge" else False
        return Before(kube.ServerError(500, "InternalError", "cannot write: 500")) if admits else None

    world.faults.append(busy)
    await suspend(world, first.ref)
    second = asyncio.create_task(world.claim("bob", "r2", pool="fast", wait=300.0))
    await asyncio.sleep(20)
    assert not second.done()
    await resume(world, first.ref)
    await world.until_used(first)
    assert not second.done()
    world.faults.remove(busy)
    await suspend(world, first.ref)
    await world.release(await second)


async def an_object_beside_its_new_queue(world: World) -> None:
    """`kubectl apply` of both in one file: no watch shows the queue to the operator before the objects."""
    world.operator.hold()
    await world.make_queue()
    one, two = await declare(world, "one", "two")
    world.operator.held = False
    await world.until_used(world.sessions[one])
    await waits(world, two, "QuotaReached")
    assert pods(world) == 1


async def leaders_that_end_while_objects_wait(world: World) -> None:
    await world.make_queue(quota=2)
    refs = await declare(world, *(f"box-{number}" for number in range(5)))
    for ref in refs[:2]:
        await is_admitted(world, ref)
    for number in range(3):
        world.end_leader()
        await world.remove(refs[number])
        await is_admitted(world, refs[number + 2], within=300.0)
    await asyncio.sleep(5)


async def leaders_that_end_while_claims_wait(world: World) -> None:
    """Who waited first gets in first, however late its caller comes back to the next leader."""
    await world.make_pool()
    await world.make_queue(quota=1)
    holder = await world.claim("alice", "r0", pool="fast", lease=3000.0)
    first = asyncio.create_task(world.claim("alice", "r1", pool="fast", wait=900.0, pause=7.0))
    await asyncio.sleep(5)
    second = asyncio.create_task(world.claim("alice", "r2", pool="fast", wait=900.0))
    await asyncio.sleep(5)
    for _ in range(2):
        world.end_leader()
        await asyncio.sleep(60)
    assert not first.done()
    await world.release(holder)
    session = await first
    assert not second.done(), "the second claim has passed the first one"
    await world.release(session)
    await world.release(await second)


async def pods_that_outlive_their_objects(world: World) -> None:
    """The garbage collector is behind: objects and sessions are gone, their pods are not, and the leader ends."""
    await world.make_pool()
    await world.make_queue(quota=2)
    (one,) = await declare(world, "one")
    await world.until_used(world.sessions[one])
    session = await world.claim("alice", "r1", pool="fast")
    await world.until_used(session)
    await world.until(lambda: world.status(session.ref).get("binding"), "written down")
    world.nodes.keeps_orphans = True
    two, three = await declare(world, "two", "three")
    for ref in (two, three):
        await waits(world, ref, "QuotaReached")
    await world.remove(one)
    await world.remove(session.ref)
    for _ in range(2):
        world.end_leader()
        await world.until(lambda: world.leader, "led again", 300.0)
        await asyncio.sleep(20)
        assert [world.condition(ref, "Admitted").get("status") for ref in (two, three)] == ["False", "False"]
    world.nodes.keeps_orphans = False
    for ref in (two, three):
        await is_admitted(world, ref)


async def a_pod_that_crashes_keeps_its_place(world: World) -> None:
    await world.make_queue()
    one, two = await declare(world, "one", "two")
    await world.until_used(world.sessions[one])
    world.edit_pod(one, lambda pod: ended(pod, 1))
    await world.until_used(world.sessions[one])
    await waits(world, two, "QuotaReached")


async def a_queue_that_is_drained(world: World) -> None:
    queue = await world.make_queue(quota=2)
    one, two = await declare(world, "one", "two")
    for ref in (one, two):
        await world.until_used(world.sessions[ref])
    await world.user.merge(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await world.until(lambda: pods(world) == 0, "drained")
    await waits(world, one, "QueueDrained")
    await world.until(lambda: (world.status(queue).get("usage") or {}).get("sandboxes") == 0, "free")
    await world.user.merge(queue, {"spec": {"stopPolicy": "None"}})
    for ref in (one, two):
        await world.until_used(world.sessions[ref])


async def queues_that_come_and_go(world: World) -> None:
    """With what runs there; the sandboxes of a deleted default queue start."""
    old = (await declare(world, "old"))[0]
    await world.until_used(world.sessions[old])
    queue = await world.make_queue()
    await is_admitted(world, old)
    (new,) = await declare(world, "new")
    await waits(world, new, "QuotaReached")
    await world.user.delete(queue)
    await world.until_used(world.sessions[new])
    await world.make_queue()
    (last,) = await declare(world, "last")
    await waits(world, last, "QuotaReached")
    await world.remove(old)
    await asyncio.sleep(10)
    # Both count that ran before the queue.
    await waits(world, last, "QuotaReached")
    await world.remove(new)
    await world.until_used(world.sessions[last])


async def borrowed(world: World, preemption: str) -> tuple[Session, Session]:
    """A busy and an idle session of a queue that has borrowed the quota of another one, `owner`."""
    await world.make_pool(size=1)
    both = {"cohort": "all", "quota": 1}
    await world.make_queue("owner", **both)
    await world.make_queue("guest", preemption=preemption, **both)
    busy = await world.claim("alice", "busy", pool="fast", queue="guest", lease=3600)
    idle = await world.claim("alice", "idle", pool="fast", queue="guest", lease=3600)
    world.executors.occupy(world.pod_of(busy.ref))
    return busy, idle


async def returned(world: World, owner: Session, busy: Session, idle: Session) -> None:
    """Through a change of leader the idle session stays away, until the owner of its quota has gone."""
    world.end_leader()
    await asyncio.sleep(60)
    assert world.pod_of(idle.ref) is None
    await world.release(owner)
    await world.until(lambda: world.pod_of(idle.ref), "returned by itself")
    await world.until_used(idle)
    await world.until_used(busy)


async def borrowed_quota_of_a_session_without_a_volume(world: World) -> None:
    """The idle session goes into a snapshot, through a change of leader, and returns by itself with what it had."""
    template = Ref(kube.SANDBOX_TEMPLATE, "team-a", "python")
    await world.user.merge(template, {"spec": {"workspace": {"ephemeral": True}}})
    busy, idle = await borrowed(world, "Release")
    memory = world.executors.memory(world.pod_of(idle.ref))
    owner = await world.claim("bob", "o1", pool="fast", queue="owner", wait=300.0, lease=3600)
    await world.until(lambda: world.status(idle.ref).get("restoresFrom"), "asleep")
    assert world.executors.preempted[-1] == f"{idle.ref.namespace}.{idle.ref.name}"
    await returned(world, owner, busy, idle)
    assert memory
    assert memory <= world.executors.memory(world.pod_of(idle.ref))


async def borrowed_quota_that_its_owner_needs(world: World) -> None:
    """The idle session of the borrower goes, through a change of leader, and returns by itself; the busy one stays."""
    busy, idle = await borrowed(world, "Suspend")
    owner = await world.claim("bob", "o1", pool="fast", queue="owner", wait=300.0, lease=3600)
    assert world.pod_of(idle.ref) is None
    assert world.executors.preempted == [f"{idle.ref.namespace}.{idle.ref.name}"]
    await returned(world, owner, busy, idle)
