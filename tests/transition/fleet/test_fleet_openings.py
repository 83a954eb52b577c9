"""The fleet hands out no sandbox that policies of others open, where its template demands closure."""

import asyncio

import pytest
from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.kube import NETWORK_POLICY, Ref
from sandfleet_operator.plan.pods import names
from support.kubernetes.world import TEAM, World, pool_object, template_object

OTHERS = Ref(NETWORK_POLICY, TEAM, "allow-all")


@pytest.fixture
async def world():
    async with World() as made:
        yield made


def opening(selector=None):
    spec = {"podSelector": selector or {}, "policyTypes": ["Egress"], "egress": [{}]}
    meta = {"namespace": TEAM, "name": OTHERS.name}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


async def test_claims_wait_while_others_open_a_template_that_demands_closure(world):
    await world.kube.create(opening())
    await world.add(template_object(networkClosure="Required"), pool_object())
    fleet = await world.fleet()
    await world.until(lambda: fleet.scheduler.summary("team/fast").reason == PoolReason.OPENED_BY_OTHERS.value)
    assert fleet.catalog.recipe("team/fast").why == "opened by allow-all"
    waiting = asyncio.create_task(world.claim(fleet))
    await world.until(lambda: fleet.scheduler.summary("team/fast").waiting)
    assert not world.pods()
    await world.kube.delete(OTHERS)
    await waiting


@pytest.mark.parametrize(
    ("closure", "selector"),
    [
        ("Reported", {}),
        ("Required", {"matchLabels": {"app": "web"}}),
        ("Required", {"matchExpressions": [{"key": names.COMPONENT, "operator": "NotIn", "values": ["sandbox"]}]}),
    ],
)
async def test_other_policies_keep_no_claim_waiting(world, closure, selector):
    await world.kube.create(opening(selector))
    # Policies of our own for other templates are no policies of others.
    egress = {"allow": [{"cidr": "203.0.113.0/24"}]}
    await world.add(template_object(networkClosure=closure, egress=egress), template_object("other", egress=egress))
    await world.add(pool_object())
    fleet = await world.fleet()
    await world.claim(fleet)


async def test_a_policy_that_may_open_some_claims_keeps_all_waiting(world):
    """Which sandbox it is, only the claim says: the label is not known before."""
    await world.kube.create(opening({"matchLabels": {names.SANDBOX: "mine"}}))
    await world.add(template_object(networkClosure="Required"), pool_object())
    fleet = await world.fleet()
    await world.until(lambda: fleet.scheduler.summary("team/fast").reason == PoolReason.OPENED_BY_OTHERS.value)


async def test_a_policy_that_opens_nothing_any_more_is_forgotten(world):
    await world.add(template_object(networkClosure="Required"), pool_object())
    fleet = await world.fleet()
    await world.kube.create(opening())
    await world.until(lambda: fleet.catalog.recipe("team/fast").closed == PoolReason.OPENED_BY_OTHERS.value)
    await world.kube.merge(OTHERS, {"spec": {"egress": []}})
    await world.until(lambda: not fleet.catalog.recipe("team/fast").closed)
    await world.claim(fleet)
