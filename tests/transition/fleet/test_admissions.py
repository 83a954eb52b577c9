"""The fleet admits the operator's sandboxes: in turn and within the quota, across crashes, leaders and edits."""

import asyncio
from contextlib import suppress

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_QUEUE, SANDBOX_TEMPLATE, Json, Ref, ref_of
from sandfleet_operator.api.times import time_text
from sandfleet_operator.cluster import reflector
from sandfleet_operator.fleet.kubernetes.queues import grants
from sandfleet_operator.fleet.kubernetes.queues.grants import Grants
from sandfleet_operator.fleet.kubernetes.queues.queues import Queues
from support.fakes.kube_memory import After, Before, MemoryKube
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object
from transition.quota import most_counted

QUOTA = {"sandboxes": 2}


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object())
        yield made


def queue_object(name: str = "default", quota: Json | None = None, **spec) -> Json:
    metadata = {"namespace": TEAM, "name": name}
    spec = {"nominalQuota": QUOTA if quota is None else quota, **spec}
    return {"apiVersion": SANDBOX_QUEUE.api_version, "kind": SANDBOX_QUEUE.kind, "metadata": metadata, "spec": spec}


async def ask(world: World, *names: str, **spec) -> None:
    """CodeSandboxes without a pool, in this order."""
    for name in names:
        made = sandbox_object(name, **spec)
        del made["spec"]["poolRef"]
        await world.add(made)


def ref(name: str) -> Ref:
    return Ref(CODE_SANDBOX, TEAM, name)


def said(world: World, name: str) -> Json:
    found = world.cluster.objects.get(ref(name)) or {}
    return (found.get("status") or {}).get("admission") or {}


def state(world: World, name: str) -> str:
    return str(said(world, name).get("state", ""))


def states(world: World, *names: str) -> list[str]:
    return [state(world, name) for name in names]


async def come(world: World, expected: str, *names: str) -> None:
    await world.until(lambda: states(world, *names) == [expected] * len(names))


async def says(world: World, name: str, **status) -> None:
    await world.kube.merge(ref(name), {"status": status}, "status")


async def obeys(world: World, name: str) -> None:
    """The operator's part: the pod is gone, and the status follows what the fleet has decided."""
    await says(world, name, observedAdmissionTime=said(world, name)["time"], podUID=None)


def a_condition(world: World, name: str, kind: str, holds: str = "True") -> Json:
    generation = world.cluster.objects[ref(name)]["metadata"]["generation"]
    moment = time_text(world.clock())
    return {
        "type": kind,
        "status": holds,
        "reason": kind,
        "lastTransitionTime": moment,
        "observedGeneration": generation,
    }


async def suspend(world: World, name: str) -> None:
    """By its owner, and then by the operator."""
    await world.kube.merge(ref(name), {"spec": {"operatingMode": "Suspended"}})
    await says(world, name, conditions=[a_condition(world, name, "Suspended")], podUID=None)


async def resume(world: World, name: str) -> None:
    await world.kube.merge(ref(name), {"spec": {"operatingMode": "Running"}})


async def quiet(world: World) -> None:
    """What was to happen has happened."""
    await asyncio.sleep(0.3)


async def test_objects_are_admitted_in_turn_within_the_quota_and_told_why_they_wait(world):
    await world.add(queue_object())
    await world.fleet()
    await ask(world, "one", "two", "three")
    await come(world, "Admitted", "one", "two")
    await come(world, "Pending", "three")
    assert (said(world, "three")["reason"], said(world, "one").get("reason")) == ("QuotaReached", None)
    assert "2 of 2 sandboxes" in said(world, "three")["message"]
    await world.kube.delete(ref("one"))
    await come(world, "Admitted", "two", "three")
    assert most_counted(world.cluster) == {f"{TEAM}/default": 2}


async def test_cpu_and_memory_count_as_the_pod_requests_them(world):
    await world.add(template_object("large", resources={"limits": {"cpu": "3", "memory": "4Gi"}, "requests": {"cpu": "3", "memory": "1Gi"}}))  # fmt: skip
    await world.add(queue_object(quota={"cpu": "3500m", "memory": "3Gi"}))
    await world.fleet()
    await ask(world, "large", template="large")
    await ask(world, "small")
    await come(world, "Admitted", "large", "small")
    assert (said(world, "large")["cpu"], said(world, "large")["memory"]) == ("3", "1Gi")
    await ask(world, "larger", template="large")
    await come(world, "Pending", "larger")


@pytest.mark.parametrize(
    ("spec", "quota", "reason"),
    [
        ({"queueRef": {"name": "other"}}, QUOTA, "QueueNotFound"),
        ({"priorityClass": "none"}, QUOTA, "PriorityNotFound"),
        ({}, {"memory": "1Mi"}, "QuotaTooSmall"),
    ],
)
async def test_what_the_queue_can_never_admit_says_so_and_stands_in_nobodys_way(world, spec, quota, reason):
    await world.add(queue_object(quota=quota))
    await world.fleet()
    await ask(world, "never", **spec)
    await come(world, "Pending", "never")
    assert said(world, "never")["reason"] == reason
    await world.kube.merge(Ref(SANDBOX_QUEUE, TEAM, "default"), {"spec": {"nominalQuota": {"memory": None, **QUOTA}}})
    await ask(world, "mine")
    await come(world, "Admitted", "mine")


async def test_objects_without_a_queue_are_left_alone(world):
    await world.add(queue_object("team"))
    await world.fleet()
    await ask(world, "free")
    await ask(world, "bound", queueRef={"name": "team"})
    await come(world, "Admitted", "bound")
    await quiet(world)
    assert said(world, "free") == {}


async def test_claims_and_objects_share_one_quota(world):
    await world.add(pool_object(), queue_object())
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    await world.claim(fleet, queue=f"{TEAM}/default")
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    await come(world, "Pending", "two")
    with pytest.raises(TimeoutError):
        await world.claim(fleet, "r2", within=0.5, queue=f"{TEAM}/default")
    await world.kube.delete(ref("one"))
    await come(world, "Admitted", "two")


@pytest.mark.parametrize("over", ["released", "deleted"])
async def test_a_session_uses_its_quota_until_its_pod_is_gone(world, monkeypatch, over):
    await world.add(queue_object(quota={"sandboxes": 1}), pool_object())
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    for pod in world.pods():
        # The node takes its time to end it.
        world.cluster.edit(ref_of(pod), lambda one: one["spec"].update(nodeName="node-0"))
    one = await world.claim(fleet, queue=f"{TEAM}/default")
    await world.until(world.objects)
    with monkeypatch.context() as slow:
        slow.setattr(world.cluster, "kubelet", lambda: None)
        if over == "released":
            await fleet.fleet.release(one.sandbox_id)
        else:
            await world.kube.delete(ref(world.objects()[0]["metadata"]["name"]))
        await world.until(lambda: any("deletionTimestamp" in pod["metadata"] for pod in world.pods("claimed")))
        # On a busy machine the fleet is first to say so.
        with pytest.raises((TimeoutError, FleetError)):
            await world.claim(fleet, "r2", within=0.5, queue=f"{TEAM}/default")
        await world.kill(fleet)
        fleet = await world.fleet()
        with pytest.raises((TimeoutError, FleetError)):
            await world.claim(fleet, "r3", within=0.5, queue=f"{TEAM}/default")
    await world.claim(fleet, "r4", queue=f"{TEAM}/default")
    assert most_counted(world.cluster) == {f"{TEAM}/default": 1}


async def test_an_object_with_a_pool_waits_in_its_queue_as_a_claim(world):
    await world.add(pool_object(), queue_object(quota={"sandboxes": 1}))
    await world.fleet()
    for name in ("one", "two"):
        await world.add(sandbox_object(name))
    bound = lambda name: (world.cluster.objects[ref(name)].get("status") or {}).get("binding")  # noqa: E731 - a look
    await world.until(lambda: bound("one"))
    await quiet(world)
    assert not bound("two")
    await world.kube.delete(ref("one"))
    await world.until(lambda: bound("two"))


async def test_a_suspended_object_gives_its_quota_back_and_waits_again_when_resumed(world):
    await world.add(queue_object(quota={"sandboxes": 1}))
    await world.fleet()
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    await suspend(world, "one")
    await come(world, "Admitted", "two")
    assert said(world, "one")["reason"] == "Suspended"
    await resume(world, "one")
    await world.until(lambda: said(world, "one")["reason"] == "QuotaReached")
    await world.kube.delete(ref("two"))
    await come(world, "Admitted", "one")
    assert most_counted(world.cluster) == {f"{TEAM}/default": 1}


async def test_an_object_that_runs_again_before_its_quota_is_given_back_keeps_it(world):
    await world.add(queue_object(quota={"sandboxes": 1}))
    await world.fleet()
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    await world.kube.merge(ref("one"), {"spec": {"operatingMode": "Suspended"}})
    # The operator has said Suspended of an earlier time only.
    await says(world, "one", conditions=[{**a_condition(world, "one", "Suspended"), "observedGeneration": 1}])
    await quiet(world)
    await resume(world, "one")
    await quiet(world)
    assert states(world, "one", "two") == ["Admitted", "Pending"]


async def test_what_has_expired_counts_until_its_pod_is_gone(world):
    await world.add(queue_object(quota={"sandboxes": 1}))
    await world.fleet()
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    await says(world, "one", conditions=[a_condition(world, "one", "Expired")], podUID="u")
    await quiet(world)
    assert state(world, "two") == "Pending"
    await says(world, "one", podUID=None)
    await come(world, "Admitted", "two")


async def test_the_next_leader_counts_what_was_admitted_before_it_admits(world):
    await world.add(queue_object())
    first = await world.fleet()
    await ask(world, "one", "two", "three", "four")
    await come(world, "Admitted", "one", "two")
    await world.kill(first)
    await world.fleet()
    await quiet(world)
    assert states(world, "three", "four") == ["Pending", "Pending"]
    await world.kube.delete(ref("two"))
    # The one that came first: its place is its age.
    await come(world, "Admitted", "one", "three")
    assert state(world, "four") == "Pending"
    assert most_counted(world.cluster) == {f"{TEAM}/default": 2}


async def test_the_control_finds_a_leader_that_does_not_count(world, monkeypatch):
    await world.add(queue_object())
    first = await world.fleet()
    await ask(world, "one", "two", "three")
    await come(world, "Admitted", "one", "two")
    await world.kill(first)
    begin = Grants.begin

    def at_once(self):
        self._held = False
        begin(self)

    monkeypatch.setattr(Grants, "begin", at_once)

    async def backwards(self):
        for one in reversed(world.objects()):
            self.saw_sandbox(one)

    monkeypatch.setattr(Queues, "take_over", backwards)
    await world.fleet()
    await world.until(lambda: most_counted(world.cluster) == {f"{TEAM}/default": 3})


class Faulty(MemoryKube):
    """What happens at the write with this number of those to an admission."""

    def __init__(self, cluster, happens: Before | After, at: int) -> None:
        super().__init__(cluster)
        self.count = 0

        def fault(write):
            if write.subresource != "status" or write.ref.kind != CODE_SANDBOX:
                return None
            self.count += 1
            return happens if self.count == at else None

        self.fault = fault


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("happens", [Before(asyncio.CancelledError()), After(asyncio.CancelledError()), After()], ids=["before", "after", "lost"])  # fmt: skip
async def test_a_crash_at_any_write_admits_no_object_too_many_and_forgets_none(world, happens, at):
    await world.add(queue_object())
    first = await world.fleet(Faulty(world.cluster, happens, at))
    await ask(world, "one", "two", "three")
    with suppress(TimeoutError):
        await world.until(lambda: "" not in states(world, "one", "two", "three"), within=0.5)
    await world.kill(first)
    await world.fleet()
    await world.until(lambda: sorted(states(world, "one", "two", "three")) == ["Admitted", "Admitted", "Pending"])
    assert most_counted(world.cluster) == {f"{TEAM}/default": 2}
    (waits,) = (name for name in ("one", "two", "three") if state(world, name) == "Pending")
    await world.kube.delete(ref(next(name for name in ("one", "two") if name != waits)))
    await come(world, "Admitted", waits)


async def test_a_late_admission_of_a_deposed_leader_is_taken_back(world):
    await world.add(queue_object(quota={"sandboxes": 1}))
    await world.fleet(number=7)
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    await come(world, "Pending", "two")
    late = {"queue": "default", "state": "Admitted", "time": time_text(world.clock()), "fencing": 6, "cpu": "1", "memory": "2Gi"}  # fmt: skip
    await says(world, "two", admission=late)
    await come(world, "Ending", "two")
    await world.kube.delete(ref("one"))
    await quiet(world)
    # It counts until the operator has obeyed, and has its place again then.
    assert state(world, "two") == "Ending"
    await obeys(world, "two")
    await come(world, "Admitted", "two")


async def test_a_quota_that_is_lowered_ends_nothing_and_one_that_is_raised_lets_more_in(world):
    await world.add(queue_object())
    await world.fleet()
    await ask(world, "one", "two", "three")
    await come(world, "Admitted", "one", "two")
    queue = Ref(SANDBOX_QUEUE, TEAM, "default")
    await world.kube.merge(queue, {"spec": {"nominalQuota": {"sandboxes": 1}}})
    await world.until(lambda: world.cluster.objects[queue].get("status", {}).get("used") == "200%")
    await world.kube.delete(ref("one"))
    await quiet(world)
    assert states(world, "two", "three") == ["Admitted", "Pending"]
    await world.kube.merge(queue, {"spec": {"nominalQuota": {"sandboxes": 2}}})
    await come(world, "Admitted", "three")


async def test_quota_that_is_borrowed_stays_when_the_cohort_goes(world):
    await world.add(queue_object("a", {"sandboxes": 1}, cohort="c"), queue_object("b", {"sandboxes": 1}, cohort="c"))
    await world.fleet()
    await ask(world, "one", "two", "three", queueRef={"name": "a"})
    await come(world, "Admitted", "one", "two")
    for name in ("a", "b"):
        await world.kube.merge(Ref(SANDBOX_QUEUE, TEAM, name), {"spec": {"cohort": None}})
    await ask(world, "four", queueRef={"name": "b"})
    await come(world, "Admitted", "one", "two", "four")
    await world.kube.delete(ref("one"))
    await quiet(world)
    assert states(world, "two", "three") == ["Admitted", "Pending"]


async def test_what_waits_in_a_deleted_queue_waits_for_the_next_of_that_name(world):
    await world.add(queue_object("team", {"sandboxes": 1}))
    await world.fleet()
    await ask(world, "one", "two", queueRef={"name": "team"})
    await come(world, "Admitted", "one")
    await world.kube.delete(Ref(SANDBOX_QUEUE, TEAM, "team"))
    await world.until(lambda: said(world, "two").get("reason") == "QueueNotFound")
    assert state(world, "one") == "Admitted"
    await world.add(queue_object("team", {"sandboxes": 1}))
    await quiet(world)
    assert state(world, "two") == "Pending"
    await world.kube.delete(ref("one"))
    await come(world, "Admitted", "two")


async def test_a_queue_that_cannot_be_read_admits_nothing_until_it_can(world):
    queue = Ref(SANDBOX_QUEUE, TEAM, "default")
    await world.add(queue_object())
    await world.fleet()
    await ask(world, "one")
    await come(world, "Admitted", "one")
    world.cluster.edit(queue, lambda obj: obj["spec"].update(stopPolicy="Later"))
    await world.until(lambda: active(world, queue)["reason"] == "Unreadable")
    assert "'Later' is none of None, Hold, HoldAndDrain" in active(world, queue)["message"]
    await ask(world, "two")
    await come(world, "Pending", "two")
    assert (state(world, "one"), said(world, "two")["reason"]) == ("Admitted", "QueueHeld")
    world.cluster.edit(queue, lambda obj: obj["spec"].update(stopPolicy="None"))
    await come(world, "Admitted", "two")


def active(world: World, queue: Ref) -> Json:
    conditions = (world.cluster.objects[queue].get("status") or {}).get("conditions") or [{"reason": ""}]
    return next(one for one in conditions)


async def test_a_new_queue_counts_the_sandboxes_that_run_there(world):
    await world.fleet()
    await ask(world, "old", "idle")
    await says(world, "old", podName="old", podUID="u")
    await world.add(queue_object(quota={"sandboxes": 1}))
    await come(world, "Admitted", "old")
    await come(world, "Pending", "idle")


async def running_behind_idle(world: World, monkeypatch) -> None:
    """Eight objects that wait, behind them four that run, and looks at one object in a turn."""
    monkeypatch.setattr(reflector, "TURN", 1)
    await ask(world, *(f"idle-{number}" for number in range(8)))
    await ask(world, *RUNNING)
    for name in RUNNING:
        await says(world, name, podName=name, podUID=f"u-{name}")


RUNNING = [f"old-{number}" for number in range(4)]


async def test_a_new_queue_admits_nothing_before_all_that_runs_is_counted(world, monkeypatch):
    await world.fleet()
    await running_behind_idle(world, monkeypatch)
    await world.add(queue_object(quota={"sandboxes": 4}))
    await come(world, "Admitted", *RUNNING)
    await quiet(world)
    assert most_counted(world.cluster) == {f"{TEAM}/default": 4}


async def test_the_control_finds_a_new_queue_that_admits_at_once(world, monkeypatch):
    await world.fleet()
    monkeypatch.setattr(grants.Grants, "_put", lambda self, obj: (self._counting.clear(), put(self, obj)))
    await running_behind_idle(world, monkeypatch)
    await world.add(queue_object(quota={"sandboxes": 4}))
    await world.until(lambda: most_counted(world.cluster).get(f"{TEAM}/default", 0) > 4)


put = grants.Grants._put


async def test_a_queue_that_is_made_anew_while_it_is_counted_is_counted_again(world, monkeypatch):
    await world.fleet()
    await running_behind_idle(world, monkeypatch)
    queue = Ref(SANDBOX_QUEUE, TEAM, "default")
    for _ in range(3):
        await world.add(queue_object(quota={"sandboxes": 4}))
        await asyncio.sleep(0)
        await world.kube.delete(queue)
    await world.add(queue_object(quota={"sandboxes": 4}))
    await come(world, "Admitted", *RUNNING)
    await quiet(world)
    assert most_counted(world.cluster) == {f"{TEAM}/default": 4}


async def test_a_drained_queue_ends_its_objects_and_admits_them_again_later(world):
    queue = Ref(SANDBOX_QUEUE, TEAM, "default")
    await world.add(queue_object())
    await world.fleet()
    await ask(world, "one")
    await come(world, "Admitted", "one")
    await says(world, "one", podName="one", podUID="u")
    await world.kube.merge(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await come(world, "Ending", "one")
    assert said(world, "one")["reason"] == "QueueDrained"
    await obeys(world, "one")
    await come(world, "Pending", "one")
    await world.until(lambda: active(world, queue)["reason"] == "Draining")
    await world.kube.merge(queue, {"spec": {"stopPolicy": "None"}})
    await come(world, "Admitted", "one")


async def test_a_template_that_grows_after_the_admission_needs_another_one(world):
    await world.add(queue_object(quota={"cpu": "1"}))
    await world.fleet()
    await ask(world, "one")
    await come(world, "Admitted", "one")
    large = {"resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}}
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": large})
    await come(world, "Ending", "one")
    await obeys(world, "one")
    await world.until(lambda: said(world, "one").get("reason") == "QuotaTooSmall")
    assert state(world, "one") == "Pending"


async def test_a_pod_keeps_the_admission_through_an_edit_of_its_template(world):
    await world.add(queue_object(quota={"cpu": "1"}))
    await world.fleet()
    await ask(world, "one")
    await come(world, "Admitted", "one")
    await says(world, "one", podName="one", podUID="u", templateRevision="r")
    large = {"resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}}
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": large})
    await quiet(world)
    assert state(world, "one") == "Admitted"


async def test_an_object_made_anew_under_its_old_name_waits_as_any_other(world):
    await world.add(queue_object(quota={"sandboxes": 1}))
    await world.fleet()
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    await come(world, "Pending", "two")
    await world.kube.delete(ref("one"))
    await ask(world, "one")
    await come(world, "Admitted", "two")
    await come(world, "Pending", "one")


async def test_annotations_of_a_claim_give_no_quota_back(world):
    """Their owner can write them where the admission policy is off."""
    await world.add(queue_object(quota={"sandboxes": 1}))
    await world.fleet()
    await ask(world, "one", "two")
    await come(world, "Admitted", "one")
    forged = {
        "sandfleet.io/bound-pod": "none/u",
        "sandfleet.io/claim": '{"object": "one", "request": "r", "holder": "h"}',
    }
    await world.kube.merge(ref("one"), {"metadata": {"annotations": forged}})
    await quiet(world)
    assert state(world, "two") == "Pending"


async def test_the_status_of_a_queue_says_how_full_it_is(world):
    await world.add(queue_object(cohort="c"))
    await world.fleet()
    await ask(world, "one", "two", "three")
    queue = Ref(SANDBOX_QUEUE, TEAM, "default")
    await world.until(lambda: (world.cluster.objects[queue].get("status") or {}).get("pending") == 1)
    await world.until(lambda: active(world, queue)["reason"] == "CohortExhausted")
    status = world.cluster.objects[queue]["status"]
    since = f"{said(world, 'three')['time'][:19]}Z"
    assert {name: status[name] for name in ("admitted", "borrowed", "used", "share", "oldestPendingTime")} == {
        "admitted": 2, "borrowed": 0, "used": "100%", "share": "0%", "oldestPendingTime": since,
    }  # fmt: skip
    assert status["usage"] == {"sandboxes": 2, "cpu": "500m", "memory": "1Gi"}
    assert active(world, queue)["status"] == "True"


async def test_the_statuses_are_written_only_when_they_change(world):
    await world.add(queue_object())
    await world.fleet()
    await ask(world, "one")
    await come(world, "Admitted", "one")
    await asyncio.sleep(2.5)
    version = world.cluster.version
    await asyncio.sleep(2.5)
    assert world.cluster.version == version
