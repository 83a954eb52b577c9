"""The operator on the real cluster: what people with kubectl see of one sandbox, from its creation to its end."""

import time

from cluster.harness.api import has_condition
from cluster.operators import (
    read,
    write,
)
from sandfleet_operator.plan.scheduler.starts.shares import STARTS_PER_NODE
from support.pod_security import violations


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


def test_a_suspended_sandbox_has_no_pod_and_a_resumed_one_has_its_files(sandboxes, bed):
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


def test_a_retained_workspace_outlives_its_sandbox_and_the_next_one_of_that_name_gets_it(sandboxes, bed):
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


def test_kubectl_wait_knows_when_it_is_ready(sandboxes):
    sandboxes.create("one")
    arguments = ("wait", "--for=condition=Ready", "csb/one", "-n", sandboxes.namespace, "--timeout=60s")
    assert "condition met" in sandboxes.cluster.kubectl(*arguments)


def test_many_that_are_declared_at_once_start_as_many_at_a_time_as_the_node_can(sandboxes):
    names = [f"one-{number}" for number in range(2 * STARTS_PER_NODE)]
    for name in names:
        sandboxes.create(name)
    most, begun = 0, time.monotonic()

    def all_ready() -> bool:
        nonlocal most
        pods = sandboxes.cluster.api.list("Pod", sandboxes.namespace)
        ready = sum(has_condition(one, "Ready") for one in pods)
        most = max(most, len(pods) - ready)
        return ready == len(names)

    sandboxes.cluster.api.wait("all of them to be ready", all_ready, 240)
    print(f"{len(names)} ready after {time.monotonic() - begun:.0f} s, {most} at a time")
    assert most <= STARTS_PER_NODE
