"""Changes by the owner or the template while a sandbox exists: egress, operatingMode, new refusals."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.networkpolicy import own_egress
from sandfleet_operator.plan.sandbox.actions import AdoptPod, CreatePod, DeletePod, RemovePolicy
from support.operator.builders import SETTINGS, a_template, opens
from transition.builders import (
    SUSPENDED,
    TEMPLATE,
    WARM,
    WARM_CLAIM,
    actions,
    condition,
    new_pod,
    observed,
    on_record,
    only,
    planned,
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


# Own egress.

NARROW = opens(("203.0.113.0/25", 443))


def test_the_sandboxs_own_egress_policy_exists_before_its_pod():
    made = planned(with_spec(without_pod(), egress=NARROW))
    assert actions(made) == [OWN, "CreatePod"]
    assert only(made, CreatePod).manifest["metadata"]["labels"][names.EGRESS_OWN] == "demo"


def test_changed_egress_takes_effect_while_the_sandbox_runs():
    seen = with_spec(observed(), egress=NARROW)
    assert actions(planned(seen)) == [OWN, "AdoptPod"]
    assert only(planned(seen), AdoptPod).labels == {names.EGRESS_CLASS: None, names.EGRESS_OWN: "demo"}


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
def test_the_own_egress_policy_is_removed_when_the_sandbox_needs_none(seen):
    made = planned(replace(seen, policies={**policies(), **own_policy(NARROW)}))
    assert only(made, RemovePolicy).name == names.own_policy("demo")


# Refusals while the sandbox runs.


def test_a_running_sandbox_continues_without_its_template_and_reports_it():
    made = planned(observed(template=None))
    assert (ready(made), actions(made)) == ("Ready", [])
    assert condition(made, ConditionType.DEGRADED).reason == "TemplateNotFound"
    assert "Isolated" in true(made)


def test_an_unready_sandbox_is_not_greeted_while_its_spec_is_refused():
    made = planned(replace(new_pod(), template=None))
    assert (ready(made), actions(made)) == ("TemplateNotFound", [])


def test_an_image_that_is_no_longer_allowed_starts_no_pod():
    other = replace(TEMPLATE, spec=a_template(image="registry.example/other:1"))
    assert (ready(planned(without_pod(template=other))), planned(without_pod(template=other)).actions) == (
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
        # A pod of another sandbox: it is not deleted.
        (without_pod(pod=pod(uid="uid-9", owner="other")), "Suspended", [], True),
        # No pod is created for the suspended sandbox.
        (without_pod(volume=None, policies={}, keys=False), "Suspended", [], True),
    ],
)
def test_a_suspended_sandbox_has_no_pod_and_keeps_its_workspace(seen, why, done, holds):
    made = planned(suspended(seen))
    assert (ready(made), actions(made)) == (why, done)
    assert ("Suspended" in true(made)) == holds
    assert made.status.workspace_claim == seen.sandbox.status.workspace_claim


def test_a_resumed_sandbox_starts_on_its_workspace_without_earlier_crashes():
    seen = with_status(observed(pod=None, node=None, pod_gone=True), crashes=9)
    asleep = on_record(suspended(seen))
    assert (asleep.status.pod_uid, asleep.status.crashes) == ("", 0)
    awake = with_spec(replace(seen, sandbox=asleep), operating_mode=sandbox().spec.operating_mode)
    made = planned(awake)
    assert actions(made) == ["CreatePod"]
    assert made.status.restarts == 0


def test_a_suspended_claimed_sandbox_keeps_the_warm_pods_workspace():
    seen = observed(sandbox=sandbox(bound=WARM, pool="warm"), pod=warm_pod(), volume=volume(name=WARM_CLAIM))
    made = planned(suspended(seen))
    assert only(made, DeletePod).uid == WARM[1]
    assert made.status.workspace_claim == WARM_CLAIM


def test_an_executor_that_ends_for_a_suspension_does_not_count_as_closed():
    ended = observed(pod=pod(deleting=True, ended=None), contact=None)
    made = planned(suspended(ended))
    assert "Expired" not in true(made)
    assert made.status.restarts == 0


def test_proved_isolation_holds_until_the_pod_is_gone():
    assert "Isolated" in true(planned(observed(pod=pod(deleting=True), contact=None)))
