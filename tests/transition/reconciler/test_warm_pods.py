"""Warm pods belong to the fleet: the operator adds default deny, and leaves the pods and their volumes alone."""

import asyncio

import pytest
from sandfleet_operator.api.kube import CONFIG_MAP, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD, SANDBOX_POOL, Ref
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.podspec import PodRequest, PodState, kept_keys, sandbox_pod
from sandfleet_operator.plan.pods.volume import workspace_claim
from sandfleet_operator.plan.sandbox.dependencies import annotated
from sandfleet_operator.reconciler.operator import RESYNC_SECONDS
from support.operator.builders import SETTINGS, a_spec, a_template
from transition.fake_time import run
from transition.world import NAMESPACE, World

WARM = Ref(POD, NAMESPACE, "pool-1")
VOLUME = Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "workspace-pool-1")
KEYS = Ref(CONFIG_MAP, NAMESPACE, names.KEYS_CONFIG_MAP)
DENY = Ref(NETWORK_POLICY, NAMESPACE, names.DEFAULT_DENY)


async def a_pool_with_a_warm_pod(world: World) -> None:
    """As the fleet makes them."""
    pool = await world.make(SANDBOX_POOL, "pool", spec={"templateRef": {"name": "python"}, "replicas": 1})
    await world.until(lambda: DENY in world.cluster.objects and KEYS in world.cluster.objects, "closed")
    wanted = effective(a_template(), a_spec(), SETTINGS)
    assert not isinstance(wanted, Refusal)
    request = PodRequest(namespace=NAMESPACE, name=WARM.name, wanted=wanted, state=PodState.WARM, pool="pool")
    manifest = sandbox_pod(request, SETTINGS)
    manifest["metadata"]["ownerReferences"] = [
        {"kind": "SandboxPool", "name": "pool", "uid": pool["metadata"]["uid"], "controller": True}
    ]
    uid = (await world.user.create(manifest))["metadata"]["uid"]
    volume = annotated(workspace_claim(NAMESPACE, WARM.name, wanted, owner=None), wanted.retention)
    metadata = {**volume["metadata"], "ownerReferences": [{"kind": "Pod", "name": WARM.name, "uid": uid}]}
    await world.user.create({**volume, "metadata": metadata})


def test_the_operator_writes_on_no_warm_pod_and_on_no_volume_of_one():
    async def go() -> None:
        async with World() as world:
            await a_pool_with_a_warm_pod(world)
            await asyncio.sleep(2 * RESYNC_SECONDS)
            assert WARM in world.cluster.objects
            assert VOLUME in world.cluster.objects
            assert [one for one in world.writes if " pods/" in one or " persistentvolumeclaims/" in one] == []

    run(go())


def test_a_resync_adds_default_deny_for_a_pool_that_no_watch_has_shown(monkeypatch):
    async def deaf(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("transition.world.watch", deaf)

    async def go() -> None:
        async with World() as world:
            await asyncio.sleep(1)
            await world.make(SANDBOX_POOL, "pool", spec={"templateRef": {"name": "closed"}, "replicas": 1})
            await world.until(lambda: DENY in world.cluster.objects and KEYS in world.cluster.objects, "closed")

    run(go())


async def removed(world: World) -> None:
    await world.user.delete(KEYS)


async def edited(world: World) -> None:
    await world.user.merge(KEYS, {"data": {"keys.json": "none"}})


async def emptied(world: World) -> None:
    await world.user.merge(KEYS, {"data": None})


async def disowned(world: World) -> None:
    await world.user.merge(KEYS, {"metadata": {"labels": {names.MANAGED_BY: "helm"}}})


@pytest.mark.parametrize("spoil", [removed, edited, emptied, disowned])
def test_a_namespace_has_its_keys_again_seconds_after_a_user_has_spoiled_them(spoil):
    """New pods there do not start before."""

    async def go() -> None:
        async with World() as world:
            await a_pool_with_a_warm_pod(world)
            await world.settle()
            before, since = kept_keys(world.cluster.objects[KEYS]), world.clock()
            await spoil(world)

            def healed() -> bool:
                there = kept_keys(world.cluster.objects.get(KEYS, {"metadata": {}}))
                return there is not None and there["data"] == (before or {})["data"]

            await world.until(healed, "with keys")
            assert world.clock() - since < 10

    run(go())


def test_a_namespace_without_sandboxes_keeps_its_users_config_map_of_this_name():
    async def go() -> None:
        async with World() as world:
            await world.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
            foreign = Ref(CONFIG_MAP, "other", names.KEYS_CONFIG_MAP)
            mine = {"metadata": {"namespace": "other", "name": foreign.name}, "data": {"mine": "1"}}
            await world.user.create({"apiVersion": "v1", "kind": "ConfigMap", **mine})
            await world.user.merge(foreign, {"data": {"mine": "2"}})
            await world.settle()
            assert world.cluster.objects[foreign]["data"] == {"mine": "2"}

    run(go())
