"""The users of a workspace, and the workspaces that sandboxes have left."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SandboxSpec, SandboxStatus
from sandfleet_operator.api.kinds.template import Retention, Workspace
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from sandfleet_operator.plan.sandbox.observed import Ended, Pod, Volume
from sandfleet_operator.plan.sandbox.workspaces import User, is_before, is_kept, users
from support.operator.builders import SETTINGS, a_meta, a_template

CLAIM = "workspace-old"
EXPIRED = Condition(type=ConditionType.EXPIRED.value, status="True", reason="IdleTimeoutOver")
KEPT = Volume(name=CLAIM, uid="u", phase="Bound", labels=names.own_labels(**{names.SANDBOX: "old"}), retention="Retain")


def a_sandbox(name="one", *, deleting=False, created=0.0, status=None, **spec):
    meta = replace(a_meta(created=created), name=name, uid=f"uid-of-{name}", deleting=deleting)
    return CodeSandbox(meta=meta, spec=SandboxSpec(template="python", **spec), status=status or SandboxStatus())


def a_pod(name="one", **changes):
    return Pod(name=name, uid=f"uid-of-pod-{name}", workspace_claim=CLAIM, **changes)


ON_RECORD = SandboxStatus(workspace_claim=CLAIM)
NAMED = Workspace(claim_name=CLAIM)


@pytest.mark.parametrize(
    ("sandbox", "uses"),
    [
        (a_sandbox(status=ON_RECORD), True),
        (a_sandbox(workspace=NAMED), True),
        (a_sandbox(workspace=NAMED, pool="fast"), True),
        (a_sandbox("old"), True),
        # It will get the workspace of a warm pod.
        (a_sandbox("old", pool="fast"), False),
        (a_sandbox("old", workspace=Workspace(claim_name="workspace-other")), False),
        (a_sandbox(workspace=NAMED, status=SandboxStatus(workspace_claim="workspace-other")), False),
        (a_sandbox(status=ON_RECORD, deleting=True), False),
        (a_sandbox(status=replace(ON_RECORD, conditions=(EXPIRED,))), False),
    ],
)
def test_a_sandbox_uses_the_workspace_that_its_next_pod_would_start_on(sandbox, uses):
    assert users(CLAIM, [sandbox], []) == ([User(f"CodeSandbox {sandbox.meta.name}")] if uses else [])


@pytest.mark.parametrize(
    ("pod", "leaving"),
    [
        (a_pod(), False),
        (a_pod(owner="uid-of-one", labels={names.STATE: "claimed"}), False),
        (a_pod(owner="uid-of-one", deleting=True), True),
        (a_pod(owner="uid-of-one", ended=Ended(0)), True),
        (a_pod(owner="uid-of-nobody"), True),
        (a_pod(labels={names.STATE: "retiring"}), True),
        (a_pod(labels={names.STATE: "warm"}), True),
    ],
)
def test_a_pod_uses_its_workspace_until_the_pod_is_gone(pod, leaving):
    assert users(CLAIM, [a_sandbox()], [pod, replace(pod, workspace_claim="other")]) == [User("pod one", leaving)]


def test_of_two_sandboxes_the_recorded_one_has_the_workspace_and_else_the_older():
    first, second = a_sandbox("b", created=1.0), a_sandbox("a", created=2.0)
    assert is_before(first, second)
    assert not is_before(second, first)
    recorded = replace(second, status=ON_RECORD)
    assert is_before(recorded, first)
    assert not is_before(first, recorded)
    same = a_sandbox("c", created=1.0)
    assert is_before(first, same) != is_before(same, first)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {}},
        {"labels": names.own_labels()},
        {"retention": "Delete"},
        {"retention": ""},
        {"owner": "uid-of-one"},
        {"pod_owner": "uid-of-pod"},
        {"deleting": True},
        {"phase": "Lost"},
    ],
)
def test_a_volume_claim_that_no_sandbox_has_left_cannot_be_used(changes):
    assert is_kept(KEPT)
    assert not is_kept(replace(KEPT, **changes))


@pytest.mark.parametrize("given", [None, Retention.DELETE, Retention.RETAIN])
def test_an_earlier_workspace_is_retained_unless_asked_otherwise(given):
    spec = SandboxSpec(template="python", workspace=replace(NAMED, retention=given))
    wanted = effective(a_template(), spec, SETTINGS)
    assert isinstance(wanted, Effective)
    assert wanted.retention is (given or Retention.RETAIN)


def test_ephemeral_templates_take_no_earlier_workspace():
    template = a_template()
    template = replace(template, workspace=replace(template.workspace, ephemeral=True))
    refused = effective(template, SandboxSpec(template="python", workspace=NAMED), SETTINGS)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.INVALID_SPEC
    assert "cannot start on workspace workspace-old" in refused.message
