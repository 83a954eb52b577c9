"""What people with kubectl get to read where a sandbox cannot be what they wrote, on the real cluster."""

import pytest
from cluster.harness.api import ApiError, path_of
from cluster.harness.layout import ClusterError
from cluster.harness.testing import probe_pod
from cluster.operators import template

MISTAKES = {
    "unknown template": ({"templateRef": {"name": "no-such"}}, "TemplateNotFound", "no SandboxTemplate 'no-such'"),
    "above the template": ({"resources": {"limits": {"memory": "4Gi"}}}, "AboveTemplate", "the template allows 768Mi"),
    "no such runtime class": ({"templateRef": {"name": "no-runtime"}}, "RuntimeClassNotFound", "no-such-runtime"),
    "image that is not there": ({"templateRef": {"name": "no-image"}}, "ImagePullFailed", "localhost/nowhere"),
    "image that is not allowed": ({"templateRef": {"name": "foreign"}}, "ImageNotAllowed", "docker.example/x:1"),
    "no such storage class": ({"templateRef": {"name": "no-storage"}}, "StorageClassNotFound", "no-such-class"),
    "no such secret": ({"templateRef": {"name": "no-secret"}}, "SecretNotFound", "no-such-secret"),
    "no node fits": ({"templateRef": {"name": "nowhere"}}, "Unschedulable", "node"),
    "egress that the template has not": (
        {"egress": {"allow": [{"cidr": "192.0.2.0/24"}]}},
        "EgressNotAllowed",
        "192.0.2.0/24",
    ),
}
TEMPLATES = {
    "no-runtime": {"runtimeClassName": "no-such-runtime"},
    "no-image": {"image": "localhost/nowhere:1"},
    "foreign": {"image": "docker.example/x:1"},
    "no-storage": {"workspace": {"storageClassName": "no-such-class"}},
    "no-secret": {"envFrom": [{"secretRef": {"name": "no-such-secret"}}]},
    "nowhere": {"nodeSelector": {"nowhere": "at-all"}},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_beginner_s_mistake_is_seen_in_kubectl_get(sandboxes, mistake):
    spec, reason, part = MISTAKES[mistake]
    if made := TEMPLATES.get(spec.get("templateRef", {}).get("name")):
        sandboxes.cluster.api.apply(template(sandboxes.namespace, spec["templateRef"]["name"], **made))
    sandboxes.create("one", **spec)
    message = sandboxes.wait("one", reason)
    assert part in message
    assert reason in sandboxes.cluster.kubectl("get", "csb", "one", "-n", sandboxes.namespace)
    assert part in sandboxes.cluster.kubectl("get", "csb", "one", "-n", sandboxes.namespace, "-o", "wide")


def refused(sandboxes) -> bool:
    """Whether a pod would be: the API server hears of a quota some time after it was written."""
    pods, pod = path_of("Pod", sandboxes.namespace), probe_pod(sandboxes.namespace, "would-be")
    try:
        sandboxes.cluster.api.call("POST", f"{pods}?dryRun=All", pod)
    except ApiError as error:
        return "exceeded quota" in str(error)
    return False


def test_a_full_quota_is_seen_and_waited_for(sandboxes):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": sandboxes.namespace, "name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    sandboxes.cluster.api.apply(quota)
    sandboxes.cluster.api.wait("the quota to hold", lambda: refused(sandboxes), 60)
    sandboxes.create("one")
    assert "pods" in sandboxes.wait("one", "QuotaExceeded")
    sandboxes.cluster.api.delete("ResourceQuota", "none", sandboxes.namespace)
    sandboxes.ready("one")


def test_kubectl_wait_fails_for_a_sandbox_that_cannot_start(sandboxes):
    sandboxes.create("one", templateRef={"name": "no-such"})
    sandboxes.wait("one", "TemplateNotFound")
    with pytest.raises(ClusterError):
        sandboxes.cluster.kubectl("wait", "--for=condition=Ready", "csb/one", "-n", sandboxes.namespace, "--timeout=1s")


def test_describe_shows_why_in_a_few_events(sandboxes):
    sandboxes.create("one")
    sandboxes.ready("one")
    shown = sandboxes.cluster.kubectl("describe", "csb", "one", "-n", sandboxes.namespace)
    events = shown[shown.index("Events:") :]
    assert "ExecutorAnswers" in events
    assert len(events.splitlines()) < 10
