"""The fleet over an API server in memory: claims on workspaces of released sandboxes, and their objects."""

import asyncio

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Ref, Unreachable
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.quantities import MIB
from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.plan.claims.record import object_name, read_record, record_text
from sandfleet_operator.plan.pods import names
from support.fakes.kube_memory import Before, MemoryKube
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


def volume(world, name):
    return world.cluster.objects.get(Ref(PERSISTENT_VOLUME_CLAIM, TEAM, name))


def volume_name(pod):
    return pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]


def on(world, name):
    return [pod for pod in world.pods() if volume_name(pod) == name]


async def a_kept_workspace(world, fleet, request="keeper"):
    """Of a session that is over, with its pod gone."""
    sandbox = await world.claim(fleet, request, keep_workspace=True)
    name = volume_name(next(pod for pod in world.pods() if f"{TEAM}/{pod['metadata']['name']}" == sandbox.sandbox_id))
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: not on(world, name) and not world.objects())
    return name


async def a_claim_on(world, fleet, name, request="r1", **fields):
    return await world.claim(fleet, request, workspace_id=f"{TEAM}/{name}", **fields)


async def settled(world, name=""):
    """Nothing but the pool is left, and this workspace."""
    await world.until(lambda: len(world.pods("warm")) == 2 == len(world.pods()) and not world.objects())
    wanted = {volume_name(pod) for pod in world.pods()} | ({name} if name else set())
    await world.until(
        lambda: {ref.name for ref in world.cluster.objects if ref.kind == PERSISTENT_VOLUME_CLAIM} == wanted
    )


async def test_a_retained_workspace_survives_a_release_without_an_operator(world):
    fleet = await world.fleet()
    name = await a_kept_workspace(world, fleet)
    await settled(world, name)
    meta = volume(world, name)["metadata"]
    assert (meta["ownerReferences"], meta["annotations"][names.RETENTION]) == ([], "Retain")


async def test_a_claim_on_a_workspace_starts_cold_and_its_object_names_it(world):
    fleet = await world.fleet()
    name = await a_kept_workspace(world, fleet)
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)
    sandbox = await a_claim_on(world, fleet, name, keep_workspace=True)
    assert not sandbox.warm
    (pod,) = on(world, name)
    assert f"{TEAM}/{pod['metadata']['name']}" == sandbox.sandbox_id
    await world.until(lambda: volume(world, name)["metadata"]["labels"][names.SANDBOX] == object_name(_key()))
    (made,) = world.objects()
    assert made["spec"]["workspace"] == {"claimName": name, "retention": "Retain"}
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await settled(world, name)
    assert not (await a_claim_on(world, fleet, name, "r2")).warm


async def test_a_claim_on_a_workspace_lists_its_namespace_once(world, monkeypatch):
    """Just before it binds its pod: that look alone has to be newer than the watches."""
    fleet = await world.fleet()
    name = await a_kept_workspace(world, fleet)
    keeper = f"{TEAM}/{object_name(_key('keeper'))}"
    await world.until(lambda: fleet.object_of(keeper) is None and not fleet._store.get(Ref(POD, TEAM, name)))
    listed, pages = [], MemoryKube.pages

    def counted(kube, kind, *which, **more):
        listed.append(kind)
        return pages(kube, kind, *which, **more)

    monkeypatch.setattr(MemoryKube, "pages", counted)
    await fleet.workspaces.free(TEAM, name, 0.0)
    assert listed == []
    await a_claim_on(world, fleet, name)
    assert sorted(map(str, listed)) == ["codesandboxes.sandfleet.io", "pods"]


async def test_a_workspace_whose_user_has_just_gone_is_not_refused_for_what_the_watches_show(world):
    fleet = await world.fleet()
    name = await a_kept_workspace(world, fleet)
    await world.add(sandbox_object(workspace={"claimName": name}))
    await world.until(lambda: fleet.object_of(f"{TEAM}/mine") is not None)
    seen = fleet._store.get(Ref(CODE_SANDBOX, TEAM, "mine"))
    with pytest.raises(FleetError, match="in use by CodeSandbox mine"):
        await fleet.workspaces.free(TEAM, name, 0.0)
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, "mine"))
    fleet._store._objects.setdefault(CODE_SANDBOX, {}).setdefault(TEAM, {})["mine"] = seen
    await fleet.workspaces.free(TEAM, name, 0.0)


async def test_an_unretained_workspace_is_deleted_with_the_second_session(world):
    fleet = await world.fleet()
    name = await a_kept_workspace(world, fleet)
    sandbox = await a_claim_on(world, fleet, name)
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await settled(world)


async def test_a_codesandbox_that_names_the_workspace_first_gets_it(world):
    fleet = await world.fleet()
    name = await a_kept_workspace(world, fleet)
    world.starts = False
    waiting = asyncio.create_task(a_claim_on(world, fleet, name))
    await world.until(lambda: on(world, name))
    await world.add(sandbox_object(workspace={"claimName": name}))
    world.starts = True
    with pytest.raises(FleetError) as caught:
        await waiting
    assert caught.value.problem.reason == "WorkspaceBusy"
    assert "CodeSandbox mine" in caught.value.problem.message
    await world.until(lambda: not on(world, name))
    assert [one["metadata"]["name"] for one in world.objects()] == ["mine"]
    # It is the operator's: no warm pod is its.
    assert names.BOUND_POD not in world.objects()[0]["metadata"].get("annotations", {})
    assert volume(world, name)
    assert fleet.scheduler.summary("team/fast").reason == ""


async def test_a_pod_on_a_workspace_is_not_handed_out_after_its_fleet_ended(world):
    first = await world.fleet()
    name = await a_kept_workspace(world, first)
    world.starts = False
    waiting = asyncio.create_task(a_claim_on(world, first, name))
    await world.until(lambda: on(world, name))
    await world.kill(first)
    waiting.cancel()
    world.starts = True
    second = await world.fleet()
    others = [await world.claim(second, f"r{number}") for number in range(4)]
    await world.until(lambda: not on(world, name))
    assert volume(world, name)
    again = await a_claim_on(world, second, name, "again")
    assert again.sandbox_id not in {one.sandbox_id for one in others}
    assert len(on(world, name)) == 1


async def test_the_next_fleet_completes_a_claim_on_a_workspace_without_an_object(world):
    kube = world.client()
    first = await world.fleet(kube)
    name = await a_kept_workspace(world, first)
    dead = Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
    kube.fault = lambda write: dead if write.verb == "create" and write.ref.kind == CODE_SANDBOX else None
    sandbox = await a_claim_on(world, first, name)
    await world.kill(first)
    second = await world.fleet()
    again = await a_claim_on(world, second, name)
    assert (again.sandbox_id, again.workspace_id) == (sandbox.sandbox_id, f"{TEAM}/{name}")
    await world.until(lambda: volume(world, name)["metadata"].get("ownerReferences"))
    with pytest.raises(FleetError, match="in use"):
        await a_claim_on(world, second, name, "r2")
    assert await second.fleet.release(again.sandbox_id)
    await settled(world)


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
async def test_a_lost_reply_puts_no_second_pod_on_a_workspace(world, verb):
    from support.fakes.kube_memory import After

    kube = world.client()
    fleet = await world.fleet(kube)
    name = await a_kept_workspace(world, fleet)
    lost = []

    def fault(write):
        if write.verb == verb and len(lost) < 2:
            lost.append(write)
            return After()
        return None

    kube.fault = fault
    sandbox = await a_claim_on(world, fleet, name, keep_workspace=True)
    assert len(on(world, name)) == 1
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await settled(world, name)
    assert lost


# Limits.

LIMITS = Limits(
    memory_bytes=512 * MIB,
    tmp_bytes=100,
    processes=64,
    executions=2,
    max_timeout=12.5,
    default_timeout=20,
    open_files=100,
    disk_bytes=10 * MIB,
)


async def test_the_limits_of_a_claim_are_in_its_object_and_survive_the_fleet(world):
    first = await world.fleet()
    await world.claim(first, limits=LIMITS)
    await world.until(world.objects)
    (made,) = world.objects()
    assert made["spec"]["executionLimits"] == {
        "tmp": "1Mi",
        "processes": 64,
        "executions": 2,
        "maxTimeoutSeconds": 13,
        "defaultTimeoutSeconds": 13,
        "openFiles": 100,
        "disk": "10Mi",
    }
    assert made["spec"]["resources"] == {"limits": {"memory": f"{512 + 192}Mi"}}
    await world.kill(first)
    second = await world.fleet()
    assert (await world.claim(second)).claim.limits == LIMITS


async def test_a_claim_without_limits_leaves_them_to_the_template(world):
    fleet = await world.fleet()
    await world.claim(fleet)
    await world.until(world.objects)
    assert not {"executionLimits", "resources", "workspace", "mounts"} & set(world.objects()[0]["spec"])


async def test_the_mounts_of_a_claim_are_in_its_object_and_survive_the_fleet(world):
    first = await world.fleet()
    mounts = {"/app": "", "/logs": "out/logs"}
    await world.claim(first, mounts=mounts)
    await world.until(world.objects)
    (made,) = world.objects()
    assert made["spec"]["mounts"] == [{"path": "/app"}, {"path": "/logs", "folder": "out/logs"}]
    await world.kill(first)
    second = await world.fleet()
    assert (await world.claim(second)).claim.mounts == mounts


async def test_a_record_of_an_older_fleet_keeps_its_meaning(world):
    fleet = await world.fleet()
    await world.claim(fleet)
    (pod,) = world.pods("claimed")
    text = pod["metadata"]["annotations"][names.CLAIM]
    assert "limits" not in text
    assert "workspace" not in text
    assert record_text(read_record(text)) == text


async def test_a_users_codesandbox_passes_its_limits_to_the_executor(world):
    fleet = await world.fleet()
    await world.add(sandbox_object(executionLimits={"processes": 16}))
    await world.until(lambda: fleet.session_of(f"{TEAM}/mine") is not None or fleet.pretended.opened)
    claims = [one.claim for one in fleet.scheduler.inventory.all() if one.claim]
    assert [one.limits.processes for one in claims] == [16]


def _key(request="r1"):
    return RequestKey("alice", request, f"{TEAM}/fast")
