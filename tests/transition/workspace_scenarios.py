"""Scenarios: the first start of a sandbox, and the use of workspaces that sandboxes have left."""

import asyncio
from collections.abc import Awaitable, Callable

from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Ref
from transition.nodes import claim_of
from transition.world import NAME, NAMESPACE, World

CLAIM = Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, f"workspace-{NAME}")
LEFT = Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "workspace-first")
SANDBOX = Ref(CODE_SANDBOX, NAMESPACE, NAME)

Scenario = Callable[[World], Awaitable[None]]


async def cold_start(world: World) -> None:
    await world.make_sandbox()
    await world.until_ready()


async def begin(world: World, scenario: Scenario) -> None:
    """Runs the scenario that this one starts with. The matrix injects its faults in that scenario's own run."""
    await scenario(world)
    world.begun = len(world.writes)


async def _left(world: World) -> None:
    """A workspace whose sandbox is gone."""
    await world.make_sandbox("first", workspace={"retention": "Retain"})
    await world.until_ready("first")
    await world.user.delete(Ref(CODE_SANDBOX, NAMESPACE, "first"))


async def named_workspace(world: World) -> None:
    """A sandbox of another name starts on it, and leaves it again."""
    await begin(world, _left)
    await world.make_sandbox(workspace={"claimName": LEFT.name})
    await world.until_ready()
    pod = world.there(POD, NAME)
    assert pod is not None
    assert claim_of(pod) == LEFT.name
    await world.user.delete(SANDBOX)
    await world.until(lambda: not world.there(POD, NAME), "without a pod")
    assert LEFT in world.cluster.objects


async def given_away_with_its_sandbox(world: World) -> None:
    await begin(world, _left)
    await world.make_sandbox(workspace={"claimName": LEFT.name, "retention": "Delete"})
    await world.until_ready()
    await world.user.delete(SANDBOX)
    await world.until(lambda: LEFT not in world.cluster.objects, "without its workspace")


async def wanted_by_three(world: World) -> None:
    """The sandbox with the workspace's own name comes last. Each gets the workspace when the one before is gone."""
    await begin(world, _left)
    for name in (NAME, "second"):
        await world.make_sandbox(name, workspace={"claimName": LEFT.name})
        await asyncio.sleep(2)
    await world.make_sandbox("first", workspace={"retention": "Retain"})
    for name in (NAME, "second", "first"):
        await world.until_ready(name)
        rest = [one for one in (NAME, "second", "first") if world.there(CODE_SANDBOX, one) and one != name]
        assert {world.reason(one) for one in rest} <= {"", "WorkspaceInUse"}
        await world.user.delete(Ref(CODE_SANDBOX, NAMESPACE, name))


async def made_anew_at_once(world: World) -> None:
    """The files are deleted with the first sandbox, so that the second one does not get them."""
    await begin(world, cold_start)
    uid = world.cluster.objects[CLAIM]["metadata"]["uid"]
    await world.user.delete(SANDBOX)
    await world.make_sandbox()
    await world.until_ready()
    assert world.cluster.objects[CLAIM]["metadata"]["uid"] != uid
