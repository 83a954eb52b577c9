"""Ends of a sandbox's pod: what was observed → what the end counts for, and when the next pod starts."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.sandbox import SandboxSpec, SandboxStatus
from sandfleet_operator.plan.sandbox.actions import CreatePod, DeletePod
from support.operator.builders import SETTINGS, a_template
from transition.builders import (
    AGE,
    CLAIM,
    META,
    NOW,
    WARM,
    WARM_CLAIM,
    actions,
    booked,
    condition,
    exited,
    failed,
    node,
    observed,
    on_record,
    planned,
    pod,
    ready,
    record,
    sandbox,
    true,
    volume,
    warm_pod,
    warm_volume,
    with_spec,
    with_status,
    without_pod,
)

COUNTED, FINAL = "counted", "final"


def gone(**changes):
    """The sandbox was Ready, and the API server says that the pod is gone."""
    return observed(**{"pod": None, "node": None, "pod_gone": True, "contact": None, **changes})


def was(reason: str, **changes):
    """The pod is gone; the last status gave this reason."""
    before = {
        "PodDeleted": observed(pod=pod(deleting=True)),
        "Evicted": observed(pod=pod(deleting=True, disruption="EvictionByEvictionAPI")),
        "NodeLost": observed(pod=pod(deleting=True, disruption="DeletionByTaintManager"), node=None),
        "NodeNotResponding": observed(pod=pod(deleting=True), node=node(ready=False)),
    }[reason]
    return gone(sandbox=on_record(before, at=NOW - 10), **changes)


# Observation → the reason, and whether the end counts as a crash or expires the sandbox.
ENDS = {
    "its executor crashed": (observed(pod=exited(1)), "ExecutorCrashed", 1),
    "it was killed": (observed(pod=exited(137)), "ExecutorCrashed", 1),
    "it was stuck": (observed(pod=exited(45)), "ExecutorCrashed", 1),
    "it never ran": (observed(pod=exited(None, "", "no such runtime")), "ExecutorCrashed", 1),
    "it used all of its memory": (observed(pod=exited(128, "OOMKilled")), "OutOfMemory", 1),
    "its node put it out": (observed(pod=exited(None, "Evicted", disruption="Evicted")), "Evicted", 1),
    "its node drained": (observed(pod=exited(0, disruption="TerminationByKubelet")), "Evicted", 1),
    "it was told to end by a deletion": (observed(pod=exited(0, deleting=True)), "PodDeleted", 0),
    "its node went with it": (observed(pod=exited(None, "NodeLost", disruption="NodeLost")), "NodeLost", 0),
    "it is gone without a reason": (gone(), "PodDeleted", 0),
    "it was deleted": (was("PodDeleted"), "PodDeleted", 0),
    "it was evicted": (was("Evicted"), "Evicted", 1),
    "its node was lost": (was("NodeLost"), "NodeLost", 0),
    "its node did not answer": (was("NodeNotResponding"), "NodeLost", 0),
    "another pod has its name": (observed(pod=pod(uid="uid-2")), "PodDeleted", 0),
    "another process answers at its address": (
        observed(contact=failed(Reason.EXECUTOR_IDENTITY_INVALID)),
        "ExecutorIdentityInvalid",
        1,
    ),
    "the warm pod crashed before it was completed": (
        observed(sandbox=sandbox(bound=WARM, pool="warm"), pod=replace(warm_pod(), ended=exited(1).ended)),
        "ExecutorCrashed",
        1,
    ),
    "people's warm pod was gone before it was recorded": (
        gone(sandbox=sandbox(bound=WARM, claim=record(META.uid), settled=True, pool="warm"), volume=warm_volume()),
        "PodDeleted",
        0,
    ),
    "people's warm pod is being deleted before it was recorded": (
        observed(
            sandbox=sandbox(bound=WARM, claim=record(META.uid)), pod=warm_pod(ended=exited(0).ended, deleting=True)
        ),
        "PodDeleted",
        0,
    ),
    "the warm pod of a claim was gone before it was recorded": (
        gone(sandbox=sandbox(bound=WARM, settled=True), volume=volume(name=WARM_CLAIM)),
        "PodDeleted",
        0,
    ),
    "the warm pod of a claim crashed before it was recorded": (
        observed(sandbox=sandbox(bound=WARM, claim=record(), pool="warm"), pod=warm_pod(ended=exited(1).ended)),
        "ExecutorCrashed",
        1,
    ),
    "the warm pod of a claim was put out before it was recorded": (
        observed(
            sandbox=sandbox(bound=WARM, claim=record(), pool="warm"),
            pod=warm_pod(ended=exited(0).ended, disruption="Evicted", deleting=True),
        ),
        "Evicted",
        1,
    ),
    "the warm pod of a claim is gone after it was recorded": (
        gone(sandbox=sandbox(SandboxStatus(pod_uid=WARM[1]), bound=WARM, settled=True), volume=warm_volume()),
        "PodDeleted",
        0,
    ),
}


@pytest.mark.parametrize("when", ENDS)
def test_an_end_is_recorded_with_its_reason_before_the_pod_is_deleted(when):
    seen, why, crashes = ENDS[when]
    made = planned(seen)
    assert made.status_first
    assert ready(made) == why
    assert not {"Ready", "Isolated", "Expired", "Degraded"} & true(made)
    status = made.status
    assert (status.restarts, status.crashes, status.pod_uid) == (1, crashes, "")
    assert [one.reason for one in status.restart_history] == [why]


@pytest.mark.parametrize("when", ENDS)
def test_an_end_is_counted_exactly_once(when):
    seen = ENDS[when][0]
    for _ in range(3):
        seen = replace(seen, sandbox=on_record(seen))
        assert seen.sandbox.status.restarts == 1
        made = planned(seen)
        assert not made.status_first
        if any(isinstance(one, DeletePod) for one in made.actions):
            # The deletion is done before the status is written.
            seen = replace(seen, pod=replace(seen.pod, deleting=True))


@pytest.mark.parametrize("when", ENDS)
def test_the_old_pod_is_deleted_before_the_next_one_is_created(when):
    seen = ENDS[when][0]
    after = planned(replace(seen, sandbox=on_record(seen)), NOW + 1)
    if seen.pod is None:
        assert "CreatePod" in actions(after)
    elif seen.pod.uid == "uid-2":
        # The owner reference makes it the sandbox's: its operator ended before it could write the status.
        assert actions(after) == ["Greet"]
    else:
        assert "CreatePod" not in actions(after)
        deletes = [one.uid for one in after.actions if isinstance(one, DeletePod)]
        assert deletes == ([] if seen.pod.deleting else [seen.pod.uid])


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (observed(pod=exited(0)), "Closed"),
        (observed(pod=exited(41)), "IdleTimeoutOver"),
        (with_spec(observed(pod=exited(40)), lifetime=5000.0), "LifetimeOver"),
        (observed(pod=exited(40)), "LeaseOver"),
        (with_spec(observed(), lifetime=AGE), "LifetimeOver"),
        (with_spec(without_pod(), lifetime=AGE - 1), "LifetimeOver"),
        (
            observed(sandbox=sandbox(bound=WARM, pool="warm"), pod=replace(warm_pod(), ended=exited(0).ended)),
            "Closed",
        ),
        # An object that was written late, for a claim that is over.
        (gone(sandbox=sandbox(bound=WARM, claim=record(), pool="warm"), volume=warm_volume()), "ClaimOver"),
        (gone(sandbox=sandbox(bound=WARM, claim=record()), volume=None), "ClaimOver"),
        (
            observed(sandbox=sandbox(bound=WARM, claim=record()), pod=warm_pod(ended=exited(0).ended, deleting=True)),
            "ClaimOver",
        ),
    ],
)
def test_an_expired_sandbox_stays_expired(seen, why):
    made = planned(seen)
    assert made.status_first
    assert ready(made) == why
    assert condition(made, ConditionType.EXPIRED).reason == why
    assert made.status.restarts == 0
    then = replace(seen, sandbox=on_record(seen))
    assert planned(then).status == then.sandbox.status
    # Whatever is seen later.
    for later in (then, replace(then, pod=None, pod_gone=True), with_spec(then, lifetime=9e9)):
        assert "CreatePod" not in actions(planned(later))
        assert {"Expired"} == true(planned(later))


def test_an_expired_sandboxs_pod_is_deleted_once_the_status_says_so():
    seen = observed(pod=exited(41))
    assert actions(planned(replace(seen, sandbox=on_record(seen)))) == ["DeletePod"]


@pytest.mark.parametrize(
    ("spec", "template", "ceiling", "left"),
    [
        ({"lifetime": 1500.0}, {}, {}, 500.0),
        ({"lifetime": 1500.0}, {"max_lifetime": 9000.0}, {}, 500.0),
        ({}, {"max_lifetime": 1200.0}, {}, 200.0),
        ({"inline": {"max_lifetime": 1300.0}}, {}, {"max_lifetime": 9000.0}, 300.0),
        ({"inline": {}}, {}, {"max_lifetime": 1400.0}, 400.0),
        ({"inline": {}}, {}, {}, None),
    ],
)
def test_the_lifetime_comes_from_the_spec_the_template_or_the_installation(spec, template, ceiling, left):
    own = spec.pop("inline", None)
    given = SandboxSpec(
        template="" if own is not None else "python", inline=a_template(**own) if own is not None else None
    )
    seen = without_pod(sandbox=replace(sandbox(), spec=replace(given, **spec)))
    named = replace(seen.template, spec=replace(seen.template.spec, **template))
    settings = replace(SETTINGS, inline=a_template(**ceiling))
    made = planned(replace(seen, template=None if own is not None else named), settings=settings)
    assert made.requeue_after == left
    assert f'"lease": {left}' in str(made.actions).replace("None", "null") or left is None


# Pauses and the limit.


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        (booked("ExecutorCrashed"), 1.0),
        (booked("ExecutorCrashed", "ExecutorCrashed"), 2.0),
        (booked(*["OutOfMemory"] * 4), 8.0),
        (booked(*["OutOfMemory"] * 4, ago=7.0), 1.0),
        (booked(*["OutOfMemory"] * 4, ago=8.0), 0.0),
        (booked("PodDeleted", crashes=0), 0.0),
        (booked("ExecutorCrashed", ago=1.0), 0.0),
    ],
)
def test_the_pause_doubles_from_crash_to_crash(status, wait):
    made = planned(without_pod(sandbox=sandbox(status)))
    assert ready(made) == ("BackOff" if wait else "PodStarting")
    assert actions(made) == ([] if wait else ["CreatePod"])
    assert made.requeue_after == (wait or None)


def test_the_pause_is_bounded():
    settings = replace(SETTINGS, recovery=replace(SETTINGS.recovery, backoff_max=3.0))
    assert planned(without_pod(sandbox=sandbox(booked(*["OutOfMemory"] * 8))), settings=settings).requeue_after == 3.0


@pytest.mark.parametrize(("crashes", "runs"), [(8, True), (9, False)])
def test_a_sandbox_that_crashes_too_often_stays_down_and_reports_it(crashes, runs):
    status = booked(*["ExecutorCrashed"] * crashes, ago=9999.0)
    made = planned(without_pod(sandbox=sandbox(status)))
    assert ("CreatePod" in actions(made)) == runs
    assert ("Degraded" in true(made)) != runs
    if not runs:
        assert ready(made) == "TooManyRestarts"
        assert "9 times" in condition(made, ConditionType.READY).message
        assert "ExecutorCrashed, why" in condition(made, ConditionType.DEGRADED).message


def test_the_pod_of_a_sandbox_that_stays_down_is_deleted():
    seen = observed(pod=exited(1), sandbox=sandbox(booked(*["ExecutorCrashed"] * 9, ago=9.0)))
    assert actions(planned(seen)) == ["DeletePod"]


@pytest.mark.parametrize(
    ("seen", "since", "crashes"),
    [
        (observed(pod=exited(1)), 599, 4),
        (observed(pod=exited(1)), 600, 1),
        # A pod that is deleted with notice is not Ready at its end, although it was Ready for long.
        (was("Evicted"), 599, 4),
        (was("Evicted"), 700, 1),
        # Not a crash: the count neither grows nor is reset.
        (was("PodDeleted"), 700, 3),
    ],
)
def test_a_stable_stretch_resets_the_count_of_crashes(seen, since, crashes):
    conditions = tuple(
        replace(one, changed=NOW - since) if one.type == "Isolated" else one for one in seen.sandbox.status.conditions
    )
    assert planned(with_status(seen, conditions=conditions, crashes=3)).status.crashes == crashes


def test_the_history_is_bounded_and_keeps_the_last():
    status = planned(
        with_status(observed(pod=exited(1)), restart_history=booked(*["PodDeleted"] * 10).restart_history)
    ).status
    assert len(status.restart_history) == 10
    assert status.restart_history[-1].reason == "ExecutorCrashed"


def test_a_message_names_the_exit_code():
    made = planned(observed(pod=exited(7, "Error", "cannot read the configuration")))
    assert condition(made, ConditionType.READY).message == "exit code 7: cannot read the configuration"


def test_the_next_pod_of_a_claimed_sandbox_has_its_own_name_and_the_warm_pods_workspace():
    status = SandboxStatus(restarts=1, workspace_claim=WARM_CLAIM)
    seen = without_pod(sandbox=sandbox(status, bound=WARM, pool="warm"), volume=volume(name=WARM_CLAIM), pod_gone=True)
    (create,) = (one for one in planned(seen).actions if isinstance(one, CreatePod))
    assert create.manifest["metadata"]["name"] == META.name
    assert f"'claimName': '{WARM_CLAIM}'" in str(create.manifest)


def test_a_claimed_sandbox_never_gets_another_workspace():
    people = sandbox(SandboxStatus(restarts=1), bound=WARM, settled=True, pool="warm")
    seen = without_pod(sandbox=people, volume=None, pod_gone=True)
    made = planned(seen)
    assert (ready(made), actions(made)) == ("WorkspaceLost", [])
    assert CLAIM not in str(made)
