"""The fleet over an API server in memory: claims, releases, restarts, rivals."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import CODE_SANDBOX, CONFIG_MAP, SANDBOX_POOL, SANDBOX_TEMPLATE, Ref, ref_of
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.values import RequestKey, State
from sandfleet_operator.fleet.kubernetes import ended_record
from sandfleet_operator.fleet.kubernetes.ended_record import EndedRecord
from sandfleet_operator.plan.claims.record import object_name, read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import pod_of
from support.kubernetes.world import SYSTEM, TEAM, World, pool_object, sandbox_object, template_object


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


def owners(pod):
    return [(one["kind"], one["name"]) for one in pod["metadata"].get("ownerReferences") or ()]


async def test_a_pool_is_filled_with_isolated_pods_that_it_owns(world):
    await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    for pod in world.pods():
        assert owners(pod) == [("SandboxPool", "fast")]
        assert pod["metadata"]["labels"][names.POOL] == "fast"
        assert names.EGRESS_CLASS not in pod["metadata"]["labels"]
        claim = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert claim == f"workspace-{pod['metadata']['name']}"


async def test_a_claim_is_one_write_before_the_answer_and_its_object_follows(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)
    before = len(kube.writes)
    sandbox = await world.claim(fleet, labels={"app": "agent"}, envs={"A": "b"})
    assert [write.verb for write in kube.writes[before : before + 1]] == ["patch"]
    assert fleet.pretended.opened[sandbox.sandbox_uid][0] == "r1"
    name = object_name(RequestKey("alice", "r1", f"{TEAM}/fast"))
    await world.until(lambda: any(owners(pod) == [("CodeSandbox", name)] for pod in world.pods("claimed")))
    (made,) = world.objects()
    pod = next(one for one in world.pods("claimed"))
    meta = made["metadata"]
    assert (meta["name"], meta["labels"]["app"]) == (name, "agent")
    assert meta["annotations"][names.BOUND_POD] == f"{pod['metadata']['name']}/{pod['metadata']['uid']}"
    assert made["spec"]["poolRef"] == {"name": "fast"}
    assert made["spec"]["env"] == [{"name": "A", "value": "b"}]
    record = read_record(pod["metadata"]["annotations"][names.CLAIM])
    assert (record.object, record.fencing, record.holder) == (name, 1, "alice")


async def test_the_write_that_claims_a_pod_keeps_its_node_from_being_removed(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    await world.until(lambda: len(world.pods("warm")) == 2)
    assert {pod["metadata"]["annotations"][names.SAFE_TO_EVICT] for pod in world.pods("warm")} == {"true"}
    before = len(kube.writes)
    await world.claim(fleet)
    (pod,) = world.pods("claimed")
    assert pod["metadata"]["annotations"][names.SAFE_TO_EVICT] == "false"
    pods_patched = [one for one in kube.writes[before:] if one.verb == "patch" and one.ref == ref_of(pod)]
    assert len(pods_patched) == 1


async def test_a_release_leaves_nothing_and_the_pool_is_full_again(world):
    fleet = await world.fleet()
    sandbox = await world.claim(fleet)
    assert await fleet.fleet.release(sandbox.sandbox_id) is True
    await world.until(lambda: not world.objects() and not world.pods("claimed"))
    await world.until(lambda: len(world.pods("warm")) == 2 == len(world.pods()))


async def test_an_empty_pool_starts_cold_and_a_template_without_a_pool_too(world):
    await world.add(template_object("other"))
    fleet = await world.fleet()
    recipe = fleet.resolve(TEAM, "", "other")
    sandbox = await world.claim(fleet, pool=recipe.name.partition("/")[2])
    pod = next(one for one in world.pods("claimed"))
    assert not sandbox.warm
    assert pod["metadata"]["labels"][names.TEMPLATE] == "other"
    await world.until(
        lambda: world.objects()[0]["spec"].get("templateRef") == {"name": "other"} if world.objects() else False
    )


async def test_a_cold_start_without_a_pool_may_last_longer_than_a_look_at_the_pools(world):
    world.starts = False
    await world.add(template_object("other"))
    fleet = await world.fleet()
    recipe = fleet.resolve(TEAM, "", "other")
    waiting = asyncio.create_task(world.claim(fleet, pool=recipe.name.partition("/")[2]))
    await world.until(lambda: fleet.scheduler.summary(recipe.name).waiting)
    fleet._upkeep.look_at_pools()
    fleet._upkeep.look_at_pools()
    world.starts = True
    assert not (await waiting).warm


async def test_a_codesandbox_made_by_hand_gets_a_warm_pod(world):
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    await world.add(sandbox_object())
    await world.until(lambda: any(owners(pod) == [("CodeSandbox", "mine")] for pod in world.pods("claimed")))
    (made,) = world.objects()
    assert made["metadata"]["annotations"][names.BOUND_POD]
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, "mine"))
    await world.until(lambda: not world.pods("claimed") and len(fleet.scheduler.inventory) == 2)


async def test_nothing_is_started_before_the_namespace_is_closed():
    async with World() as world:
        await world.kube.delete(Ref(_policy(), TEAM, names.DEFAULT_DENY))
        await world.add(template_object(), pool_object())
        fleet = await world.fleet()
        await world.until(lambda: fleet.scheduler.summary("team/fast").reason == "PolicyMissing")
        assert not world.pods()
        await world.isolate()
        await world.until(lambda: len(world.pods("warm")) == 2)


async def test_a_pool_with_a_refused_template_says_why(world):
    await world.add(template_object("foreign", image="else/where:1"), pool_object("other", template="foreign"))
    await world.fleet()

    def ready():
        pool = world.cluster.objects[Ref(SANDBOX_POOL, TEAM, "other")]
        return next(iter((pool.get("status") or {}).get("conditions") or ()), None)

    await world.until(ready)
    assert (ready()["status"], ready()["reason"]) == ("False", "TemplateInvalid")
    assert "image 'else/where:1' is not on the installation's list" in ready()["message"]


async def test_a_changed_template_replaces_warm_pods_and_not_claimed_ones(world):
    fleet = await world.fleet()
    await world.claim(fleet)
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)
    old = {pod["metadata"]["uid"] for pod in world.pods("warm")}
    serving = world.pods("claimed")[0]["metadata"]["uid"]
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": {"image": "registry/executor:2"}})
    await world.until(
        lambda: len(world.pods("warm")) == 2 and not old & {one["metadata"]["uid"] for one in world.pods()}
    )
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods("warm")} == {"registry/executor:2"}
    assert [one["metadata"]["uid"] for one in world.pods("claimed")] == [serving]


async def test_the_status_of_a_pool_selects_the_pods_that_its_replicas_count(world):
    await world.fleet()

    def status():
        return world.cluster.objects[Ref(SANDBOX_POOL, TEAM, "fast")].get("status") or {}

    await world.until(lambda: status().get("warm") == 2)
    selected = parse_selector(status()["selector"])
    found = [pod for pod in world.pods() if selected(pod["metadata"]["labels"])]
    assert len(found) == status()["replicas"] == 2
    assert found == world.pods("warm")


async def test_a_smaller_pool_deletes_surplus_pods_and_a_deleted_pool_all(world):
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": 1}})
    await world.until(lambda: len(world.pods()) == 1)
    await world.kube.delete(Ref(SANDBOX_POOL, TEAM, "fast"))
    await world.until(lambda: not world.pods() and not fleet.scheduler.pools)


# Ends and beginnings.


async def test_the_next_fleet_takes_over_from_a_killed_one(world):
    first = await world.fleet()
    sandbox = await world.claim(first)
    await world.until(world.objects)
    await world.kill(first)
    second = await world.fleet()
    again = await world.claim(second)
    assert again.sandbox_id == sandbox.sandbox_id
    await world.until(lambda: second.scheduler.summary("team/fast").warm == 2)
    assert len(world.pods()) == 3
    assert await second.fleet.release(again.sandbox_id)
    await world.until(lambda: len(world.pods()) == 2 and not world.objects())


async def never(*_):
    await asyncio.Event().wait()


async def test_warm_pods_of_a_killed_leader_can_be_claimed_before_they_are_contacted(world):
    first = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2 and all(map(is_ready, world.pods("warm"))))
    warm = {one["metadata"]["uid"] for one in world.pods("warm")}
    await world.kill(first)
    second = world.process()
    second.pretended.connect = never
    await world.until(lambda: second.serving)
    assert second.scheduler.summary("team/fast").warm == 2
    # None of them is started anew, however long it takes until they are contacted.
    second.fleet.do(second.scheduler.tick(second.clock() + 10 * second.scheduler.limits.start_timeout))
    assert second.scheduler.summary("team/fast").warm == 2
    await world.claim(second, within=1.0)
    (claimed,) = world.pods("claimed")
    assert claimed["metadata"]["uid"] in warm


async def test_a_warm_pod_of_a_killed_leader_whose_executor_is_gone_is_discarded_by_its_claim(world):
    first = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2 and all(map(is_ready, world.pods("warm"))))
    await world.kill(first)
    second = world.process()
    second.pretended.connect = never
    await world.until(lambda: second.serving)
    bad = second.scheduler.inventory.first_of("team/fast", State.WARM, second.scheduler.pool("team/fast").revision)
    reason = Reason.EXECUTOR_UNREACHABLE.value
    second.pretended.refuses[bad.sandbox_uid] = FleetError(Problem(Code.UNAVAILABLE, reason, "cannot reach it: silent"))
    sandbox = await world.claim(second)
    assert sandbox.sandbox_id != bad.sandbox_id
    assert second.scheduler.summary("team/fast").message == ""
    await world.until(lambda: bad.sandbox_id not in {f"{TEAM}/{one['metadata']['name']}" for one in world.pods()})


async def test_a_pod_that_is_not_ready_yet_is_warm_once_its_executor_answers(world):
    """What the next leader takes for warm at once, the kubelet has seen listening."""
    first = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2 and all(map(is_ready, world.pods("warm"))))
    world.starts = False
    await first.fleet.release((await world.claim(first)).sandbox_id)
    await world.until(lambda: any(not is_ready(one) for one in world.pods("warm")))
    await world.kill(first)
    second = world.process()
    second.pretended.connect = never
    await world.until(lambda: second.serving)
    assert second.scheduler.summary("team/fast").warm == 1


def is_ready(pod):
    return pod_of(pod).ready


@pytest.mark.parametrize("is_written", [True, False])
async def test_an_ended_request_is_refused_by_the_fleet_that_saw_its_end_and_by_the_next(
    world, monkeypatch, is_written
):
    if not is_written:
        # The control.
        monkeypatch.setattr(EndedRecord, "_written", AsyncMock(return_value=True))
    monkeypatch.setattr(ended_record, "EVERY", 0.01)
    first = await world.fleet()
    sandbox = await world.claim(first)
    await first.fleet.release(sandbox.sandbox_id)
    with pytest.raises(FleetError, match="ended: Released"):
        await world.claim(first)
    await world.until(lambda: not world.objects())
    written = Ref(CONFIG_MAP, SYSTEM, ended_record.NAME)
    await world.until(lambda: (written in world.cluster.objects) is is_written)
    await world.kill(first)
    second = await world.fleet()
    if is_written:
        with pytest.raises(FleetError, match="ended under an earlier leader") as caught:
            await world.claim(second)
        assert caught.value.problem.reason == "ClaimEnded"
    else:
        assert (await world.claim(second)).sandbox_id != sandbox.sandbox_id
    assert await world.claim(second, "another")


async def test_what_has_ended_is_written_before_a_fleet_ends_and_not_by_one_that_was_deposed(world, monkeypatch):
    monkeypatch.setattr(ended_record, "EVERY", 1000.0)
    for leads in (True, False):
        fleet = await world.fleet()
        sandbox = await world.claim(fleet, f"r-{leads}")
        await fleet.fleet.release(sandbox.sandbox_id)
        fleet.state["leading"] = 1 if leads else None
        fleet.task.cancel()
        await asyncio.gather(fleet.task, return_exceptions=True)
        await world.kill(fleet)
    last = await world.fleet()
    with pytest.raises(FleetError, match="ended under an earlier leader"):
        await world.claim(last, "r-True")
    assert await world.claim(last, "r-False")


async def test_the_next_fleet_completes_a_claim_without_an_object(world):
    kube = world.client()
    first = await world.fleet(kube)
    await world.until(lambda: first.scheduler.summary("team/fast").warm == 2)
    kube.fault = lambda write: _dead() if write.verb == "create" and write.ref.kind == CODE_SANDBOX else None
    sandbox = await world.claim(first)
    await world.kill(first)
    assert not world.objects()
    second = await world.fleet()
    await world.until(lambda: len(world.objects()) == 1)
    await world.until(lambda: sandbox.sandbox_uid in second.pretended.opened)
    assert (await world.claim(second)).sandbox_id == sandbox.sandbox_id


async def test_two_fleets_never_claim_the_same_pod(world):
    first = await world.fleet()
    await world.until(lambda: first.scheduler.summary("team/fast").warm == 2)
    second = await world.fleet()
    await world.until(lambda: second.scheduler.summary("team/fast").warm == 2)
    got = {(await world.claim(one, f"r{number}")).sandbox_id for number, one in enumerate((first, second))}
    assert len(got) == 2


async def test_a_late_binding_of_a_deposed_fleet_is_freed(world):
    first = await world.fleet()
    await world.until(lambda: first.scheduler.summary("team/fast").warm == 2)
    second = await world.fleet()
    pod = world.pods("warm")[0]
    # What the first one had sent arrives only now, when the second one serves.
    late = await world.claim(first, "late")
    await world.kill(first)
    await world.until(lambda: late.sandbox_id not in {f"{TEAM}/{one['metadata']['name']}" for one in world.pods()})
    assert pod
    await world.until(lambda: not world.objects() and second.scheduler.summary("team/fast").warm == 2)


@pytest.mark.parametrize("verb", ["patch", "create", "delete"])
async def test_a_lost_reply_changes_nothing_for_callers(world, verb):
    kube = world.client()
    fleet = await world.fleet(kube)
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)
    lost = []

    def fault(write):
        if write.verb == verb and len(lost) < 2:
            lost.append(write)
            return _lost()
        return None

    kube.fault = fault
    sandbox = await world.claim(fleet)
    await world.until(lambda: len(world.objects()) == 1)
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: len(world.pods("warm")) == 2 == len(world.pods()) and not world.objects())
    assert lost


async def test_an_abandoned_claim_leaves_nothing(world):
    world.starts = False
    fleet = await world.fleet()
    with pytest.raises((TimeoutError, FleetError)):
        await world.claim(fleet, within=0.2)
    world.starts = True
    await world.until(lambda: len(world.pods("warm")) == 2 == len(world.pods()))
    assert not fleet.scheduler.inventory.waiting


def _end(pod, over):
    status = pod["status"]["containerStatuses"][0]
    status |= {"state": over, "restartCount": status.get("restartCount", 0) + 1}


def _policy():
    from sandfleet_operator.api.kube import NETWORK_POLICY

    return NETWORK_POLICY


def _dead():
    from sandfleet_operator.api.kube import Unreachable
    from support.fakes.kube_memory import Before

    return Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))


def _lost():
    from support.fakes.kube_memory import After

    return After()


async def test_a_claim_waits_for_the_operators_next_pod_when_its_pod_ends(world):
    fleet = await world.fleet()
    sandbox = await world.claim(fleet)
    await world.until(world.objects)
    (pod,) = world.pods("claimed")
    over = {"terminated": {"exitCode": 137, "reason": "Error"}}
    for _ in range(2):
        # It is said more than once.
        world.cluster.edit(ref_of(pod), lambda obj: _end(obj, over))
    await world.until(lambda: fleet.scheduler.inventory.count(State.RECOVERING) == 1)
    await world.kube.delete(ref_of(pod), grace_seconds=0)
    name = world.objects()[0]["metadata"]["name"]
    await world.recover(name)
    await world.until(lambda: fleet.scheduler.inventory.count(State.CLAIMED) == 1)
    present = fleet.session_of(f"{TEAM}/{name}")
    assert (present.sandbox_id, present.sandbox_uid, present.restarts) == (sandbox.sandbox_id, f"{TEAM}/{name}", 1)
    await world.until(lambda: present.sandbox_uid in fleet.pretended.opened)
    await world.kill(fleet)
    after = await world.fleet()
    again = await world.claim(after)
    assert (again.sandbox_id, again.sandbox_uid) == (sandbox.sandbox_id, f"{TEAM}/{name}")
    assert await after.fleet.release(again.sandbox_id)
    await world.until(lambda: not world.objects() and len(world.pods()) == 2)


async def test_deleting_a_pod_does_not_end_its_session(world):
    fleet = await world.fleet()
    sandbox, pod, made = await _claimed(world, fleet)

    def told_to_end(obj):
        obj["metadata"]["deletionTimestamp"] = world.cluster.time()
        _end(obj, {"terminated": {"exitCode": 0, "reason": "Completed"}})

    world.cluster.edit(ref_of(pod), told_to_end)
    await world.until(lambda: fleet.scheduler.inventory.count(State.RECOVERING) == 1)
    await world.recover(made["metadata"]["name"])
    await world.until(lambda: fleet.scheduler.inventory.count(State.CLAIMED) == 1)
    assert fleet.session_of(f"{TEAM}/{made['metadata']['name']}").sandbox_id == sandbox.sandbox_id


# What a search over the whole fleet has found.


async def _claimed(world, fleet):
    """A session that is written down, with its pod and its CodeSandbox."""
    sandbox = await world.claim(fleet)
    await world.until(lambda: any(owners(pod)[0][0] == "CodeSandbox" for pod in world.pods("claimed") if owners(pod)))
    return sandbox, world.pods("claimed")[0], world.objects()[0]


async def test_a_conflict_is_retried_and_loses_no_claim(world):
    from sandfleet_operator.api.kube import Conflict
    from support.fakes.kube_memory import Before

    kube = world.client()
    fleet = await world.fleet(kube)
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)
    met = []

    def fault(write):
        if write.verb == "patch" and len(met) < 2:
            met.append(write)
            return Before(Conflict(409, "Conflict", "cannot write: others are faster"))
        return None

    kube.fault = fault
    await _claimed(world, fleet)
    assert len(met) == 2


async def test_a_session_without_a_pod_is_released_with_its_codesandbox(world):
    fleet = await world.fleet()
    sandbox, pod, _ = await _claimed(world, fleet)
    await world.kube.delete(ref_of(pod), grace_seconds=0)
    await world.until(lambda: fleet.scheduler.inventory.count(State.RECOVERING) == 1)
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: not world.objects() and len(fleet.scheduler.inventory) == 2)


async def test_a_session_without_a_pod_ends_with_its_codesandbox(world):
    fleet = await world.fleet()
    _, pod, made = await _claimed(world, fleet)
    await world.kube.delete(ref_of(pod), grace_seconds=0)
    await world.until(lambda: fleet.scheduler.inventory.count(State.RECOVERING) == 1)
    await world.kube.delete(ref_of(made))
    await world.until(lambda: len(fleet.scheduler.inventory) == 2)


async def test_a_claim_ends_if_its_pod_vanishes_before_its_object_is_written(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    kube.fault = lambda write: _dead() if write.verb == "create" and write.ref.kind == CODE_SANDBOX else None
    await world.claim(fleet)
    (pod,) = world.pods("claimed")
    await world.kube.delete(ref_of(pod), grace_seconds=0)
    await world.until(
        lambda: not fleet.scheduler.inventory.count(State.CLAIMED) and len(fleet.scheduler.inventory) == 2
    )


async def test_one_request_at_two_fleets_keeps_the_leaders_pod(world):
    deposed = await world.fleet()
    await world.until(lambda: deposed.scheduler.summary("team/fast").warm == 2)
    leading = await world.fleet()
    await world.until(lambda: leading.scheduler.summary("team/fast").warm == 2)
    _, kept = await asyncio.gather(world.claim(deposed), world.claim(leading))
    await world.until(lambda: len(world.pods("claimed")) == 1 and len(world.objects()) == 1)
    (pod,) = world.pods("claimed")
    assert f"{TEAM}/{pod['metadata']['name']}" == kept.sandbox_id
    await world.until(
        lambda: (
            owners(world.pods("claimed")[0])
            == [("CodeSandbox", object_name(RequestKey("alice", "r1", f"{TEAM}/fast")))]
        )
    )
    assert leading.session_of(f"{TEAM}/{world.objects()[0]['metadata']['name']}").sandbox_id == kept.sandbox_id


async def test_nothing_is_remembered_of_a_session_that_is_over(world):
    fleet = await world.fleet()
    observer = fleet._observer
    for number in range(3):
        sandbox = await world.claim(fleet, f"r{number}")
        await world.until(lambda: any(one["metadata"].get("ownerReferences") for one in world.pods("claimed")))
        (pod,) = world.pods("claimed")
        # As the watches show it after the session's end: the object first, then its pod in deletion, then gone.
        assert await fleet.fleet.release(sandbox.sandbox_id)
        await world.until(lambda: not world.objects() and not world.pods("claimed"))
        observer.pod({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, gone=False)
        assert observer._owned
        observer.pod(pod, gone=True)
    assert observer._owned == {}
