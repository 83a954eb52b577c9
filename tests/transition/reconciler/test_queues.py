"""The operator makes no pod past a queue, whatever its watches have shown."""

import asyncio
from unittest import mock

from sandfleet_operator.api.kube import POD, SANDBOX_QUEUE
from sandfleet_operator.reconciler import operator as operators
from sandfleet_operator.reconciler.apply import Applier
from sandfleet_operator.reconciler.operator import WATCHED
from transition.fake_time import run
from transition.queue_scenarios import make_queue
from transition.world import NAME, World

# The watch of queues is late: it shows nothing.
LATE = {kind: selector for kind, selector in WATCHED.items() if kind != SANDBOX_QUEUE}


async def a_sandbox_under_an_unseen_queue(world: World) -> None:
    await asyncio.sleep(10)
    await make_queue(world)
    await world.make_sandbox()
    await asyncio.sleep(30)


def has_pod(*, control: bool = False) -> bool:
    async def go() -> bool:
        async def sees_nothing_new(*_: object) -> bool:
            return False

        with mock.patch.object(operators, "WATCHED", LATE):
            async with World() as world:
                if control:
                    with mock.patch.object(Applier, "look_for_queues", sees_nothing_new):
                        await a_sandbox_under_an_unseen_queue(world)
                else:
                    await a_sandbox_under_an_unseen_queue(world)
                    assert world.reason() == "WaitingForAdmission"
                return world.there(POD, NAME) is not None

    return run(go())


def test_a_queue_that_no_watch_has_shown_yet_holds_a_new_sandbox():
    assert not has_pod()
    # The control: without the look past the watches the pod is made.
    assert has_pod(control=True)


def test_the_status_of_a_queue_wakes_no_sandbox():
    """The fleet writes it every few seconds."""

    async def go() -> None:
        async with World() as world:
            await make_queue(world)
            await world.make_sandbox()
            await world.until(lambda: world.reason() == "WaitingForAdmission", "held by its queue")
            await world.settle()
            writes = len(world.writes)
            for pending in range(3):
                world.cluster.edit(
                    next(ref for ref in world.cluster.objects if ref.kind == SANDBOX_QUEUE),
                    lambda queue, pending=pending: queue.update(status={"pending": pending}),
                )
                await asyncio.sleep(1)
            assert len(world.writes) == writes

    run(go())
