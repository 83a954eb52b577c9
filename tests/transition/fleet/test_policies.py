"""A fleet believes the pods that it finds only where the API server keeps others from making them."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.kube import KINDS, POD, Forbidden, Ref
from sandfleet_operator.cluster import policies
from sandfleet_operator.cluster.policies import BINDING, POLICY, UnguardedError
from support.fakes.kube_admission import control_only
from support.fakes.kube_memory import MemoryKube
from support.kubernetes.world import SETTINGS, TEAM, World, pool_object, template_object

NAME = "sandfleet-control-metadata"


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(policies, "PATIENCE", 0.0)
    async with World() as made:
        made.settings = replace(SETTINGS, admission_policies=(NAME,))
        await made.add(template_object(), pool_object())
        yield made


async def guard(world, policy=None, binding=None, name=NAME):
    kube = MemoryKube(world.cluster, kinds=(*KINDS, POLICY, BINDING))
    specs = {POLICY: {"failurePolicy": "Fail"}, BINDING: {"policyName": NAME, "validationActions": ["Deny"]}}
    for kind, spec in ((POLICY, policy), (BINDING, binding)):
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        await kube.create({**made, "spec": specs[kind] if spec is None else spec})


async def end_of(world):
    """Why the fleet does not lead."""
    fleet = world.process()
    await world.until(lambda: fleet.serving or fleet.task.done())
    assert not fleet.serving
    (error,) = fleet.task.exception().exceptions
    assert isinstance(error, UnguardedError)
    return str(error)


async def test_a_fleet_serves_where_the_policy_is_in_force(world):
    await guard(world)
    fleet = await world.fleet()
    assert (await world.claim(fleet)).bound


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"name": "another"}, "is missing"),
        ({"policy": {"failurePolicy": "Ignore"}}, "lets writes pass"),
        ({"binding": {"policyName": NAME, "validationActions": ["Audit"]}}, "denies nothing"),
        ({"binding": {"policyName": "another", "validationActions": ["Deny"]}}, "denies nothing"),
    ],
)
async def test_no_fleet_leads_without_the_policy(world, there, why):
    await guard(world, **there)
    assert why in await end_of(world)
    assert not world.pods()


async def test_it_waits_a_moment_for_the_policy(world, monkeypatch):
    monkeypatch.setattr(policies, "PATIENCE", 60.0)
    monkeypatch.setattr(policies, "PAUSE", 0.01)
    fleet = world.process()
    await guard(world)
    await world.until(lambda: fleet.serving)


def forged(like):
    """A pod of a tenant's making that looks like a warm one of the pool."""
    meta = {key: like["metadata"][key] for key in ("namespace", "labels", "annotations", "ownerReferences")}
    spec = {**like["spec"], "volumes": [{"name": "workspace", "hostPath": {"path": "/"}}]}
    spec.pop("nodeName", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": "forged"}, "spec": spec}


@pytest.mark.parametrize("guarded", [False, True])
async def test_a_forged_warm_pod_gets_claims_only_without_the_policy(world, guarded):
    """The control is the attack where everyone who may create pods is trusted."""
    await guard(world)
    first = await world.fleet()
    await world.until(lambda: first.scheduler.summary("team/fast").warm == 2)
    if guarded:
        world.cluster.admit = control_only({"test"})
    tenant = MemoryKube(world.cluster, "tenant")
    try:
        await tenant.create(forged(world.pods("warm")[0]))
    except Forbidden:
        assert guarded
    await world.kill(first)
    second = await world.fleet()
    await world.until(lambda: second.scheduler.summary("team/fast").warm >= 2)
    known = {one.sandbox_uid for one in second.scheduler.inventory.all()}
    assert (f"{TEAM}/forged" in known) is not guarded
    assert (Ref(POD, TEAM, "forged") in world.cluster.objects) is not guarded
