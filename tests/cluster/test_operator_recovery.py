"""What the operator does when something ends, breaks or is changed behind its back, on the real cluster."""

import contextlib
import subprocess
import time

from cluster.harness.layout import ClusterError
from cluster.operators import in_container, kill_container, read, write


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


def test_a_sandbox_that_crashes_repeatedly_is_given_up_and_says_so(sandboxes, bed):
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


def test_the_lifetime_ends_a_sandbox_for_good(sandboxes):
    sandboxes.create("one", lifetimeSeconds=15)
    sandboxes.cluster.api.wait("a pod", lambda: sandboxes.pod("one") is not None, 15)
    sandboxes.wait("one", "LifetimeOver", "Expired", 60)
    sandboxes.cluster.api.wait("the pod to go", lambda: sandboxes.pod("one") is None, 60)
    time.sleep(2)
    assert sandboxes.pod("one") is None


def test_an_unused_sandbox_expires(sandboxes):
    sandboxes.create("one", idleTimeoutSeconds=5)
    sandboxes.ready("one")
    sandboxes.wait("one", "IdleTimeoutOver", "Expired", 60)


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
