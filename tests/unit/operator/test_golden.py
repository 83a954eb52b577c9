"""Data that an earlier version stored in the cluster is still read. That version wrote tests/unit/operator/golden."""

import asyncio
import json
import math
from copy import deepcopy
from pathlib import Path

import pytest
from sandfleet_operator.api.kinds.sandbox import code_sandbox, status_json
from sandfleet_operator.api.kube import CODE_SANDBOX, LEASE, POD, Ref
from sandfleet_operator.api.values import Claim, Limits, RequestKey, State
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.plan.claims.lease_end import lease_end
from sandfleet_operator.plan.claims.record import Record, read_record, record_of, record_text
from sandfleet_operator.plan.leadership import Terms
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import pod_of
from support.kubernetes.world import LEASE_REF, SYSTEM, TEAM, World, pool_object, sandbox_object, template_object

GOLDEN = Path(__file__).parent / "golden"
RECORDS = {
    "small": Record(
        object="claim-b48aefe2a1d7de525929",
        request="r1",
        holder="alice",
        fencing=3,
        at=1700000000.25,
        lease=300.0,
    ),
    "full": Record(
        object="mine",
        request="r2",
        holder="system:serviceaccount:team:agent",
        fencing=4,
        at=1700000001.5,
        lease=math.inf,
        idle=90.5,
        labels={"app": "agent"},
        envs={"A": "b\n\u00e9"},
        contract="autonomous",
        egress=False,
        keep=True,
        workspace="workspace-old",
        limits=Limits(
            memory_bytes=1 << 30,
            tmp_bytes=1 << 20,
            processes=64,
            output_bytes=4096,
            executions=2,
            max_timeout=60.0,
            default_timeout=12.5,
            open_files=256,
            disk_bytes=1 << 30,
        ),
        uid="uid-of-mine",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        keeper=5,
    ),
}


def stored(name):
    return json.loads((GOLDEN / name).read_text())


@pytest.mark.parametrize("name", RECORDS)
def test_a_stored_record_is_read_and_written_as_it_was(name):
    text = stored("claim-records.json")[name]
    assert read_record(text) == RECORDS[name]
    # Patches test the text: another spelling of the same record would let no claim be finished or undone.
    assert record_text(RECORDS[name]) == text


def test_a_stored_pod_says_which_claim_it_serves():
    pod = pod_of(stored("claimed-pod.json"))
    annotations = stored("claim-annotations.json")
    assert pod.annotations[names.CLAIM] == annotations[names.CLAIM]
    assert annotations[names.BOUND_POD] == f"{pod.name}/{pod.uid}"
    assert read_record(pod.annotations[names.CLAIM]).key("team/fast") == RequestKey("alice", "r1", "team/fast")
    assert pod.labels[names.STATE] == "claimed"


def test_a_stored_status_is_read_and_written_as_it_was():
    said = stored("sandbox-status.json")
    obj = {
        "apiVersion": CODE_SANDBOX.api_version,
        "kind": CODE_SANDBOX.kind,
        "metadata": {"namespace": TEAM, "name": "mine", "uid": "u"},
        "spec": {"templateRef": {"name": "python"}},
        "status": said,
    }
    status = code_sandbox(obj).status
    assert (status.pod, status.pod_uid, status.address, status.fencing) == ("p-1", "uid-1", "10.0.0.7:50051", 7)
    assert (status.restarts, status.crashes, status.services_ready) == (1, 1, "0/1")
    # An earlier release wrote none of the later fields.
    later = ("templateRevision", "observedAdmissionTime", "restoresFrom")
    assert status_json(status) == {**said, **dict.fromkeys(later)}


async def test_leadership_goes_on_from_a_stored_lease():
    ref = Ref(LEASE, SYSTEM, "elected")
    async with World() as world:
        await world.kube.create(
            {key: value for key, value in stored("lease.json").items() if key != "metadata"}
            | {"metadata": {"namespace": SYSTEM, "name": ref.name}}
        )
        now = [0.0]

        async def sleep(seconds):
            now[0] += seconds
            await asyncio.sleep(0)

        elector = Elector(world.client(), ref, "fleet-1_efgh", Terms(), clock=lambda: now[0], sleep=sleep)
        assert await elector.acquire() == stored("lease.json")["spec"]["leaseTransitions"] + 1
        # Not before the stored leadership had its time.
        assert now[0] >= stored("lease.json")["spec"]["leaseDurationSeconds"]


def as_stored(text):
    return text


def by_a_later_release(text):
    """With fields that this release does not know, spelled as this release does not."""
    later = {"version": 2, "lane": {"name": "night", "share": [1, 2.5, None]}, "limits": {"gpus": 1}}
    return json.dumps({**json.loads(text), **later}, indent=1)


def unknown(text):
    said = json.loads(text)
    return {name: said.get(name) for name in ("version", "lane", "limits")}


@pytest.mark.parametrize("spelled", [as_stored, by_a_later_release])
async def test_a_claim_is_completed_and_released_with_the_record_that_another_release_wrote(spelled):
    claimed = stored("claimed-pod.json")
    # Its fleet ended before it had written the CodeSandbox.
    claimed["metadata"].pop("ownerReferences")
    text = spelled(claimed["metadata"]["annotations"][names.CLAIM])
    claimed["metadata"]["annotations"][names.CLAIM] = text
    ref = Ref(POD, TEAM, claimed["metadata"]["name"])
    async with World() as world:
        await world.add(template_object(), pool_object(size=1))
        world.cluster.commit(ref, claimed)
        fleet = await world.fleet(number=2)
        key = f"{TEAM}/{ref.name}"
        assert fleet.scheduler.inventory.get(key).state is State.CLAIMED
        await world.until(lambda: world.cluster.objects[ref]["metadata"].get("ownerReferences"))
        (made,) = world.objects()
        for one in (made, world.cluster.objects[ref]):
            kept = one["metadata"]["annotations"][names.CLAIM]
            assert unknown(kept) == unknown(text)
            assert (read_record(kept).keeper, read_record(kept).version) == (2, read_record(text).version)
        # A fleet of the release before reads it after a rollback, and the next one goes on.
        await world.kill(fleet)
        fleet = await world.fleet(number=3)
        assert await fleet.fleet.release(key)
        await world.until(lambda: not world.objects() and ref not in world.cluster.objects)


@pytest.mark.parametrize("spelled", [as_stored, by_a_later_release])
async def test_a_session_that_another_release_wrote_down_is_renewed_and_released(spelled):
    claimed, annotations = stored("claimed-pod.json"), stored("claim-annotations.json")
    text = annotations[names.CLAIM] = claimed["metadata"]["annotations"][names.CLAIM] = spelled(
        annotations[names.CLAIM]
    )
    pod, ref = Ref(POD, TEAM, claimed["metadata"]["name"]), Ref(CODE_SANDBOX, TEAM, read_record(text).object)
    async with World() as world:
        await world.add(template_object(), pool_object(size=1))
        obj = sandbox_object(ref.name)
        obj["metadata"]["annotations"] = annotations
        made = await world.kube.create(obj)
        claimed["metadata"]["ownerReferences"][0]["uid"] = made["metadata"]["uid"]
        world.cluster.commit(pod, claimed)
        # After an upgrade, and again after a rollback.
        for number in (2, 3):
            fleet = await world.fleet(number=number)
            session = fleet.session_of(f"{TEAM}/{ref.name}")
            assert (session.sandbox_id, session.state) == (f"{TEAM}/{pod.name}", State.CLAIMED)
            await fleet.fleet.renew(session.sandbox_id, number * 1000.0)
            await world.until(lambda number=number: lease_left(world.cluster.objects[ref]) > number * 1000.0 - 30)
            assert world.cluster.objects[ref]["metadata"]["annotations"][names.CLAIM] == text
            if number == 3:
                assert await fleet.fleet.release(session.sandbox_id)
            await world.kill(fleet)
        await world.until(lambda: ref not in world.cluster.objects and pod not in world.cluster.objects)


def lease_left(obj):
    now = wall_clock()
    return (lease_end(obj["metadata"]["annotations"], now) or now) - now


@pytest.mark.parametrize("spelled", [as_stored, by_a_later_release])
async def test_a_claim_of_another_release_that_no_caller_has_is_undone(spelled):
    claimed = stored("claimed-pod.json")
    claimed["metadata"].pop("ownerReferences")
    annotations = claimed["metadata"]["annotations"]
    annotations[names.CLAIM] = spelled(annotations[names.CLAIM])
    ref = Ref(POD, TEAM, claimed["metadata"]["name"])
    async with World() as world:
        await world.add(template_object(), pool_object(size=1))
        await world.fleet(number=2)
        # It turns up after the takeover.
        world.cluster.commit(ref, claimed)
        await world.until(lambda: ref not in world.cluster.objects)


def test_this_release_writes_no_field_that_the_release_before_does_not_know():
    """After a rollback it would spell the record without the field, and its tests would fail."""
    known = {field for text in stored("claim-records.json").values() for field in json.loads(text)}
    claim = Claim(
        key=RequestKey("alice", "r1", f"{TEAM}/fast"),
        pool=f"{TEAM}/fast",
        labels={"app": "x"},
        envs={"A": "b"},
        idle_timeout=60.0,
        workspace_id=f"{TEAM}/workspace-old",
        keep_workspace=True,
        limits=Limits(memory_bytes=1 << 29),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        name="mine",
        object_uid="uid-of-mine",
    )
    assert set(json.loads(record_text(record_of(claim, 1, 1.0).kept_by(2)))) == known


async def test_a_fleet_takes_over_stored_pods():
    warm, claimed = stored("warm-pod.json"), stored("claimed-pod.json")
    # Its fleet ended before it had written the CodeSandbox.
    claimed["metadata"].pop("ownerReferences")
    async with World() as world:
        await world.add(template_object(), pool_object(size=1))
        for pod in (warm, claimed):
            ref = Ref(POD, TEAM, pod["metadata"]["name"])
            world.cluster.commit(ref, deepcopy(pod))
        fleet = await world.fleet(number=2)
        key = f"{TEAM}/{claimed['metadata']['name']}"
        assert fleet.scheduler.inventory.get(key).state is State.CLAIMED
        assert fleet.scheduler.inventory.of_session(RequestKey("alice", "r1", "team/fast")).sandbox_id == key
        await world.until(lambda: len(world.objects()) == 1)
        (made,) = world.objects()
        record = read_record(claimed["metadata"]["annotations"][names.CLAIM])
        assert made["metadata"]["name"] == record.object
        await world.until(lambda: fleet.scheduler.summary(f"{TEAM}/fast").warm == 1)
        assert world.cluster.objects[LEASE_REF]["metadata"]["annotations"]["sandfleet.io/served"] == "2"
