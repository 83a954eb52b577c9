"""Claims that are only their pods, over all that may befall pods and processes in their first seconds."""

import asyncio
from collections.abc import Callable

from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_TEMPLATE, Json, Ref, ServerError
from support.fakes.kube_memory import Before, Write
from transition.joint.processes import Process
from transition.joint.scenarios import crash, is_warm
from transition.joint.world import Session, World
from transition.nodes import ended, evicted

# Seconds of the claims' youth that have passed by the time that something happens to them.
YOUNG = 1.0
# Seconds after which all that was claimed is written down.
OLDER = 10.0


async def furnish(world: World, size: int = 3) -> None:
    """A full pool of sandboxes without volumes."""
    template = Ref(SANDBOX_TEMPLATE, "team-a", "python")
    await world.user.merge(template, {"spec": {"workspace": {"ephemeral": True}}})
    await world.make_pool(size=size)
    await world.until(lambda: sum(map(is_warm, world.there(POD, "team-a").values())) == size, "full")


async def young(world: World, request: str) -> Session:
    session = await world.claim("alice", request, pool="fast", lease=3600)
    await asyncio.sleep(YOUNG)
    assert session.ref not in world.cluster.objects
    return session


def lose(world: World, session: Session, change: Callable[[Json], None]) -> None:
    """Its pod ends, and still exists. What the session was promised holds."""
    if (pod := world.pod_of(session.ref)) is not None:
        world.cluster.edit(pod, change)


async def a_young_day(world: World) -> None:
    """Sessions that end young, whose pods end, and that outlive a leader: each goes on, and short ones cost nothing."""
    await furnish(world)
    short = await young(world, "r1")
    assert await world.listed("alice") == 1
    await world.release(short)
    crashed, gone_on = await young(world, "r2"), await young(world, "r3")
    lose(world, crashed, lambda pod: ended(pod, 1))
    await world.until_used(crashed)
    world.end_leader()
    await world.until_used(gone_on)
    assert short.ref not in world.cluster.objects
    await asyncio.sleep(OLDER)
    assert {crashed.ref, gone_on.ref} <= world.cluster.objects.keys()


async def a_crash_at_any_write(world: World, number: int, *, done: bool) -> None:
    """As the day, and a process ends with the write of this number."""
    await furnish(world)
    crash(world, number, done=done)
    sessions = [await world.claim("alice", f"r{one}", pool="fast", lease=3600) for one in range(3)]
    await asyncio.sleep(YOUNG)
    lose(world, sessions[0], lambda pod: ended(pod, 1))
    lose(world, sessions[1], evicted)
    await world.release(sessions[2])
    for session in sessions[:2]:
        await world.until_used(session, within=300.0)
    await asyncio.sleep(OLDER)


async def a_pod_that_ends_while_no_fleet_leads(world: World) -> None:
    await furnish(world)
    session = await young(world, "r1")
    for slot in world.fleets:
        slot.hold()
    lose(world, session, lambda pod: ended(pod, 1))
    await asyncio.sleep(YOUNG)
    for slot in world.fleets:
        slot.held = False
    await world.until_used(session)


async def a_pod_that_is_deleted(world: World) -> None:
    """The operator sees the new object before its binding is written, and its pod is gone by then."""
    await furnish(world)
    session = await young(world, "r1")

    def refuses(_process: Process, write: Write) -> Before | None:
        if (write.verb, write.ref.kind, write.subresource) != ("merge", CODE_SANDBOX, "status") or refused:
            return None
        refused.append(write)
        return Before(ServerError(500, "InternalError", "cannot write: 500", retry_after=2.0))

    refused: list[Write] = []
    world.faults.append(refuses)
    pod = world.pod_of(session.ref)
    assert pod is not None
    await world.user.delete(pod, grace_seconds=0)
    await world.until_used(session)
    assert refused


async def a_queue_of_one(world: World) -> None:
    """The quota counts young sessions, also after a change of leader."""
    await furnish(world)
    await world.make_queue(quota=1)
    first = await young(world, "r1")
    world.end_leader()
    waiting = asyncio.create_task(world.claim("bob", "r2", pool="fast", wait=300.0, lease=3600))
    await asyncio.sleep(YOUNG)
    assert not waiting.done()
    assert sum(not is_warm(pod) for pod in world.there(POD, "team-a").values()) == 1
    await world.release(first)
    await waiting
