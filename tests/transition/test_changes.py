"""What an owner or a template changes while a sandbox is there: egress, operatingMode, what is refused from now on."""

from dataclasses import replace

import pytest
from builders import SETTINGS, a_template, opens
from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.plan import names
from sandfleet_operator.plan.networkpolicy import own_egress
from sandfleet_operator.plan.sandbox.actions import AdoptPod, CreatePod, DeletePod, RemovePolicy
from sandfleet_operator.plan.sandbox.plan import plan
from transition.builders import (
    NOW,
    SUSPENDED,
    TEMPLATE,
    WARM,
    WARM_CLAIM,
    actions,
    condition,
    new_pod,
    observed,
    on_record,
    pod,
    policies,
    ready,
    sandbox,
    true,
    volume,
    warm_pod,
    with_spec,
    with_status,
    without_pod,
)

OWN = "EnsurePolicy sandfleet-own-egress-demo"


def look(seen):
    return plan(seen, NOW, SETTINGS)


def only(made, kind):
    """The one action of this kind."""
    (found,) = [one for one in made.actions if isinstance(one, kind)]
    return found


# Egress of its own.

NARROW = opens(("203.0.113.0/25", 443))


def test_its_own_egress_is_there_before_the_pod():
    made = look(with_spec(without_pod(), egress=NARROW))
    assert actions(made) == [OWN, "CreatePod"]
    assert only(made, CreatePod).manifest["metadata"]["labels"][names.EGRESS_OWN] == "demo"


def test_egress_that_changes_is_changed_while_it_runs():
    seen = with_spec(observed(), egress=NARROW)
    assert actions(look(seen)) == [OWN, "AdoptPod"]
    assert only(look(seen), AdoptPod).labels == {names.EGRESS_CLASS: None, names.EGRESS_OWN: "demo"}


def own_policy(egress):
    made = own_egress(sandbox(), egress, SETTINGS)
    return {made["metadata"]["name"]: made["spec"]}


@pytest.mark.parametrize(
    "seen",
    [
        with_spec(observed(), egress=opens()),
        observed(),
        observed(template=None),
        with_spec(observed(), egress=opens("0.0.0.0/0")),
    ],
    ids=["nothing any more", "its template's again", "refused without a template", "refused for asking for too much"],
)
def test_its_own_egress_is_closed_when_it_has_none_any_more(seen):
    made = look(replace(seen, policies={**policies(), **own_policy(NARROW)}))
    assert only(made, RemovePolicy).name == names.own_policy("demo")


# Refusals of what runs already.


def test_one_that_runs_goes_on_when_its_template_is_gone_and_says_so():
    made = look(observed(template=None))
    assert (ready(made), actions(made)) == ("Ready", [])
    assert condition(made, ConditionType.DEGRADED).reason == "TemplateNotFound"
    assert "Isolated" in true(made)


def test_one_that_is_not_ready_is_not_greeted_while_it_is_refused():
    made = look(replace(new_pod(), template=None))
    assert (ready(made), actions(made)) == ("TemplateNotFound", [])


def test_an_image_that_is_not_allowed_any_more_starts_nothing():
    other = replace(TEMPLATE, spec=a_template(image="registry.example/other:1"))
    assert (ready(look(without_pod(template=other))), look(without_pod(template=other)).actions) == (
        "ImageNotAllowed",
        (),
    )


# Suspension.


def suspended(seen):
    return with_spec(seen, operating_mode=SUSPENDED)


@pytest.mark.parametrize(
    ("seen", "why", "done", "holds"),
    [
        (observed(), "Suspending", ["DeletePod"], False),
        (observed(pod=pod(deleting=True)), "Suspending", [], False),
        (observed(pod=None, node=None), "Suspended", [], True),
        # Of another: it is none of ours that goes.
        (without_pod(pod=pod(uid="uid-9", owner="other")), "Suspended", [], True),
        # Nothing is made for it meanwhile.
        (without_pod(volume=None, policies={}, keys=False), "Suspended", [], True),
    ],
)
def test_a_suspended_sandbox_has_no_pod_and_keeps_its_workspace(seen, why, done, holds):
    made = look(suspended(seen))
    assert (ready(made), actions(made)) == (why, done)
    assert ("Suspended" in true(made)) == holds
    assert made.status.workspace_claim == seen.sandbox.status.workspace_claim


def test_one_that_resumes_starts_on_its_workspace_with_a_clean_record():
    seen = with_status(observed(pod=None, node=None, pod_gone=True), crashes=9)
    asleep = on_record(suspended(seen))
    assert (asleep.status.pod_uid, asleep.status.crashes) == ("", 0)
    awake = with_spec(replace(seen, sandbox=asleep), operating_mode=sandbox().spec.operating_mode)
    made = look(awake)
    assert actions(made) == ["CreatePod"]
    assert made.status.restarts == 0


def test_a_claimed_sandbox_that_is_suspended_keeps_the_warm_pods_workspace():
    seen = observed(sandbox=sandbox(bound=WARM, pool="warm"), pod=warm_pod(), volume=volume(name=WARM_CLAIM))
    made = look(suspended(seen))
    assert only(made, DeletePod).uid == WARM[1]
    assert made.status.workspace_claim == WARM_CLAIM


def test_an_executor_that_is_told_to_end_for_a_suspension_has_not_closed():
    ended = observed(pod=pod(deleting=True, ended=None), contact=None)
    made = look(suspended(ended))
    assert "Expired" not in true(made)
    assert made.status.restarts == 0


def test_isolation_that_was_proved_holds_until_the_pod_is_gone():
    assert "Isolated" in true(look(observed(pod=pod(deleting=True), contact=None)))
