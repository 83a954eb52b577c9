"""The real API server takes whatever the schemas let through, and every pod that comes of it. All are dry runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster.harness.api import ApiError
from cluster.harness.testing import Cluster
from cluster.test_pods_accepted import refusal, tried
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import sandbox_template
from sandfleet_operator.plan.pods.merge import Effective, effective
from sandfleet_operator.plan.pods.networkpolicy import own_egress
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from sandfleet_operator.plan.pods.volume import workspace_claim
from support.operator.builders import IMAGE, SETTINGS
from support.operator.crd_strategies import NAMES, an_object, specs
from support.pod_security import violations

Json = dict[str, Any]
EACH = settings(
    max_examples=40, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
USUAL = {
    path: st.just(value)
    for path, value in {
        "spec.image": IMAGE,
        "spec.inline.image": IMAGE,
        "spec.nodeSelector": {"kubernetes.io/os": "linux"},
        "spec.tolerations": [{"key": "sandboxes", "operator": "Exists"}],
    }.items()
}
pytestmark = pytest.mark.usefixtures("kinds")
NAMED = specs("CodeSandbox", always=frozenset({"spec.templateRef"}), never=frozenset({"spec.inline"}))
INLINE = specs(
    "CodeSandbox", usual=USUAL, always=frozenset({"spec.inline"}), never=frozenset({"spec.templateRef", "spec.poolRef"})
)
TEMPLATES = specs("SandboxTemplate", usual=USUAL)
# Those of a cluster, which refuses pods that name others.
RUNNABLE = specs("SandboxTemplate", usual=USUAL, never=frozenset({"spec.runtimeClassName", "spec.priorityClassName"}))
CEILING = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, "egress": {"allow": [{"cidr": "0.0.0.0/0"}, {"cidr": "::/0"}], "dns": True}})).spec  # fmt: skip


@pytest.fixture
def guarded(new_namespace: Any) -> str:
    return new_namespace({"pod-security.kubernetes.io/enforce": "restricted"})


def stored(cluster: Cluster, value: Json) -> Json | None:
    """As the API server would store it; None for objects too large for any API server. Other refusals are explained."""
    try:
        return tried(cluster, value)
    except ApiError as error:
        assert error.status == 413 or "cannot " in str(error), error
        return None


@EACH
@given(NAMED | INLINE, NAMES)
def test_any_sandbox_that_the_schema_accepts_is_stored_and_read_as_written(
    cluster: Cluster, guarded: str, spec: Json, name: str
) -> None:
    value = an_object("CodeSandbox", spec, name, guarded)
    if found := stored(cluster, value):
        assert code_sandbox(found).spec == code_sandbox(value).spec


@EACH
@given(TEMPLATES, NAMES)
def test_any_template_that_the_schema_accepts_is_stored_and_read_as_written(
    cluster: Cluster, guarded: str, spec: Json, name: str
) -> None:
    value = an_object("SandboxTemplate", spec, name, guarded)
    if found := stored(cluster, value):
        assert sandbox_template(found).spec == sandbox_template(value).spec


@EACH
@given(RUNNABLE, NAMED, NAMES, st.booleans())
def test_any_pod_of_a_template_is_accepted(
    cluster: Cluster, guarded: str, written: Json, wish: Json, name: str, user_namespace: bool
) -> None:
    template = sandbox_template(an_object("SandboxTemplate", written)).spec
    sandbox = an_object("CodeSandbox", wish, name, guarded)
    wanted = effective(template, code_sandbox(sandbox).spec, SETTINGS)
    assume(isinstance(wanted, Effective))
    taken(cluster, sandbox, wanted, user_namespace=user_namespace)


@EACH
@given(INLINE, NAMES)
def test_any_pod_of_an_inline_template_is_accepted(cluster: Cluster, guarded: str, wish: Json, name: str) -> None:
    sandbox = an_object("CodeSandbox", wish, name, guarded)
    wanted = effective(None, code_sandbox(sandbox).spec, replace(SETTINGS, inline=CEILING))
    assume(isinstance(wanted, Effective))
    taken(cluster, sandbox, wanted)


def taken(cluster: Cluster, sandbox: Json, wanted: Effective, *, user_namespace: bool = False) -> None:
    """The pod, its workspace and what it may reach."""
    namespace, name = (sandbox["metadata"][key] for key in ("namespace", "name"))
    request = PodRequest(namespace=namespace, name=name, wanted=wanted, user_namespace=user_namespace)
    pod = sandbox_pod(request, SETTINGS)
    assert violations(pod) == ()
    assert violations(tried(cluster, pod)) == ()
    assert refusal(cluster, workspace_claim(namespace, name, wanted, owner=None)) == ""
    if policy := own_egress(code_sandbox(sandbox), wanted.egress, SETTINGS) if wanted.own_egress else None:
        policy["metadata"].pop("ownerReferences", None)
        assert refusal(cluster, policy) == ""
