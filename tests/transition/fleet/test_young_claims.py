"""A young claim is only its pod: what that saves, what is shown of it, and what keeps its session."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.kinds.meta import meta_of
from sandfleet_operator.api.kube import CODE_SANDBOX, LEASE, POD, Ref, ref_of
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.values import ExitCode, RequestKey, State
from sandfleet_operator.fleet.kubernetes import backend, writer
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.record import object_name, read_record
from sandfleet_operator.plan.claims.sandbox_object import code_sandbox
from sandfleet_operator.plan.pods import names
from sandfleet_rules.backoff import Backoff
from support.fakes.kube_cluster import deleting
from support.kubernetes.world import SETTINGS, TEAM, World, pool_object, sandbox_object, template_object
from transition.fleet.test_fleet_egress import OPENS
from transition.fleet.test_fleet_kubernetes_faults import Late, owners, takes_a_pod
from transition.nodes import ended

ANY = parse_selector("")
NAME = object_name(RequestKey("alice", "r1", f"{TEAM}/fast"))
LONG, SOON = 3600.0, 0.3


@pytest.fixture
async def world():
    async with World() as made:
        made.settings = replace(SETTINGS, young_claim_seconds=LONG)
        await made.add(template_object(workspace={"size": "1Gi", "ephemeral": True}), pool_object())
        yield made


async def full(world, fleet):
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)


async def serving(world, kube=None):
    fleet = await world.fleet(kube)
    await full(world, fleet)
    return fleet


def only_claimed(world):
    (pod,) = world.pods("claimed")
    return ref_of(pod)


def crash(world, code=1):
    world.cluster.edit(only_claimed(world), lambda pod: ended(pod, int(code)))


def session(fleet):
    return fleet.session_of(f"{TEAM}/{NAME}")


def own_writes(kube, before):
    found = Counter(f"{write.verb} {write.ref.kind.plural.split('.')[0]}" for write in kube.writes[before:])
    return {what: many for what, many in found.items() if what.split()[1] not in {LEASE.plural, "sandboxpools"}}


async def shown(fleet):
    page, _ = await fleet.feed.page("", ANY, "", 10)
    return {one.sandbox_id: one.state for one in map(fleet_pb2.Sandbox.FromString, page)}


async def test_a_short_session_costs_three_writes_and_no_object(world):
    kube = world.client()
    fleet = await serving(world, kube)
    before = len(kube.writes)
    sandbox = await world.claim(fleet)
    await full(world, fleet)
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: not world.pods("claimed"))
    assert own_writes(kube, before) == {"patch pods": 1, "create pods": 1, "delete pods": 1}
    assert not world.objects()
    await world.until(lambda: not fleet._observer._ids._serving and not fleet._backend._runs.keys() - warm(world))


def warm(world):
    return {f"{TEAM}/{pod['metadata']['name']}" for pod in world.pods("warm")}


@pytest.mark.parametrize("seconds", [SOON, 0.0])
async def test_the_object_follows_when_the_claim_is_older(world, seconds):
    world.settings = replace(SETTINGS, young_claim_seconds=seconds)
    fleet = await serving(world)
    await world.claim(fleet)
    await world.until(lambda: [owners(pod) for pod in world.pods("claimed")] == [[NAME]])
    (made,) = world.objects()
    assert made["metadata"]["name"] == NAME


@pytest.mark.parametrize("fields", [{"workspace": {"size": "1Gi"}}])
async def test_a_claim_with_a_volume_is_written_down_at_once(world, fields):
    await world.add(template_object("kept", **fields), pool_object("kept", 1, "kept"))
    fleet = await serving(world)
    await world.claim(fleet, pool="kept")
    await world.until(world.objects)


@pytest.mark.parametrize("lose", [crash, lambda world: world.cluster.objects[only_claimed(world)]])
async def test_a_session_whose_pod_ends_is_written_down_and_then_recovered(world, lose):
    fleet = await serving(world)
    await world.claim(fleet)
    pod = only_claimed(world)
    if lose is crash:
        crash(world)
    else:
        await world.kube.delete(pod)
    await world.until(lambda: session(fleet).state is State.RECOVERING)
    (made,) = world.objects()
    assert made["status"]["binding"]["podName"] == pod.name
    await world.recover(NAME)
    await world.until(lambda: session(fleet).state is State.CLAIMED)
    assert (await shown(fleet))[f"{TEAM}/{NAME}"] == fleet_pb2.SANDBOX_STATE_CLAIMED


@pytest.mark.parametrize("code", [ExitCode.LEASE, ExitCode.IDLE, ExitCode.CLOSED])
async def test_a_session_that_its_executor_has_ended_leaves_nothing(world, code):
    kube = world.client()
    fleet = await serving(world, kube)
    before = len(kube.writes)
    await world.claim(fleet)
    crash(world, code)
    await world.until(lambda: session(fleet) is None and not world.pods("claimed"))
    assert "create codesandboxes" not in own_writes(kube, before)


async def test_the_next_leader_goes_on_with_young_claims_from_their_pods(world):
    first = await serving(world)
    sandbox = await world.claim(first)
    await world.kill(first)
    second = await world.fleet()
    assert session(second).sandbox_id == sandbox.sandbox_id
    assert not world.objects()
    assert (await world.claim(second)).sandbox_id == sandbox.sandbox_id


async def test_the_next_leader_recovers_a_session_whose_pod_ended_while_no_fleet_led(world):
    first = await serving(world)
    await world.claim(first)
    await world.kill(first)
    crash(world)
    second = await world.fleet()
    await world.until(lambda: session(second).state is State.RECOVERING)
    assert [one["metadata"]["name"] for one in world.objects()] == [NAME]


async def test_the_next_leader_writes_down_claims_that_are_old_by_then(world):
    first = await serving(world)
    await world.claim(first)
    await world.kill(first)
    world.settings = replace(SETTINGS, young_claim_seconds=SOON)
    await world.fleet()
    await world.until(lambda: [owners(pod) for pod in world.pods("claimed")] == [[NAME]])


async def test_a_late_release_ends_no_session_that_the_next_leader_has_taken_over(world):
    late = Late(world)
    first = await serving(world, late)
    sandbox = await world.claim(first)
    late.holds = takes_a_pod
    releasing = asyncio.create_task(first.fleet.release(sandbox.sandbox_id))
    await world.until(lambda: late.held)
    await world.kill(first)
    releasing.cancel()
    second = await world.fleet()
    assert (await world.claim(second)).sandbox_id == sandbox.sandbox_id
    await late.landed()
    assert session(second).state is State.CLAIMED
    assert not deleting(world.cluster.objects[only_claimed(world)])


async def test_the_late_object_of_an_earlier_leader_goes_before_the_pod_of_a_released_session(world):
    await world.claim(await serving(world))
    ref, kube = only_claimed(world), world.client()
    seen = await kube.get(ref)
    uid, record = seen["metadata"]["uid"], read_record(seen["metadata"]["annotations"][names.CLAIM])
    made = code_sandbox(TEAM, ref.name, uid, record, template="python", pool="fast", memory_reserve=0)
    owner = names.owned_by("CodeSandbox", meta_of(await kube.create(made)))
    world.cluster.edit(ref, lambda pod: pod["metadata"].update(ownerReferences=[owner]))
    assert await Writer(kube, lambda: 1).delete_claimed(ref, uid, record, seen)
    # The first one is refused: it names a version from before the pod was owned.
    assert [one.ref.kind for one in kube.writes if one.verb == "delete"][:2] == [POD, CODE_SANDBOX]


async def test_a_release_that_lands_during_the_takeover_stays_a_release(world):
    first = await serving(world)
    await world.claim(first)
    pod = only_claimed(world)
    await world.kill(first)
    kube = world.client()

    def lands(write):
        if write.verb == "patch" and write.ref == pod and not deleting(world.cluster.objects[pod]):
            world.cluster.edit(pod, lambda obj: obj["metadata"].update(deletionTimestamp=world.cluster.time()))

    kube.fault = lands
    second = await world.fleet(kube)
    assert session(second) is None
    assert not world.objects()


async def test_lists_and_watches_show_a_session_from_its_claim_to_its_end_and_never_as_starting(world):
    world.settings = replace(SETTINGS, young_claim_seconds=SOON)
    fleet, standby = await serving(world), world.process(number=0)
    sandbox = await world.claim(fleet, labels={"app": "agent"})
    watching, seen = fleet.feed.watch("", parse_selector("app=agent")), []

    async def follow():
        async for news in watching:
            seen.append(news)

    following = asyncio.create_task(follow())
    for one in (fleet, standby):
        await world.until(lambda one=one: _shows(one, fleet_pb2.SANDBOX_STATE_CLAIMED))
    await world.until(lambda: [owners(pod) for pod in world.pods("claimed")] == [[NAME]])
    assert await shown(fleet) == {f"{TEAM}/{NAME}": fleet_pb2.SANDBOX_STATE_CLAIMED}
    await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: any(news.HasField("removed") for news in seen))
    assert {news.changed.state for news in seen if news.HasField("changed")} == {fleet_pb2.SANDBOX_STATE_CLAIMED}
    assert [news.removed.sandbox_id for news in seen if news.HasField("removed")] == [f"{TEAM}/{NAME}"]
    assert await shown(fleet) == {}
    following.cancel()


async def _shows(fleet, state):
    return (await shown(fleet)).get(f"{TEAM}/{NAME}") == state


async def test_a_released_young_session_is_shown_no_more(world):
    fleet = await serving(world)
    sandbox = await world.claim(fleet)
    await world.until(lambda: _shows(fleet, fleet_pb2.SANDBOX_STATE_CLAIMED))
    await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: _shows(fleet, None))


async def test_egress_of_a_young_session_is_asked_for(world):
    await world.add(
        template_object("open", workspace={"size": "1Gi", "ephemeral": True}, egress=OPENS),
        pool_object("open", 1, "open"),
    )
    fleet = await serving(world)
    await world.until(lambda: fleet.scheduler.summary("team/open").warm == 1)
    await world.claim(fleet, pool="open")
    await world.until(lambda: fleet.pretended.probed)
    assert not world.objects()


@pytest.mark.parametrize("pool", ["fast", "none"])
async def test_an_object_of_a_user_that_takes_its_name_ends_no_session(world, monkeypatch, pool):
    """It goes on as its pod, and is written down when the name is free."""
    monkeypatch.setattr(writer, "MAKE_ROOM", 0.05)
    monkeypatch.setattr(backend, "NAME_TAKEN", Backoff(first=0.05, longest=0.05))
    world.settings = replace(SETTINGS, young_claim_seconds=SOON)
    kube = world.client()
    fleet = await serving(world, kube)
    mine = await world.claim(fleet)
    await world.add(sandbox_object(NAME, pool=pool))
    await world.until(lambda: tries_of(kube) >= 4 or session(fleet) is None)
    assert (session(fleet).sandbox_id, session(fleet).state) == (mine.sandbox_id, State.CLAIMED)
    # The other object gets no pod under the name of this session.
    assert [ref_of(pod).name for pod in world.pods("claimed")] == [mine.sandbox_id.partition("/")[2]]
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, NAME))
    await world.until(lambda: [owners(pod) for pod in world.pods("claimed")] == [[NAME]])
    assert session(fleet).sandbox_id == mine.sandbox_id


async def test_the_object_that_took_the_name_has_its_turn_after_the_session(world, monkeypatch):
    monkeypatch.setattr(backend, "NAME_TAKEN", Backoff(first=0.05, longest=0.05))
    world.settings = replace(SETTINGS, young_claim_seconds=SOON)
    kube = world.client()
    fleet = await serving(world, kube)
    mine = await world.claim(fleet)
    await world.add(sandbox_object(NAME))
    await world.until(lambda: tries_of(kube) >= 2)
    assert await fleet.fleet.release(mine.sandbox_id)
    await world.until(lambda: session(fleet) is not None and session(fleet).sandbox_id != mine.sandbox_id)
    (made,) = world.objects()
    assert session(fleet).claim.object_uid == made["metadata"]["uid"]


def tries_of(kube):
    return sum(write.verb == "create" and write.ref.kind == CODE_SANDBOX for write in kube.writes)


async def _takes_any_object(_writer, _found):
    return None


async def test_a_session_that_ends_by_an_object_of_a_user_is_found_without_the_mend(world, monkeypatch):
    """42.8."""
    monkeypatch.setattr(Writer, "_check_is_claims", _takes_any_object)
    with pytest.raises(AttributeError, match="NoneType"):
        await test_an_object_of_a_user_that_takes_its_name_ends_no_session(world, monkeypatch, "none")
