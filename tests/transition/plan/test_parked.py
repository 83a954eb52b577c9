"""A suspended sandbox whose session is in a snapshot: the volume goes only once that is certain."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.api.kinds.sandbox import OperatingMode, SnapshotStatus, SuspendTo
from sandfleet_operator.api.kinds.template import Retention, Workspace
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox import parked
from sandfleet_operator.plan.sandbox.actions import AdjustVolume, DeletePod, DeleteVolume, Greet
from transition.builders import (
    META,
    NOW,
    SUSPENDED,
    WARM,
    WARM_CLAIM,
    actions,
    condition,
    labels_of,
    observed,
    only,
    planned,
    pod,
    ready,
    sandbox,
    true,
    volume,
    warm_pod,
    warm_volume,
    with_spec,
    with_status,
)

TAKEN = SnapshotStatus(id="s-1", pod_uid=WARM[1], time=NOW - 5, held_until=NOW + 60)
NEXT_CLAIM = "workspace-demo"


def claimed(**changes):
    """A session of a claim, whose first look of the operator is over."""
    found = warm_pod(owner=META.uid)
    given = {"sandbox": sandbox(bound=WARM, settled=True, pool="warm"), "contact": None, "pod": found}
    seen = observed(**{**given, "volume": warm_volume(owner=META.uid, pod_owner=""), **changes})
    return with_status(seen, pod=WARM[0], pod_uid=WARM[1], workspace_claim=WARM_CLAIM)


def to_snapshot(seen):
    return with_spec(seen, operating_mode=SUSPENDED, suspend_to=SuspendTo.SNAPSHOT)


def saved(seen=None, **changes):
    return with_status(to_snapshot(seen or claimed()), snapshot=replace(TAKEN, **changes))


def gone(seen):
    return replace(seen, pod=None, pod_gone=True, node=None)


ASLEEP = with_status(gone(saved()), restores_from="s-1", pod="", pod_uid="", workspace_claim="")


def test_the_pod_stays_until_the_session_is_saved():
    made = planned(to_snapshot(claimed()))
    assert "DeletePod" not in actions(made)
    assert condition(made, ConditionType.SUSPENDED).reason == "SavingSnapshot"


@pytest.mark.parametrize(
    "seen",
    [
        # No fleet knows its session.
        with_spec(observed(), operating_mode=SUSPENDED, suspend_to=SuspendTo.SNAPSHOT),
        with_spec(to_snapshot(claimed()), workspace=Workspace(retention=Retention.RETAIN)),
        with_spec(claimed(), operating_mode=SUSPENDED),
        saved(),
    ],
    ids=["of no claim", "its volume is to be kept", "to its volume", "it is saved"],
)
def test_otherwise_it_ends_at_once(seen):
    assert "DeletePod" in actions(planned(seen))


@pytest.mark.parametrize(
    "seen",
    [saved(pod_uid="of-an-earlier-pod"), saved(filled="uid-2"), saved(held_until=NOW - 1)],
    ids=["of an earlier pod", "of an earlier sleep", "too old"],
)
def test_a_snapshot_that_may_lack_something_does_not_count(seen):
    assert "DeletePod" not in actions(planned(seen))
    asleep = planned(gone(seen))
    assert (asleep.status.restores_from, asleep.status.workspace_claim) == ("", WARM_CLAIM)
    assert "DeleteVolume" not in actions(asleep)


def test_that_the_session_is_in_the_snapshot_is_written_before_its_volume_goes():
    made = planned(gone(saved()))
    assert (made.status.restores_from, made.status_first) == ("s-1", True)
    assert only(made, DeleteVolume).name == WARM_CLAIM
    assert condition(made, ConditionType.SUSPENDED).message == "The pod is gone. The session is in snapshot s-1."
    # It stays on record until it is gone, also after the time in which it was certain.
    later = gone(saved())
    later = with_status(later, restores_from="s-1", pod_uid="", pod="")
    assert planned(later, NOW + 1000).status.workspace_claim == WARM_CLAIM
    assert actions(planned(later, NOW + 1000)) == ["DeleteVolume"]
    assert actions(planned(replace(later, volume=replace(later.volume, deleting=True)), NOW + 1000)) == []
    assert planned(replace(later, volume=None), NOW + 1000).status.workspace_claim == ""


def test_a_pod_that_still_ends_proves_nothing():
    ending = saved()
    made = planned(replace(ending, pod=replace(ending.pod, deleting=True)))
    assert (made.status.restores_from, actions(made)) == ("", [])


def test_a_directory_of_the_pod_is_gone_in_any_case():
    ephemeral = with_spec(saved(claimed(volume=None), held_until=NOW - 1), workspace=Workspace())
    template = replace(ephemeral.template, spec=replace(ephemeral.template.spec, workspace=Workspace(ephemeral=True)))
    seen = with_status(gone(replace(ephemeral, template=template)), workspace_claim="")
    assert planned(seen).status.restores_from == "s-1"


def test_another_ones_volume_of_the_same_name_stays():
    theirs = volume(name=NEXT_CLAIM, owner="other", pod_owner="")
    assert actions(planned(replace(ASLEEP, volume=theirs))) == []


def test_a_resumed_session_gets_a_new_volume_and_is_ready_when_it_is_filled():
    awake = with_spec(replace(ASLEEP, volume=None), operating_mode=OperatingMode.RUNNING)
    made = planned(awake)
    assert actions(made) == ["CreateVolume", "CreatePod"]
    assert made.status.restores_from == "s-1"
    early = planned(with_status(awake, workspace_claim=WARM_CLAIM))
    assert (actions(early), early.status.workspace_claim, early.status_first) == ([], "", True)
    there = replace(
        awake,
        volume=volume(name=NEXT_CLAIM, owner=META.uid),
        pod=pod(uid="uid-2", workspace_claim=NEXT_CLAIM, labels=labels_of(ASLEEP.sandbox)),
        pod_gone=False,
        contact=replace(observed().contact, pod_uid="uid-2"),
    )
    made = planned(there)
    assert (actions(made), made.status.workspace_claim, made.status.pod_uid) == ([], NEXT_CLAIM, "uid-2")
    assert ready(made) == "RestoringSnapshot"
    filled = planned(with_status(there, snapshot=replace(TAKEN, filled="uid-2")))
    assert (ready(filled), filled.status.restores_from) == ("Ready", "")
    assert "Isolated" in true(made)


def test_a_session_that_is_to_sleep_again_before_it_was_filled_stays_in_its_snapshot():
    filling = replace(
        to_snapshot(ASLEEP),
        volume=volume(name=NEXT_CLAIM, owner=META.uid),
        pod=pod(uid="uid-2", workspace_claim=NEXT_CLAIM, labels=labels_of(ASLEEP.sandbox)),
        pod_gone=False,
    )
    filling = with_status(filling, pod="demo", pod_uid="uid-2", workspace_claim=NEXT_CLAIM)
    assert actions(planned(filling)) == ["DeletePod"]
    again = planned(gone(filling))
    assert (again.status.restores_from, actions(again)) == ("s-1", ["DeleteVolume"])


GIVEN = ("fast-2", "uid-of-given", "workspace-fast-2")


def given(seen, at=NOW - 1, **changes):
    """The fleet has given a warm pod, with its volume, to the session."""
    name, uid, claim = GIVEN
    labels = labels_of(ASLEEP.sandbox)
    found = pod(name=name, uid=uid, workspace_claim=claim, labels=labels, annotations={names.GIVEN: str(int(at))})
    owners = ({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},)
    theirs = volume(name=claim, owner="", pod_owner=uid, owners=owners, labels={})
    return replace(seen, pod=replace(found, **changes), volume=theirs, pod_gone=False)


def test_a_pod_that_is_given_to_a_sleeping_session_waits_for_the_mode_and_no_longer():
    made = planned(given(ASLEEP))
    assert (actions(made), made.status.pod_uid, made.status.restores_from) == ([], "", "s-1")
    assert condition(made, ConditionType.SUSPENDED).status == "True"
    assert 0 < made.requeue_after <= parked.GIVING_SECONDS
    # A time that is to come is no longer one.
    assert planned(given(ASLEEP, NOW + 1000)).requeue_after == parked.GIVING_SECONDS
    late = planned(given(ASLEEP, NOW - parked.GIVING_SECONDS))
    assert actions(late) == ["DeletePod"]
    assert only(late, DeletePod).uid == GIVEN[1]


def in_no_snapshot():
    return with_spec(with_status(given(ASLEEP), restores_from="", snapshot=None), suspend_to=SuspendTo.VOLUME)


@pytest.mark.parametrize(
    "seen",
    [given(ASLEEP, annotations={names.GIVEN: "soon"}), in_no_snapshot()],
    ids=["it does not say when", "the session is in no snapshot"],
)
def test_no_other_pod_of_a_sleeping_session_stays(seen):
    assert "DeletePod" in actions(planned(seen))


def test_a_pod_of_another_one_is_left_alone():
    made = planned(given(ASLEEP, owner="other", labels={}))
    assert (actions(made), made.requeue_after) == ([], None)


def test_a_session_goes_on_in_the_pod_that_it_was_given_and_on_its_volume():
    awake = given(with_spec(ASLEEP, operating_mode=OperatingMode.RUNNING))
    first = planned(replace(awake, contact=None))
    assert (first.status.pod, first.status.pod_uid) == GIVEN[:2]
    assert first.status.workspace_claim == GIVEN[2]
    assert only(first, AdjustVolume).owners == (names.owned_by("CodeSandbox", META),)
    assert only(first, Greet).first
    assert not {"CreatePod", "CreateVolume", "DeletePod"} & set(actions(first))
    greeted = replace(
        with_status(awake, pod=GIVEN[0], pod_uid=GIVEN[1], workspace_claim=GIVEN[2]),
        volume=volume(name=GIVEN[2], owner=META.uid),
        contact=replace(observed().contact, pod_uid=GIVEN[1]),
    )
    made = planned(greeted)
    assert (actions(made), ready(made)) == ([], "RestoringSnapshot")
    filled = planned(with_status(greeted, snapshot=replace(TAKEN, filled=GIVEN[1])))
    assert (ready(filled), filled.status.restores_from, filled.status.workspace_claim) == ("Ready", "", GIVEN[2])


ASLEEP_AS_MADE = with_status(ASLEEP, template_revision="sandfleet-python-1")
FITS = {names.TEMPLATE_REVISION: "sandfleet-python-1"}


@pytest.mark.parametrize(
    ("seen", "changes", "may"),
    [
        (ASLEEP_AS_MADE, {}, True),
        (ASLEEP_AS_MADE, {"annotations": {names.TEMPLATE_REVISION: "sandfleet-python-2"}}, False),
        (ASLEEP_AS_MADE, {"annotations": {}}, False),
        (ASLEEP_AS_MADE, {"annotations": {**FITS, names.SNAPSHOT: "etl"}}, False),
        (ASLEEP_AS_MADE, {"annotations": {**FITS, names.IMAGE: "debian:12"}}, False),
        (with_spec(ASLEEP_AS_MADE, image="debian:12"), {}, False),
        (ASLEEP_AS_MADE, {"labels": {names.CONTRACT: "brokered"}}, False),
        (ASLEEP_AS_MADE, {"deleting": True}, False),
        (with_status(ASLEEP_AS_MADE, workspace_claim=WARM_CLAIM), {}, False),
        (with_status(ASLEEP_AS_MADE, pod_uid="uid-2"), {}, False),
        (with_status(ASLEEP_AS_MADE, restores_from=""), {}, False),
        (with_status(ASLEEP_AS_MADE, template_revision=""), {"annotations": {names.TEMPLATE_REVISION: ""}}, False),
    ],
    ids=[
        "as it was made",
        "of another revision",
        "of none",
        "of a pool that starts from a snapshot",
        "with the image of a claim",
        "it has an image of its own",
        "of another contract",
        "it ends",
        "its last volume is still there",
        "its last pod is on record",
        "in no snapshot",
        "no revision is known",
    ],
)
def test_a_warm_pod_fits_only_as_the_next_one_would(seen, changes, may):
    warm = pod(owner="", labels={}, annotations=FITS)
    assert parked.may_be_given(seen.sandbox, replace(warm, **changes), "autonomous") is may
