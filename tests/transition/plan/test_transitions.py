"""Rounds of one sandbox: what was observed → the actions and the status."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.template import Retention, Workspace
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import AdjustVolume, AdoptPod, CreatePod, Greet
from sandfleet_operator.plan.sandbox.observed import Trouble
from transition.builders import (
    CLAIM,
    META,
    NOW,
    WARM,
    WARM_CLAIM,
    actions,
    condition,
    failed,
    greeted,
    new_pod,
    node,
    observed,
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

DENY = f"EnsurePolicy {names.DEFAULT_DENY}"
CLASS = "EnsurePolicy sandfleet-egress-python"
SILENT = node(ready=False, silent_since=NOW - 41)
NAMED = Workspace(claim_name="workspace-left")
LEFT = volume(
    name="workspace-left", owner="", retention="Retain", labels=names.own_labels(**{names.SANDBOX: "earlier"})
)
QUOTA = Trouble(reason=Reason.QUOTA_EXCEEDED, message="cannot create pods/demo: exceeded quota", at=NOW)


# Observation → why the sandbox is not Ready, and the actions.
TABLE = {
    # A cold start, in its order.
    "nothing is there": (
        without_pod(volume=None, policies={}, keys=False),
        "PodStarting",
        [DENY, CLASS, "EnsureKeys", "CreateVolume", "CreatePod"],
    ),
    "the policies are there": (
        without_pod(volume=None, keys=False),
        "PodStarting",
        ["EnsureKeys", "CreateVolume", "CreatePod"],
    ),
    "the keys are there": (without_pod(volume=None), "PodStarting", ["CreateVolume", "CreatePod"]),
    "the volume is there": (without_pod(), "PodStarting", ["CreatePod"]),
    "the pod waits for a node": (new_pod(node="", address=""), "PodStarting", []),
    "no node fits": (new_pod(node="", address="", unschedulable="0/1 nodes: memory"), "Unschedulable", []),
    "the pod has a node": (new_pod(address=""), "PodStarting", []),
    "its container is made": (new_pod(address="", waiting="ContainerCreating"), "PodStarting", []),
    "its image is not there": (new_pod(address="", waiting="ImagePullBackOff"), "ImagePullFailed", []),
    "its image has no name": (new_pod(waiting="InvalidImageName"), "ImagePullFailed", []),
    "its container cannot be made": (new_pod(waiting="CreateContainerError"), "ContainerCreateFailed", []),
    "a secret is not there": (
        new_pod(waiting="CreateContainerConfigError", waiting_message='secret "tokens" not found'),
        "SecretNotFound",
        [],
    ),
    "its node falls silent before it starts": (
        replace(new_pod(address=""), node=SILENT),
        "NodeNotResponding",
        [],
    ),
    "it has an address": (new_pod(), "PodStarting", ["Greet"]),
    "its executor does not answer": (
        replace(new_pod(), contact=failed(Reason.EXECUTOR_UNREACHABLE)),
        "ExecutorUnreachable",
        [],
    ),
    "its executor did not answer a while ago": (
        replace(new_pod(), contact=failed(Reason.EXECUTOR_UNREACHABLE, NOW - 1)),
        "ExecutorUnreachable",
        ["Greet"],
    ),
    "it is in another runtime": (
        replace(new_pod(ready=True), contact=failed(Reason.RUNTIME_MISMATCH)),
        "RuntimeMismatch",
        [],
    ),
    "it was in another runtime half a minute ago": (
        replace(new_pod(ready=True), contact=failed(Reason.RUNTIME_MISMATCH, NOW - 30)),
        "RuntimeMismatch",
        ["Greet"],
    ),
    "the greeting was another pod's": (replace(new_pod(), contact=greeted("uid-0")), "PodStarting", ["Greet"]),
    "it was greeted a moment ago": (replace(new_pod(), contact=greeted(at=NOW - 1)), "Ready", []),
    "it was greeted, and its port stays shut": (
        replace(new_pod(), contact=greeted(at=NOW - 11)),
        "ExecutorUnreachable",
        [],
    ),
    "all is well": (observed(), "Ready", []),
    # Another operator: the recorded conditions of this very pod were proved.
    "the greeting is on record": (observed(contact=None), "Ready", []),
    "the greeting on record is another pod's": (
        with_status(observed(contact=None), pod_uid="", conditions=()),
        "PodStarting",
        ["Greet"],
    ),
    # Refusals.
    "there is no template": (without_pod(template=None), "TemplateNotFound", []),
    "the template cannot be read": (
        without_pod(template=None, template_problem="cannot read spec.image: it is missing"),
        "TemplateInvalid",
        [],
    ),
    "it asks for too much": (without_pod(sandbox=sandbox(lifetime=5000.0), template=None), "TemplateNotFound", []),
    "it asks for more than its template allows": (
        without_pod(sandbox=sandbox(workspace=Workspace(size=1 << 50))),
        "AboveTemplate",
        [],
    ),
    "the API server refuses the pod": (without_pod(trouble=QUOTA), "QuotaExceeded", []),
    "the API server refuses the volume": (without_pod(volume=None, trouble=QUOTA), "QuotaExceeded", []),
    "the API server refuses the policy": (without_pod(policies={}, keys=False, trouble=QUOTA), "QuotaExceeded", []),
    "it refuses to put the policy back": (observed(policies={}, trouble=QUOTA), "PolicyMissing", []),
    "it refused five seconds ago": (
        without_pod(volume=None, trouble=replace(QUOTA, at=NOW - 5)),
        "QuotaExceeded",
        ["CreateVolume", "CreatePod"],
    ),
    "there is no storage class": (
        without_pod(volume=None, storage_problem="cannot make a workspace: no class"),
        "StorageClassNotFound",
        [],
    ),
    # It belongs to another sandbox.
    "a pod of another one has the name": (without_pod(pod=pod(uid="uid-9", owner="")), "Forbidden", []),
    "a pod of an earlier sandbox has the name": (without_pod(pod=pod(uid="uid-9", owner="other")), "Forbidden", []),
    # Drift, policy first.
    "default deny is gone": (
        observed(policies={name: spec for name, spec in policies().items() if name != names.DEFAULT_DENY}),
        "PolicyMissing",
        [DENY],
    ),
    "default deny was opened": (
        observed(policies={**policies(), names.DEFAULT_DENY: {"podSelector": {}, "policyTypes": ["Ingress"]}}),
        "PolicyMissing",
        [DENY],
    ),
    "the policies and a label are gone": (
        observed(policies={}, pod=pod(labels={})),
        "PolicyMissing",
        [DENY, CLASS, "AdoptPod"],
    ),
    "the keys have to be published anew": (observed(keys=False), "Ready", ["EnsureKeys"]),
    "a label of the pod was changed": (observed(pod=pod(labels={**pod().labels, names.STATE: "warm"})), "Ready", ["AdoptPod"]),
    "the pod's owner was taken away": (observed(pod=pod(owner="")), "Ready", ["AdoptPod"]),
    "the claim's owner was taken away": (observed(volume=volume(owner="")), "Ready", ["AdjustVolume"]),
    "the claim's labels were taken away": (observed(volume=volume(labels={})), "Ready", ["AdjustVolume"]),
    # The workspace.
    "the claim is gone, and a pod runs on it": (observed(volume=None), "Ready", []),
    "the claim is gone, and no pod either": (
        with_status(without_pod(volume=None), workspace_claim=CLAIM),
        "WorkspaceLost",
        [],
    ),
    "the volume is lost": (without_pod(volume=volume(phase="Lost")), "WorkspaceLost", []),
    "an earlier claim is still going": (without_pod(volume=volume(deleting=True)), "WorkspaceInUse", []),
    "an earlier claim goes with its sandbox": (without_pod(volume=volume(owner="other")), "WorkspaceInUse", []),
    "an earlier claim was retained": (
        without_pod(volume=volume(owner="", retention="Retain")),
        "PodStarting",
        ["AdjustVolume", "CreatePod"],
    ),
    "another sandbox uses the earlier volume claim": (
        without_pod(volume=volume(owner="", retention="Retain"), workspace_users=("pod other",)),
        "WorkspaceInUse",
        [],
    ),
    "it names a claim that was left": (
        without_pod(sandbox=sandbox(pool="warm", workspace=NAMED), volume=LEFT),
        "PodStarting",
        ["AdjustVolume", "CreatePod"],
    ),
    "it names a claim that is not there": (
        without_pod(sandbox=sandbox(workspace=NAMED), volume=None),
        "WorkspaceNotFound",
        [],
    ),
    "it names a volume claim that is no workspace": (
        without_pod(sandbox=sandbox(workspace=NAMED), volume=replace(LEFT, labels={})),
        "WorkspaceNotFound",
        [],
    ),
    "it names a claim that goes with its pod": (
        without_pod(sandbox=sandbox(workspace=NAMED), volume=replace(LEFT, pod_owner="uid-of-warm")),
        "WorkspaceNotFound",
        [],
    ),
    "it names a claim that another one uses": (
        without_pod(sandbox=sandbox(workspace=NAMED), volume=LEFT, workspace_users=("CodeSandbox other",)),
        "WorkspaceInUse",
        [],
    ),
    # A warm pod, claimed.
    "no pod is bound to it yet": (without_pod(sandbox=sandbox(pool="warm"), volume=None), "WaitingForClaim", []),
    "there is no such pool": (
        without_pod(sandbox=sandbox(pool="none"), volume=None, pool_problem="there is no SandboxPool 'none'"),
        "PoolNotFound",
        [],
    ),
    "a warm pod was bound to it": (
        observed(
            sandbox=sandbox(bound=WARM, pool="warm"),
            pod=warm_pod(),
            volume=volume(name=WARM_CLAIM, owner="", retention=""),
            contact=None,
        ),
        "PodStarting",
        ["AdjustVolume", "AdoptPod", "Greet"],
    ),
    "it is unknown whether the warm pod exists": (
        without_pod(sandbox=sandbox(bound=WARM, settled=True, pool="warm")),
        "WorkspaceInUse",
        [],
    ),
    "it is unknown whether the recorded pod exists": (
        with_status(without_pod(), pod_uid="uid-1"),
        "WorkspaceInUse",
        [],
    ),
    # The pod goes.
    "the pod is being deleted": (observed(pod=pod(deleting=True)), "PodDeleted", []),
    "the pod is being evicted": (observed(pod=pod(deleting=True, disruption="EvictionByEvictionAPI")), "Evicted", []),
    "its node is gone": (
        observed(pod=pod(deleting=True, disruption="DeletionByTaintManager"), node=None),
        "NodeLost",
        [],
    ),
    "it is being deleted on a silent node": (
        observed(pod=pod(deleting=True), node=node(ready=False, silent_since=NOW)),
        "NodeNotResponding",
        [],
    ),
    "it is being deleted on a node that is certainly off": (
        observed(
            pod=pod(deleting=True, disruption="DeletionByTaintManager"),
            node=node(ready=False, silent_since=NOW - 999, out_of_service=True),
        ),
        "NodeLost",
        [],
    ),
    "its node is silent for longer than it may": (observed(pod=pod(ready=False), node=SILENT), "NodeNotResponding", []),
    "its node is silent for a moment": (
        observed(pod=pod(ready=False), node=node(ready=False, silent_since=NOW - 1)),
        "ExecutorUnreachable",
        [],
    ),
    "an older pod that was counted is still there": (
        with_status(observed(pod=pod(ended=None, deleting=True), contact=None), pod_uid="", restarts=1),
        "PodDeleted",
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("when", TABLE)
def test_observations_determine_actions_and_status(when):
    seen, why, wanted = TABLE[when]
    made = planned(seen)
    assert (ready(made), actions(made)) == (why, wanted)
    assert not made.status_first


@pytest.mark.parametrize("when", TABLE)
def test_a_ready_sandbox_is_isolated(when):
    holds = true(planned(TABLE[when][0]))
    assert "Ready" not in holds or "Isolated" in holds


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        # Changes that no event announces need a timer.
        ("its executor does not answer", 1.0),
        ("it is in another runtime", 30.0),
        ("the API server refuses the pod", 5.0),
        ("the API server refuses the volume", 5.0),
        ("it refuses to put the policy back", 5.0),
        ("there is no storage class", 5.0),
        ("it was greeted a moment ago", 9.0),
        ("its node is silent for a moment", 39.0),
        ("an earlier claim goes with its sandbox", 5.0),
        ("all is well", None),
        ("the pod waits for a node", None),
    ],
)
def test_the_requeue_delay(when, seconds):
    assert planned(TABLE[when][0]).requeue_after == seconds


def test_a_sandbox_that_is_being_deleted_is_left_to_the_garbage_collector():
    seen = observed()
    gone = replace(seen, sandbox=replace(seen.sandbox, meta=replace(META, deleting=True)), policies={})
    assert planned(gone) == type(planned(gone))(status=seen.sandbox.status)


def test_the_status_names_the_running_pod():
    status = planned(observed()).status
    assert (status.pod, status.pod_uid, status.node) == ("demo", "uid-1", "node-1")
    assert (status.address, status.runtime, status.image_digest) == ("10.0.0.1:50051", "gvisor", "sha256:1")
    assert (status.workspace_claim, status.restarts, status.observed_generation) == (CLAIM, 0, 1)


def test_a_volume_is_recorded_only_once_it_exists():
    """Otherwise a refused volume would count as lost."""
    assert planned(without_pod(volume=None)).status.workspace_claim == ""
    assert planned(without_pod(volume=None, trouble=QUOTA)).status.workspace_claim == ""


def test_a_greeting_asks_for_the_templates_runtime_and_passes_the_rest_of_the_lifetime():
    seen = with_spec(new_pod(), lifetime=1500.0, idle_timeout=60.0)
    greet = only(planned(seen), Greet)
    assert (greet.pod_uid, greet.address, greet.isolation) == ("uid-1", "10.0.0.1:50051", Isolation.GVISOR)
    assert (greet.lease, greet.idle_timeout) == (500.0, 60.0)


def test_a_pod_gets_the_rest_of_the_lifetime_and_the_recorded_volume_claim():
    seen = with_status(with_spec(without_pod(volume=volume(name="other")), lifetime=1500.0), workspace_claim="other")
    made = planned(seen)
    assert '"lease": 500.0' in str(only(made, CreatePod).manifest)
    assert "'claimName': 'other'" in str(only(made, CreatePod).manifest)
    assert made.requeue_after == 500.0


def test_labels_that_policies_select_by_are_restored_and_others_left_alone():
    labels = {**pod().labels, names.EGRESS_OWN: "demo", "app": "web"}
    del labels[names.EGRESS_CLASS]
    adopt = only(planned(observed(pod=pod(labels=labels))), AdoptPod)
    assert adopt.labels == {names.EGRESS_OWN: None, names.EGRESS_CLASS: "python"}
    assert adopt.owner is None


@pytest.mark.parametrize(
    ("retention", "found", "owned", "kept"),
    [
        (Retention.RETAIN, volume(), False, "Retain"),
        (Retention.DELETE, volume(owner="", retention="Retain"), True, "Delete"),
        # A volume claim that the fleet created, or a user.
        (None, volume(owner="", retention="", labels={}), True, "Delete"),
    ],
)
def test_the_volume_claims_owner_follows_its_retention(retention, found, owned, kept):
    adjust = only(planned(with_spec(observed(volume=found), workspace=Workspace(retention=retention))), AdjustVolume)
    assert bool(adjust.owners) == owned
    assert adjust.annotations == {names.RETENTION: kept}
    assert adjust.labels == names.own_labels(**{names.SANDBOX: "demo"})


def test_a_lost_volume_claim_degrades_a_running_sandbox():
    made = planned(observed(volume=None))
    assert {"Ready", "Degraded"} <= true(made)
    assert condition(made, ConditionType.DEGRADED).reason == "WorkspaceLost"


NOT_PRELOADED = "cannot preload nowhere (ModuleNotFoundError: No module named 'nowhere')"


def degraded(made) -> tuple[str, str]:
    found = condition(made, ConditionType.DEGRADED)
    return found.reason, found.message


def test_modules_that_are_not_preloaded_degrade_a_sandbox_that_runs_also_for_the_next_operator():
    first = planned(observed(contact=greeted(not_preloaded=NOT_PRELOADED)))
    assert {"Ready", "Degraded"} <= true(first)
    assert degraded(first) == ("ModulesNotPreloaded", NOT_PRELOADED)
    later = with_status(observed(contact=None), conditions=first.status.conditions)
    assert degraded(planned(later)) == ("ModulesNotPreloaded", NOT_PRELOADED)


def test_the_next_pod_is_asked_anew_for_its_modules():
    first = planned(observed(contact=greeted(not_preloaded=NOT_PRELOADED)))
    later = with_status(observed(contact=greeted()), conditions=first.status.conditions)
    assert degraded(planned(later))[0] == "Healthy"
