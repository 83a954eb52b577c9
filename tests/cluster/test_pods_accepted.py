"""A namespace that enforces `restricted` takes each pod of the operator, and refuses what the checker refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster.harness.api import ApiError, path_of
from cluster.harness.testing import Cluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.placement import PREFERRED, REQUIRED
from sandfleet_operator.api.kinds.template import sandbox_template
from sandfleet_operator.plan.pods.merge import Effective, effective
from sandfleet_operator.plan.pods.networkpolicy import default_deny, own_egress, template_egress
from sandfleet_operator.plan.pods.podspec import PodRequest, PodState, sandbox_pod
from sandfleet_operator.plan.pods.revision import is_genuine, revision_of
from sandfleet_operator.plan.pods.volume import workspace_claim
from support.operator.builders import IMAGE, SETTINGS, a_sandbox, a_sandbox_template, a_spec, a_template, opens, pairs
from support.operator.crd_strategies import an_object
from support.operator.pod_violations import ALL, Worse
from support.pod_security import restricted_violations, violations

Json = dict[str, Any]
EACH = settings(
    max_examples=60, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
WANTED = pairs().map(lambda pair: effective(*pair, SETTINGS)).filter(lambda result: isinstance(result, Effective))


ZONE = "topology.kubernetes.io/zone"
AN_EXPRESSION = {"key": "app", "operator": "NotIn", "values": ["noisy", ""]}
ELSEWHERE = {
    "topologyKey": ZONE,
    "labelSelector": {"matchLabels": {"app": "cache"}, "matchExpressions": [AN_EXPRESSION]},
}
PODS = {
    REQUIRED: [ELSEWHERE, {"topologyKey": ZONE}],
    PREFERRED: [{"weight": 100, "podAffinityTerm": {"topologyKey": ZONE}}],
}
NODES = [
    {"key": "gpu", "operator": "DoesNotExist"}, {"key": "disk", "operator": "Exists"}, {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    {"key": "cores", "operator": "Gt", "values": ["8"]}, {"key": "age", "operator": "Lt", "values": ["1"]},
]  # fmt: skip
EVERY_PLACEMENT = {
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": NODES}]},
            PREFERRED: [{"weight": 1, "preference": {"matchExpressions": NODES[:1]}}],
        },
        "podAffinity": PODS,
        "podAntiAffinity": PODS,
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"},
        {"maxSkew": 3, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
    ],
    "podLabels": {"kueue.x-k8s.io/queue-name": "agents", "tier": ""},
    "podAnnotations": {"prometheus.io/scrape": "false", "example.com/Cost_Center": "a\nb ü"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "sandboxes", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
}  # fmt: skip


@pytest.fixture
def guarded(new_namespace) -> str:
    return new_namespace({"pod-security.kubernetes.io/enforce": "restricted"})


def tried(cluster: Cluster, value: Json) -> Json:
    """The object as the API server would store it."""
    path = path_of(value["kind"], value["metadata"]["namespace"])
    return cluster.api.call("POST", f"{path}?dryRun=All", value)


def refusal(cluster: Cluster, value: Json) -> str:
    """What the API server says to an object that it would not create; empty for one that it would."""
    try:
        tried(cluster, value)
    except ApiError as error:
        return str(error)
    return ""


def a_pod(namespace: str, wanted: Effective, **changes: Any) -> Json:
    return sandbox_pod(replace(PodRequest(namespace=namespace, name="demo", wanted=wanted), **changes), SETTINGS)


def plain(namespace: str) -> Json:
    wanted = effective(a_template(), a_spec(), SETTINGS)
    assert isinstance(wanted, Effective)
    return a_pod(namespace, wanted)


@EACH
@given(WANTED, st.sampled_from(PodState), st.booleans())
def test_every_pod_is_accepted(cluster: Cluster, guarded: str, wanted: Effective, state, user_namespace) -> None:
    pod = a_pod(guarded, wanted, state=state, user_namespace=user_namespace)
    assert violations(pod) == ()
    # Also with every default filled in.
    assert violations(tried(cluster, pod)) == ()
    assert refusal(cluster, workspace_claim(guarded, "demo", wanted, owner=None)) == ""


@EACH
@given(WANTED, st.sampled_from([one for one in ALL if one.creatable]), st.booleans())
def test_both_agree_about_a_pod_that_was_made_worse(
    cluster: Cluster, guarded: str, wanted: Effective, worse: Worse, user_namespace
) -> None:
    agree(cluster, worse.of(a_pod(guarded, wanted, user_namespace=user_namespace)))


@pytest.mark.parametrize("worse", [one for one in ALL if one.creatable], ids=lambda one: one.said)
def test_both_agree_about(cluster: Cluster, guarded: str, worse: Worse) -> None:
    agree(cluster, worse.of(plain(guarded)))


def test_outside_restricted_namespaces_only_the_checker_refuses(cluster: Cluster, namespace: str) -> None:
    worse = next(one for one in ALL if one.said == "the pod sets hostPID").of(plain(namespace))
    assert (refusal(cluster, worse), restricted_violations(worse)) == ("", ("the pod sets hostPID",))


def agree(cluster: Cluster, pod: Json) -> None:
    answer, found = refusal(cluster, pod), restricted_violations(pod)
    # What a pod of its own users may not share is refused before anybody asks for its security.
    refused = 'violates PodSecurity "restricted' in answer or "Forbidden: when `hostUsers` is false" in answer
    assert refused == bool(found), (answer, found)
    assert not answer or found, answer


OVERHEAD = {"cpu": "20m", "memory": "48Mi"}


def test_a_pod_with_every_field_of_placement_is_accepted_with_its_runtimes_overhead(
    cluster: Cluster, guarded: str
) -> None:
    name = f"overhead-{guarded}"
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
    cluster.api.call(
        "POST", path_of("RuntimeClass"), {**runtime, "handler": "runsc", "overhead": {"podFixed": OVERHEAD}}
    )
    try:
        template = sandbox_template(
            an_object("SandboxTemplate", {"image": IMAGE, "runtimeClassName": name, **EVERY_PLACEMENT})
        ).spec
        wanted = effective(template, a_spec(), SETTINGS)
        assert isinstance(wanted, Effective), wanted
        pod = a_pod(guarded, wanted)
        stored = tried(cluster, pod)
        assert violations(stored) == ()
        assert stored["spec"]["overhead"] == OVERHEAD
        # The API server has dropped no field and changed none.
        for field in ("affinity", "topologySpreadConstraints", "nodeSelector"):
            assert stored["spec"][field] == pod["spec"][field]
        assert stored["metadata"]["annotations"] == pod["metadata"]["annotations"]
    finally:
        cluster.api.call("DELETE", f"{path_of('RuntimeClass')}/{name}")


def test_the_kept_spec_of_a_template_is_stored_as_its_name_says(cluster: Cluster, namespace: str) -> None:
    spec = {
        "image": IMAGE,
        **EVERY_PLACEMENT,
        "env": [{"name": "A", "value": "\u00fc\u2028<&>\U0001f600"}],
        "rollback": {"x": 0.5},
    }
    manifest = revision_of({"metadata": {"namespace": namespace, "name": "python"}, "spec": spec})
    path = f"apis/apps/v1/namespaces/{namespace}/controllerrevisions"
    cluster.api.call("POST", path, manifest)
    stored = cluster.api.call("GET", f"{path}/{manifest['metadata']['name']}")
    assert is_genuine(stored)
    assert stored["data"] == manifest["data"]
    with pytest.raises(ApiError, match="immutable"):
        cluster.api.call("PUT", f"{path}/{manifest['metadata']['name']}", {**stored, "data": {"spec": {}}})


def test_policies_are_accepted(cluster: Cluster, guarded: str) -> None:
    wide = opens("0.0.0.0/0", "::/0", ("203.0.113.9/24", 443, (8000, 8100), ("UDP", 53)), dns=True)
    template, sandbox = a_sandbox_template(egress=wide), a_sandbox()
    found = [default_deny(guarded, SETTINGS), template_egress(template, SETTINGS), own_egress(sandbox, wide, SETTINGS)]
    for policy in found:
        assert policy is not None
        assert refusal(cluster, policy | {"metadata": policy["metadata"] | {"namespace": guarded}}) == ""
