"""Edits by hand and forged objects, on the operator's side: no second pod on a workspace, no workspace by its name."""

import asyncio

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Ref
from sandfleet_operator.plan.pods import names
from transition import scenarios
from transition.fake_time import run
from transition.reconciler.test_warm_pods import VOLUME, a_pool_with_a_warm_pod
from transition.reconciler.test_warm_pods import WARM as FLEETS
from transition.scenarios import SANDBOX, WARM
from transition.world import NAME, NAMESPACE, World

ANNOTATIONS = [(names.BOUND_POD,), (names.CLAIM,), (names.BOUND_POD, names.CLAIM)]
WARM_CLAIM = Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, f"workspace-{WARM}")


async def lose(world: World, *keys: str) -> None:
    await world.user.merge(SANDBOX, {"metadata": {"annotations": dict.fromkeys(keys)}})


def pods(world: World) -> list[str]:
    return [ref.name for ref in world.cluster.objects if ref.kind == POD]


@pytest.mark.parametrize("keys", ANNOTATIONS)
@pytest.mark.parametrize("scenario", [scenarios.claimed, scenarios.claimed_by_name])
def test_a_sandbox_that_lost_its_annotations_keeps_its_pod(keys, scenario):
    """kubectl replace, a GitOps tool or a restore writes the object without the annotations of the control plane."""

    async def go() -> None:
        async with World() as world:
            await scenario(world)
            await lose(world, *keys)
            world.end_operator()
            await world.settle()
            assert pods(world) == [WARM]
            assert world.status()["podName"] == WARM
            assert world.says("Ready")
            assert world.cluster.wrong == []

    run(go())


@pytest.mark.parametrize("keys", ANNOTATIONS)
def test_annotations_that_are_lost_before_the_operator_has_looked_make_no_second_pod(keys):
    """The pod belongs to the CodeSandbox already, and nothing else points to it."""

    async def go() -> None:
        async with World() as world:
            await scenarios.claimed_without_operator(world, settled=False)
            await lose(world, *keys)
            await asyncio.sleep(10)
            world.away = False
            await world.until_ready()
            assert pods(world) == [WARM]
            assert world.status()["workspaceClaimName"] == WARM_CLAIM.name
            assert world.cluster.wrong == []

    run(go())


def test_the_next_pod_of_a_sandbox_without_annotations_has_its_workspace():
    async def go() -> None:
        async with World() as world:
            await scenarios.claimed(world)
            await lose(world, names.BOUND_POD, names.CLAIM)
            await world.user.delete(Ref(POD, NAMESPACE, WARM))
            await world.until_ready(restarts=1)
            assert world.status()["workspaceClaimName"] == WARM_CLAIM.name
            assert world.cluster.wrong == []

    run(go())


def test_a_sandbox_named_like_a_warm_pod_gets_neither_its_volume_nor_later_its_files():
    async def go() -> None:
        async with World() as world:
            await a_pool_with_a_warm_pod(world)
            before = world.cluster.objects[VOLUME]["metadata"]
            await world.make_sandbox(FLEETS.name)
            await asyncio.sleep(120)
            assert world.cluster.objects[VOLUME]["metadata"] == before
            assert world.status(FLEETS.name).get("workspaceClaimName") is None
            assert world.reason(FLEETS.name) in {"WorkspaceInUse", "Forbidden"}
            # The fleet retires its pod, whose volume goes with it: only then is there room for the sandbox's own.
            await world.user.delete(FLEETS, grace_seconds=0)
            await world.until_ready(FLEETS.name)
            assert world.cluster.objects[VOLUME]["metadata"]["uid"] != before["uid"]

    run(go())


@pytest.mark.parametrize("settled", [False, True])
def test_the_workspace_of_a_claim_is_not_taken_by_its_name(settled):
    """A claimed pod's workspace has the pod's name, and belongs to the pod or to the CodeSandbox of the claim."""

    async def go() -> None:
        async with World() as world:
            await scenarios.claimed_without_operator(world, settled=settled)
            await world.make_sandbox(WARM)
            world.away = False
            await asyncio.sleep(60)
            assert world.status(WARM).get("workspaceClaimName") is None
            owners = world.cluster.objects[WARM_CLAIM]["metadata"].get("ownerReferences", ())
            assert [one["name"] for one in owners] == [NAME]

    run(go())


def test_an_evicted_pod_of_a_settled_claim_is_replaced_though_the_operator_was_away():
    """The fleet has given the workspace to the CodeSandbox: the pod goes, the files and the session stay."""

    async def go() -> None:
        async with World() as world:
            await scenarios.claimed_without_operator(world, settled=True)
            await world.user.delete(Ref(POD, NAMESPACE, WARM), grace_seconds=0)
            await asyncio.sleep(30)
            world.cluster.collect()
            assert WARM_CLAIM in world.cluster.objects
            world.away = False
            await world.until_ready(restarts=1)
            assert world.status()["workspaceClaimName"] == WARM_CLAIM.name
            assert world.there(CODE_SANDBOX, NAME)

    run(go())
