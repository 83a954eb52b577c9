"""A refusal is not a race: a claim that the API server refuses fails with its words, and its pod waits for the next."""

import json

import pytest
from sandfleet_operator.api import kube
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.kube import POD, Ref
from sandfleet_operator.api.values import State
from sandfleet_operator.plan.claims import patches
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from support.fakes.kube_admission import denies
from support.fakes.kube_memory import After, Before
from support.kubernetes.world import TEAM, World, pool_object, template_object

HOUSE = "claims are closed on Sundays"


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


async def full(world, fleet, many=2):
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == many)


def uids(world):
    return {pod["metadata"]["uid"] for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]}


def state_of(obj):
    return (obj["metadata"].get("labels") or {}).get(names.STATE)


def binds(ref, old, new):
    return ref.kind == POD and old is not None and (state_of(old), state_of(new)) == ("warm", "claimed")


def strays(world, fleet):
    """Pods with our label that are neither known to the fleet nor on their way out."""
    known = {one.sandbox_uid for one in fleet.scheduler.inventory.all()}
    there = [pod["metadata"] for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]]
    return [one["name"] for one in there if f"{TEAM}/{one['name']}" not in known]


@pytest.mark.parametrize("status", [422, 403, 400, 413])
async def test_a_claim_that_is_refused_has_the_api_servers_words_and_its_pod_stays_warm(world, status):
    fleet = await world.fleet()
    await full(world, fleet)
    before = uids(world)
    world.cluster.admit = denies(status, HOUSE, binds)
    for number in range(5):
        with pytest.raises(FleetError, match=HOUSE) as refusal:
            await world.claim(fleet, f"r{number}")
        problem = refusal.value.problem
        assert (problem.code, problem.reason) == (Code.FAILED_PRECONDITION, "ClaimRefused")
        if not number:
            assert uids(world) >= before
        assert not strays(world, fleet)
    # The pool has begun to fill the gap, and is not larger for it.
    await world.until(lambda: len(uids(world)) == fleet.scheduler.summary("team/fast").warm == 2)
    world.cluster.admit = lambda *_: None
    there = uids(world)
    assert (await world.claim(fleet, "r0")).state is State.CLAIMED
    assert uids(world) >= there


async def test_what_was_sent_before_the_refusal_and_may_still_arrive_ends_with_its_pod(world):
    client = world.client()
    fleet = await world.fleet(client)
    await full(world, fleet)
    sent = []

    def lost_then_refused(write):
        if write.verb != "patch" or write.ref.kind != POD or not any(one["value"] == "claimed" for one in write.body):
            return None
        sent.append(write)
        return Before(kube.Unreachable(0, "Timeout", "no answer") if len(sent) == 1 else kube.failure("patch", 403, {}))

    client.fault = lost_then_refused
    with pytest.raises(FleetError, match="403"):
        await world.claim(fleet)
    client.fault = lambda _: None
    await world.until(lambda: sent[0].ref not in world.cluster.objects)
    await full(world, fleet)
    assert not strays(world, fleet)


async def test_a_claim_whose_lost_write_has_arrived_is_served_also_after_a_refusal(world):
    client = world.client()
    fleet = await world.fleet(client)
    await full(world, fleet)
    sent = []

    def done_then_refused(write):
        if write.verb != "patch" or write.ref.kind != POD or not any(one["value"] == "claimed" for one in write.body):
            return None
        sent.append(write)
        return After() if len(sent) == 1 else Before(kube.failure("patch", 403, {}))

    client.fault = done_then_refused
    assert (await world.claim(fleet)).bound


async def test_a_pod_that_another_fleet_has_is_not_a_refusal(world):
    """The control: the claim goes on with the next pod."""
    client = world.client()
    fleet = await world.fleet(client)
    await full(world, fleet)
    taken = []

    def taken_first(write):
        if write.ref.kind == POD and write.verb == "patch" and not taken:
            taken.append(write.ref)
            theirs = {**read_record_of(write.body), "fencing": 99, "request": "theirs"}
            world.cluster.edit(write.ref, lambda pod: bind_to(pod, theirs))

    client.fault = taken_first
    sandbox = await world.claim(fleet)
    assert sandbox.bound
    assert sandbox.sandbox_id != f"{TEAM}/{taken[0].name}"
    assert state_of(world.cluster.objects[taken[0]]) == "claimed"


def read_record_of(patch):
    return json.loads(next(one["value"] for one in patch if one["path"].endswith("~1claim")))


def bind_to(pod, record):
    pod["metadata"]["labels"][names.STATE] = "claimed"
    pod["metadata"]["annotations"][names.CLAIM] = json.dumps(record)


async def test_a_takeover_waits_for_the_policy_that_refuses_it_and_does_not_turn(world):
    first = await world.fleet()
    await full(world, first)
    await world.claim(first)
    (pod,) = world.pods("claimed")
    ref = Ref(POD, TEAM, pod["metadata"]["name"])
    await world.kill(first)
    world.cluster.edit(ref, lambda obj: obj["metadata"].update(ownerReferences=[]))
    for made in world.objects():
        await world.kube.delete(kube.ref_of(made))
    client = world.client()
    world.cluster.admit = denies(422, HOUSE, lambda other, _old, _new: other == ref)
    second = world.process(client)
    await world.until(lambda: any(write.ref == ref for write in client.writes))
    world.cluster.admit = lambda *_: None
    await world.until(lambda: second.serving)
    assert len([write for write in client.writes if write.ref == ref and write.verb == "patch"]) < 50
    assert read_record(world.cluster.objects[ref]["metadata"]["annotations"][names.CLAIM]).keeper


def test_only_the_tests_of_a_patch_are_held_against_the_object():
    patch = [
        {"op": "test", "path": "/metadata/labels/a~1b", "value": "c"},
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "d"},
    ]
    assert patches.tests_hold({"metadata": {"labels": {"a/b": "c"}}}, patch)
    assert not patches.tests_hold({"metadata": {"labels": {"a/b": "d"}}}, patch)
    assert not patches.tests_hold({"metadata": {"labels": None}}, patch)
    assert not patches.tests_hold({}, patch)
