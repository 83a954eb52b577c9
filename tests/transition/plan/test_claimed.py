"""Pods that the fleet has claimed for a sandbox: adopted once, never taken from another, their session left open."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.kinds.sandbox import OperatingMode, SandboxStatus
from sandfleet_operator.api.kinds.template import Retention, Workspace
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import AdjustVolume, AdoptPod, Greet
from sandfleet_operator.plan.sandbox.observed import Ended
from sandfleet_operator.plan.sandbox.pod import FLEET_ADOPTION_SECONDS
from transition.builders import (
    META,
    NOW,
    WARM,
    WARM_CLAIM,
    actions,
    new_pod,
    observed,
    only,
    planned,
    pod,
    ready,
    sandbox,
    warm_pod,
    warm_volume,
    with_spec,
)


def bound_to(found, **changes):
    """An observation whose annotation binds this pod. The sandbox's owner could have written it."""
    given = {"sandbox": sandbox(bound=WARM, pool="warm"), "volume": warm_volume(), "contact": None}
    return observed(pod=found, **{**given, **changes})


BOUND = bound_to(warm_pod())
OTHERS = {
    "a warm pod that waits for a claim is named by an annotation": (
        bound_to(warm_pod(labels={**warm_pod().labels, names.STATE: "warm", names.SANDBOX: WARM[0]})),
        "Forbidden",
        [],
    ),
    "a warm pod that is being ended is named by an annotation": (
        bound_to(warm_pod(labels={**warm_pod().labels, names.STATE: "retiring", names.SANDBOX: WARM[0]})),
        "Forbidden",
        [],
    ),
    "the pod of another claim is named by an annotation": (
        bound_to(warm_pod(labels={**warm_pod().labels, names.SANDBOX: "other"})),
        "Forbidden",
        [],
    ),
    "the pod that was bound to it has another owner by now": (bound_to(warm_pod(owner="other")), "Forbidden", []),
    "the pod that was bound to it goes with its other owner": (
        bound_to(warm_pod(owner="other", deleting=True, ended=Ended(0, "Completed"))),
        "Forbidden",
        [],
    ),
}


def test_a_bound_pod_is_taken_over_with_its_workspace():
    assert (ready(planned(BOUND)), actions(planned(BOUND))) == ("PodStarting", ["AdjustVolume", "AdoptPod", "Greet"])


@pytest.mark.parametrize("when", OTHERS)
def test_a_pod_that_is_not_the_sandboxs_is_left_alone(when):
    seen, why, wanted = OTHERS[when]
    assert (ready(planned(seen)), actions(planned(seen))) == (why, wanted)
    assert planned(seen).status.pod_uid == planned(seen).status.workspace_claim == ""


def test_a_claimed_pod_gets_its_owner():
    adopt = only(planned(BOUND), AdoptPod)
    assert (adopt.name, adopt.uid, adopt.version) == (*WARM, "7")
    assert adopt.owner["uid"] == META.uid
    assert adopt.labels == {}
    assert only(planned(BOUND), AdjustVolume).name == WARM_CLAIM


@pytest.mark.parametrize(
    ("age", "wanted"),
    [(0.0, ["AdjustVolume", "Greet"]), (FLEET_ADOPTION_SECONDS, ["AdjustVolume", "AdoptPod", "Greet"])],
)
def test_the_fleet_has_its_time_from_when_the_object_was_written(age, wanted):
    """A claim that was young is older than that already."""
    written = replace(BOUND.sandbox, meta=replace(BOUND.sandbox.meta, created=NOW - age))
    assert actions(planned(replace(BOUND, sandbox=written))) == wanted


def test_a_claimed_pod_is_verified_and_neither_introduced_nor_opened_again():
    """The fleet has introduced the executor and opened its session, with a lease."""
    assert not only(planned(BOUND), Greet).first
    assert only(planned(new_pod()), Greet).first


def test_the_next_pod_of_a_claim_is_greeted_as_any_other():
    claimed = sandbox(SandboxStatus(restarts=1, workspace_claim=WARM_CLAIM), bound=WARM, pool="warm")
    assert only(planned(replace(new_pod(), sandbox=claimed, volume=warm_volume())), Greet).first


def test_a_pod_that_has_an_owner_keeps_it():
    """A user gave the recorded pod to another sandbox: its labels are restored, and it is not taken back."""
    labels = {**pod().labels, names.STATE: "warm"}
    adopt = only(planned(observed(pod=pod(owner="other", labels=labels))), AdoptPod)
    assert (adopt.owner, adopt.labels) == (None, {names.STATE: "claimed"})
    assert actions(planned(observed(pod=pod(owner="other")))) == []
    assert only(planned(observed(pod=pod(owner=""))), AdoptPod).owner["uid"] == META.uid


def test_the_workspace_of_an_earlier_session_comes_with_the_pod_that_has_it():
    seen = bound_to(warm_pod(workspace_claim="workspace-old"), volume=warm_volume(name="workspace-old", pod_owner=""))
    assert planned(seen).status.workspace_claim == "workspace-old"
    assert only(planned(seen), AdjustVolume).name == "workspace-old"


@pytest.mark.parametrize(
    ("pod_owner", "why", "wanted"),
    [(WARM[1], "PodStarting", ["AdjustVolume", "CreatePod"]), ("uid-of-another", "WorkspaceInUse", [])],
)
def test_the_workspace_of_a_gone_pod_stays_that_pods(pod_owner, why, wanted):
    people = sandbox(SandboxStatus(restarts=1), bound=WARM, settled=True, pool="warm")
    seen = bound_to(None, sandbox=people, pod_gone=True, node=None, volume=warm_volume(pod_owner=pod_owner))
    assert (ready(planned(seen)), actions(planned(seen))) == (why, wanted)


def test_a_suspended_sandbox_does_not_keep_the_workspace_of_a_pod_that_is_not_its_own():
    foreign = bound_to(warm_pod(owner="other"))
    suspended = planned(with_spec(foreign, operating_mode=OperatingMode.SUSPENDED))
    assert (suspended.status.workspace_claim, suspended.actions) == ("", ())


@pytest.mark.parametrize(("given", "owners"), [(None, 1), (Retention.DELETE, 1), (Retention.RETAIN, 0)])
def test_a_workspace_survives_the_warm_pod_of_a_sandbox_suspended_at_once(given, owners):
    seen = with_spec(BOUND, operating_mode=OperatingMode.SUSPENDED, workspace=Workspace(retention=given))
    assert actions(planned(seen)) == ["AdjustVolume", "DeletePod"]
    assert len(only(planned(seen), AdjustVolume).owners) == owners
