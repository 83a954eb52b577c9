"""Operator and fleet over one API server in memory: a claim needs no object in its namespace but a template."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from sandfleet_operator.api.kube import NETWORK_POLICY, SANDBOX_TEMPLATE, Ref
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import Contact
from sandfleet_operator.reconciler import housekeeping
from sandfleet_operator.reconciler.operator import Operator
from support.kubernetes.world import SETTINGS, TEAM, World, template_object
from transition.world import watch

DENY = Ref(NETWORK_POLICY, TEAM, names.DEFAULT_DENY)


class OpenWorld(World):
    """The real operator closes the namespaces."""

    async def isolate(self):
        pass

    async def add(self, *objects):
        for obj in objects:
            await self.kube.create(obj)

    @asynccontextmanager
    async def operator(self):
        api = self.client()

        async def greet(_sandbox, action):
            return Contact(pod_uid=action.pod_uid, at=self.clock(), runtime="gvisor")

        async def answer(_whom):
            return ()

        operator = Operator(
            api, SETTINGS, greet=greet, ask=answer, keys=lambda: "{}", leading=lambda: 1, clock=self.clock
        )
        tasks = [asyncio.create_task(one) for one in (watch(api, operator), operator.follow(), operator.run())]
        yield operator
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await operator.close()


async def claimed(world, fleet, request="r1"):
    """A claim that names a template and no pool."""
    return await world.claim(fleet, request, fleet.resolve(TEAM, "", "python").name.partition("/")[2])


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(housekeeping, "EMPTY_SECONDS", 0.2)
    async with OpenWorld() as made, made.operator():
        yield made


async def test_a_claim_of_a_template_binds_where_nothing_else_is_ours(world):
    await world.add(template_object())
    fleet = await world.fleet()
    await claimed(world, fleet)
    assert DENY in world.cluster.objects


async def test_a_claim_binds_again_after_the_last_sandbox_went(world):
    await world.add(template_object())
    fleet = await world.fleet()
    first = await claimed(world, fleet)
    await fleet.fleet.release(first.sandbox_id)
    await world.until(lambda: not world.pods() and not world.objects())
    # Longer than an empty namespace keeps its policy.
    await asyncio.sleep(0.5)
    await claimed(world, fleet, "r2")


async def test_a_namespace_without_a_template_is_left(world):
    await world.add(template_object())
    await world.until(lambda: DENY in world.cluster.objects)
    await world.kube.delete(Ref(SANDBOX_TEMPLATE, TEAM, "python"))
    await world.until(lambda: DENY not in world.cluster.objects)
