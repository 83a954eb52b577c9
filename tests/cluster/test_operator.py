"""The operator on the real cluster: what people with kubectl see of one sandbox, from its creation to its end."""

import contextlib
import subprocess
import time

import pytest
from cluster.harness.layout import ClusterError
from cluster.operators import (
    RESTRICTED_LABELS,
    OperatorProcess,
    Sandboxes,
    in_container,
    kill_container,
    read,
    template,
    write,
)
from crd_schemas import CRDS
from sandfleet_operator.plan.restricted import violations


@pytest.fixture(scope="module")
def bed(images, tmp_path_factory):
    """An operator for one namespace that enforces PodSecurity `restricted`."""
    api = images.api
    api.apply_all(CRDS.values())
    names = [f"operator-{kind}-{time.time_ns() % 10**9}" for kind in ("home", "work")]
    for name, labels in zip(names, ({}, RESTRICTED_LABELS), strict=True):
        metadata = {"name": name, "labels": labels}
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    quick = {"recovery": {"backoffBase": 0.5, "backoffMax": 2.0, "maxCrashes": 2}}
    folder = tmp_path_factory.mktemp("operator")
    operator = OperatorProcess(images, folder, names[0], (names[1],), settings=quick).start()
    api.create(template(names[1]))
    yield operator
    operator.end()
    for name in names:
        api.delete("Namespace", name)


@pytest.fixture
def sandboxes(bed):
    made = Sandboxes(bed.cluster, bed.namespaces[0])
    yield made
    for one in bed.cluster.api.list("CodeSandbox", made.namespace):
        made.delete(one["metadata"]["name"])
    bed.cluster.api.wait("the pods to be gone", lambda: made.count("Pod") == 0, 60)


def test_a_sandbox_that_is_applied_becomes_ready_isolated_and_in_gvisor(sandboxes):
    sandboxes.create("one")
    status = sandboxes.ready("one")
    assert status["runtime"] == "gvisor"
    assert status["imageDigest"].startswith("sha256:")
    said = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert said == {
        "Ready": ("True", "ExecutorAnswers"),
        "PodScheduled": ("True", "Scheduled"),
        "Isolated": ("True", "Isolated"),
        "Suspended": ("False", "Running"),
        "Expired": ("False", "Alive"),
        "Degraded": ("False", "Healthy"),
    }
    pod = sandboxes.pod("one")
    assert pod["metadata"]["uid"] == status["podUID"]
    assert violations(pod) == ()
    assert f"{pod['status']['podIP']}:50051" == status["address"]


def test_deleting_the_object_deletes_all_of_it(sandboxes):
    sandboxes.create("one")
    sandboxes.ready("one")
    sandboxes.delete("one")
    api = sandboxes.cluster.api
    api.wait("the pod to go", lambda: sandboxes.pod("one") is None, 60)
    api.wait("the claim to go", lambda: sandboxes.count("PersistentVolumeClaim") == 0, 60)


def test_suspended_there_is_no_pod_and_resumed_the_files_are_there(sandboxes, bed):
    sandboxes.create("one")
    first = sandboxes.ready("one")
    write(sandboxes, "one", "kept", "1")
    sandboxes.patch("one", {"operatingMode": "Suspended"})
    sandboxes.wait("one", "Suspended")
    assert sandboxes.pod("one") is None
    sandboxes.patch("one", {"operatingMode": "Running"})
    again = sandboxes.ready("one", other_than=first["podUID"])
    assert again["restarts"] == 0
    assert read(sandboxes, "one", "kept") == "1"


def test_a_deleted_pod_comes_back_on_the_same_workspace_with_the_reason(sandboxes, bed):
    sandboxes.create("one")
    first = sandboxes.ready("one")
    write(sandboxes, "one", "kept", "2")
    bed.cluster.api.delete("Pod", "one", sandboxes.namespace)
    again = sandboxes.ready("one", other_than=first["podUID"])
    assert [one["reason"] for one in again["restartHistory"]] == ["PodDeleted"]
    assert (again["restarts"], again["crashes"]) == (1, 0)
    assert read(sandboxes, "one", "kept") == "2"


def test_an_executor_that_is_killed_comes_back_in_a_new_pod(sandboxes, bed):
    sandboxes.create("one")
    first = sandboxes.ready("one")
    write(sandboxes, "one", "kept", "3")
    kill_container(bed.cluster, sandboxes.pod("one"))
    again = sandboxes.ready("one", other_than=first["podUID"])
    assert [one["reason"] for one in again["restartHistory"]] == ["ExecutorCrashed"]
    assert "137" in again["restartHistory"][0]["message"]
    assert read(sandboxes, "one", "kept") == "3"


def test_a_sandbox_that_fills_its_memory_comes_back_and_says_so(sandboxes, bed):
    sandboxes.create("one")
    first = sandboxes.ready("one")
    pod = sandboxes.pod("one")
    # Beside the executor and its guard, as nothing in the session namespace can.
    hoard = "x = []\nwhile True: x.append(b'x' * (16 << 20))"
    subprocess.run(in_container(bed.cluster, pod, "python3", "-c", hoard), check=False, capture_output=True, timeout=60)
    again = sandboxes.ready("one", other_than=first["podUID"])
    assert [one["reason"] for one in again["restartHistory"]] == ["OutOfMemory"]


def test_a_sandbox_that_ends_again_and_again_is_given_up_and_says_so(sandboxes, bed):
    """The limit of this operator is two crashes without a stable stretch."""
    sandboxes.create("one")
    deadline = time.monotonic() + 100
    while sandboxes.said("one", "Degraded")[1] != "TooManyRestarts" and time.monotonic() < deadline:
        if sandboxes.said("one")[0] == "True":
            # It may have ended since it was looked at.
            with contextlib.suppress(ClusterError, KeyError, TypeError):
                kill_container(bed.cluster, sandboxes.pod("one"))
        time.sleep(0.5)
    status = sandboxes.get("one")["status"]
    assert sandboxes.said("one")[1] == "TooManyRestarts"
    assert [one["reason"] for one in status["restartHistory"]] == ["ExecutorCrashed"] * 3
    bed.cluster.api.wait("the pod to go", lambda: sandboxes.pod("one") is None, 30)
    # Who suspends it and lets it run again has seen to the cause.
    sandboxes.patch("one", {"operatingMode": "Suspended"})
    sandboxes.wait("one", "Suspended")
    sandboxes.patch("one", {"operatingMode": "Running"})
    assert sandboxes.ready("one")["crashes"] == 0


def test_its_lifetime_ends_it_for_good(sandboxes):
    sandboxes.create("one", lifetimeSeconds=15)
    sandboxes.cluster.api.wait("a pod", lambda: sandboxes.pod("one") is not None, 15)
    sandboxes.wait("one", "LifetimeOver", "Expired", 60)
    sandboxes.cluster.api.wait("the pod to go", lambda: sandboxes.pod("one") is None, 60)
    time.sleep(2)
    assert sandboxes.pod("one") is None


def test_one_that_nobody_uses_expires_by_itself(sandboxes):
    sandboxes.create("one", idleTimeoutSeconds=5)
    sandboxes.ready("one")
    sandboxes.wait("one", "IdleTimeoutOver", "Expired", 60)


MISTAKES = {
    "unknown template": ({"template": "no-such"}, "TemplateNotFound", "no SandboxTemplate 'no-such'"),
    "above the template": ({"resources": {"memory": "4Gi"}}, "AboveTemplate", "the template allows 768Mi"),
    "no such runtime class": ({"template": "no-runtime"}, "RuntimeClassNotFound", "no-such-runtime"),
    "image that is not there": ({"template": "no-image"}, "ImagePullFailed", "localhost/nowhere"),
    "image that is not allowed": ({"template": "foreign"}, "ImageNotAllowed", "docker.example/x:1"),
    "no such storage class": ({"template": "no-storage"}, "StorageClassNotFound", "no-such-class"),
    "no such secret": ({"template": "no-secret"}, "SecretNotFound", "no-such-secret"),
    "no node fits": ({"template": "nowhere"}, "Unschedulable", "node"),
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
    if made := TEMPLATES.get(spec.get("template", "")):
        sandboxes.cluster.api.apply(template(sandboxes.namespace, spec["template"], **made))
    sandboxes.create("one", **spec)
    message = sandboxes.wait("one", reason)
    assert part in message
    assert reason in sandboxes.cluster.kubectl("get", "csb", "one", "-n", sandboxes.namespace)
    assert part in sandboxes.cluster.kubectl("get", "csb", "one", "-n", sandboxes.namespace, "-o", "wide")


def test_a_full_quota_is_seen_and_waited_for(sandboxes):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": sandboxes.namespace, "name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    sandboxes.cluster.api.apply(quota)
    sandboxes.create("one")
    assert "pods" in sandboxes.wait("one", "QuotaExceeded")
    sandboxes.cluster.api.delete("ResourceQuota", "none", sandboxes.namespace)
    sandboxes.ready("one")


def test_drift_is_closed_policy_first(sandboxes, bed):
    sandboxes.create("one")
    sandboxes.ready("one")
    api, where = bed.cluster.api, sandboxes.namespace
    before = api.get("NetworkPolicy", "sandfleet-default-deny", where)["metadata"]["uid"]
    api.delete("NetworkPolicy", "sandfleet-default-deny", where)
    api.wait(
        "the policy to be back",
        lambda: _uid(api, "NetworkPolicy", "sandfleet-default-deny", where) not in ("", before),
        10,
    )
    bed.cluster.kubectl(
        "label", "pod", "one", "-n", where, "sandfleet.io/component-", "sandfleet.io/egress-class=other"
    )
    api.wait("the labels to be back", lambda: _labels_right(api, where), 10)
    bed.cluster.kubectl(
        "patch",
        "pvc",
        "workspace-one",
        "-n",
        where,
        "--type=json",
        "-p",
        '[{"op":"remove","path":"/metadata/ownerReferences"}]',
    )
    api.wait(
        "the owner to be back",
        lambda: "ownerReferences" in api.get("PersistentVolumeClaim", "workspace-one", where)["metadata"],
        10,
    )


def _uid(api, kind, name, namespace):
    found = [one for one in api.list(kind, namespace) if one["metadata"]["name"] == name]
    return found[0]["metadata"]["uid"] if found else ""


def _labels_right(api, namespace):
    labels = api.get("Pod", "one", namespace)["metadata"]["labels"]
    return labels.get("sandfleet.io/component") == "sandbox" and "sandfleet.io/egress-class" not in labels


def test_a_retained_workspace_outlives_its_sandbox_and_the_next_of_its_name_has_it(sandboxes, bed):
    sandboxes.create("one", workspace={"retention": "Retain"})
    sandboxes.ready("one")
    write(sandboxes, "one", "kept", "4")
    sandboxes.delete("one")
    bed.cluster.api.wait("the pod to go", lambda: sandboxes.pod("one") is None, 60)
    time.sleep(1)
    assert sandboxes.count("PersistentVolumeClaim") == 1
    sandboxes.create("one")
    sandboxes.ready("one")
    assert read(sandboxes, "one", "kept") == "4"


def test_describe_shows_why_in_a_few_events(sandboxes):
    sandboxes.create("one")
    sandboxes.ready("one")
    shown = sandboxes.cluster.kubectl("describe", "csb", "one", "-n", sandboxes.namespace)
    events = shown[shown.index("Events:") :]
    assert "ExecutorAnswers" in events
    assert len(events.splitlines()) < 10


def test_kubectl_wait_knows_when_it_is_ready(sandboxes):
    sandboxes.create("one")
    arguments = ("wait", "--for=condition=Ready", "csb/one", "-n", sandboxes.namespace, "--timeout=60s")
    assert "condition met" in sandboxes.cluster.kubectl(*arguments)


def test_a_sandbox_that_is_not_ready_is_not_waited_for_in_vain(sandboxes):
    sandboxes.create("one", template="no-such")
    sandboxes.wait("one", "TemplateNotFound")
    with pytest.raises(ClusterError):
        sandboxes.cluster.kubectl("wait", "--for=condition=Ready", "csb/one", "-n", sandboxes.namespace, "--timeout=1s")
