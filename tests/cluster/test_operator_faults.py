"""Faults below the operator: a kubelet that is ended, and a node that is lost, played on pretended nodes."""

import time

import pytest
from cluster.harness.api import has_condition
from cluster.harness.fake_nodes import OUT_OF_SERVICE, TAINT, silence
from cluster.harness.layout import ClusterError
from cluster.harness.processes import alive, wait_until
from cluster.many import PodsOfClaims, fake_template, volumes_by_hand, watched
from cluster.operators import Sandboxes, operator, read, write
from sandfleet_operator.api.kube import CODE_SANDBOX, POD

# Kubernetes' own default is five minutes, for which nothing happens.
MERGE = "application/merge-patch+json"
EVICTED_AFTER = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.alone(on="cluster")
def test_a_sandbox_outlives_a_kubelet_that_is_killed(images, tmp_path):
    said = []

    def saw(_event, obj, _at):
        if obj["metadata"]["name"] == "one":
            said.append((obj["status"]["podUID"], has_condition(obj, "Ready")))

    with operator(images, tmp_path) as one:
        one.start()
        sandboxes = Sandboxes(images, one.namespaces[0])
        sandboxes.create("one")
        first = sandboxes.ready("one")
        write(sandboxes, "one", "kept", "5")
        with watched(images, CODE_SANDBOX, sandboxes.namespace, saw):
            for _ in range(3):
                killed = images.kill("kubelet")
                assert wait_until(lambda killed=killed: not alive(killed), 10)
                assert wait_until(lambda: runs(images, "kubelet"), 30)
            # Only a kubelet that works again starts a pod.
            sandboxes.create("after")
            sandboxes.ready("after", 90)
        again = sandboxes.ready("one")
        assert (again["podUID"], again["restarts"]) == (first["podUID"], 0)
        assert read(sandboxes, "one", "kept") == "5"
        # It may have been unready in between, but in no other pod.
        assert {uid for uid, _ in said} <= {first["podUID"]}


def runs(node, name):
    try:
        return alive(node.component(name))
    except ClusterError:
        return False


@pytest.fixture
def lost(cluster, fake_nodes, tmp_path):
    """A sandbox that is ready on the first of two pretended nodes, its node, and all pods that its workspace had."""
    fake_nodes(2)
    pods = PodsOfClaims()
    tolerations = [{"key": TAINT["key"], "operator": "Exists"}, {**EVICTED_AFTER, "tolerationSeconds": 1}]
    quick = {"recovery": {"nodeGrace": 1.0}}
    with operator(
        cluster, tmp_path / "operator", fake_template(tolerations=tolerations), fakes=True, settings=quick
    ) as one:
        one.start()
        sandboxes = Sandboxes(cluster, one.namespaces[0])
        with volumes_by_hand(sandboxes, ["one"]), watched(cluster, POD, sandboxes.namespace, pods.saw):
            sandboxes.create("one")
            yield sandboxes, sandboxes.ready("one"), pods


def test_a_node_that_does_not_answer_is_waited_for_until_kubernetes_says_that_it_is_out(lost):
    sandboxes, first, pods = lost
    api, node = sandboxes.cluster.api, first["nodeName"]
    silence(api, node)
    # First the silence alone, then Kubernetes' own order to leave, which no kubelet there carries out.
    assert node in sandboxes.wait("one", "NodeNotResponding", seconds=30)
    api.wait("the eviction", lambda: "deletionTimestamp" in sandboxes.pod("one")["metadata"], 30)
    assert "may still run" in wait_for_message(sandboxes, "may still run")
    time.sleep(3)
    assert sandboxes.said("one")[:2] == ("False", "NodeNotResponding")
    assert pods.uids == {"workspace-one": [first["podUID"]]}
    taints = api.get("Node", node)["spec"]["taints"]
    api.call("PATCH", f"api/v1/nodes/{node}", {"spec": {"taints": [*taints, OUT_OF_SERVICE]}}, MERGE)
    # The pod collector looks every 20 seconds.
    again = sandboxes.ready("one", 60, other_than=first["podUID"])
    assert again["nodeName"] != node
    assert [one["reason"] for one in again["restartHistory"]] == ["NodeLost"]
    assert (again["restarts"], again["crashes"]) == (1, 0)
    assert pods.uids == {"workspace-one": [first["podUID"], again["podUID"]]}
    assert pods.most == 1, "two pods had the same workspace"


def wait_for_message(sandboxes, text):
    sandboxes.cluster.api.wait(f"a message with {text!r}", lambda: text in sandboxes.said("one")[2], 20)
    return sandboxes.said("one")[2]


def test_a_pod_that_is_removed_by_force_from_a_lost_node_is_replaced_on_another_one(lost):
    """As an administrator does who knows that the machine is gone."""
    sandboxes, first, pods = lost
    api, node = sandboxes.cluster.api, first["nodeName"]
    silence(api, node)
    sandboxes.wait("one", "NodeNotResponding", seconds=30)
    api.delete("Pod", "one", sandboxes.namespace, grace=0)
    again = sandboxes.ready("one", 60, other_than=first["podUID"])
    assert again["nodeName"] != node
    assert [one["reason"] for one in again["restartHistory"]] == ["NodeLost"]
    assert pods.uids == {"workspace-one": [first["podUID"], again["podUID"]]}
    assert pods.most == 1, "two pods had the same workspace"
