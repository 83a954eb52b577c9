"""What waits in a pool is the fleet's: the operator closes the namespace, and leaves the pods and their volumes alone."""

import asyncio

from builders import SETTINGS, a_spec, a_template
from sandfleet_operator.api.kube import CONFIG_MAP, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD, SANDBOX_POOL, Ref
from sandfleet_operator.handlers.operator import RESYNC_SECONDS
from sandfleet_operator.plan import names
from sandfleet_operator.plan.effective import Refusal, effective
from sandfleet_operator.plan.podspec import PodRequest, PodState, sandbox_pod
from sandfleet_operator.plan.sandbox.parts import annotated
from sandfleet_operator.plan.volume import workspace_claim
from transition.fake_time import run
from transition.world import NAMESPACE, World

WARM = Ref(POD, NAMESPACE, "pool-1")
VOLUME = Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "workspace-pool-1")
KEYS = Ref(CONFIG_MAP, NAMESPACE, names.KEYS_CONFIG_MAP)
DENY = Ref(NETWORK_POLICY, NAMESPACE, names.DEFAULT_DENY)


async def a_pool_with_a_warm_pod(world: World) -> None:
    """As the fleet makes them."""
    pool = await world.make(SANDBOX_POOL, "pool", spec={"template": "python", "size": 1})
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


def test_a_pool_that_no_watch_has_shown_is_closed_in_by_the_next_look_at_everything(monkeypatch):
    async def deaf(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("transition.world._watch", deaf)

    async def go() -> None:
        async with World() as world:
            await asyncio.sleep(1)
            await world.make(SANDBOX_POOL, "pool", spec={"template": "closed", "size": 1})
            await world.until(lambda: DENY in world.cluster.objects and KEYS in world.cluster.objects, "closed")

    run(go())


def test_the_keys_of_a_pools_namespace_are_published_again_when_somebody_took_them():
    async def go() -> None:
        async with World() as world:
            await a_pool_with_a_warm_pod(world)
            await world.user.delete(KEYS)
            await world.until(lambda: KEYS in world.cluster.objects, "with keys")

    run(go())
