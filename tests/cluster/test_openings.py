"""Policies of others on the real cluster: what they open is open, and the status says so."""

import json

import pytest
from cluster.harness.testing import Probe, probe_pod
from cluster.operators import Sandboxes, operator, template

OTHERS = "allow-all"


def opening(namespace):
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]}
    meta = {"namespace": namespace, "name": OTHERS}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


@pytest.fixture
def work(executor_image, kinds, tmp_path):
    """The sandboxes of an operator's namespace, which has a second template that demands closure."""
    with operator(executor_image, tmp_path) as process:
        process.start()
        made = Sandboxes(executor_image, process.namespaces[0])
        executor_image.api.create(template(made.namespace, "closed", networkClosure="Required"))
        yield made


def probe_in(cluster, namespace):
    """A pod that is no sandbox, to dial from."""
    cluster.run_pod(probe_pod(namespace, "dialler", ["serve", "7000"]))
    probe = Probe(cluster.api.get("Pod", "dialler", namespace)["status"]["podIP"])

    def answers():
        try:
            return probe.heard() is not None
        except OSError:
            return False

    cluster.api.wait("the probe", answers, 30)
    return probe


def test_isolated_names_the_policy_that_opens_the_sandbox(work, new_namespace):
    api, cluster = work.cluster.api, work.cluster
    work.create("demo")
    status = work.ready("demo")
    probe, target = probe_in(cluster, new_namespace()), f"tcp:{status['address']}"
    assert not probe.dial([target])[target]
    api.create(opening(work.namespace))
    message = work.wait("demo", "OpenedByOthers", "Isolated")
    assert OTHERS in message
    assert work.said("demo")[0] == "True"
    # It is the truth: a pod of another namespace reaches the executor's port now.
    api.wait("the port to be open", lambda: probe.dial([target])[target], 30)
    api.delete("NetworkPolicy", OTHERS, work.namespace)
    work.wait("demo", "Isolated", "Isolated")
    api.wait("the port to be closed", lambda: not probe.dial([target])[target], 30)


def test_where_the_template_demands_closure_nothing_starts_until_the_policy_is_gone(work):
    api = work.cluster.api
    api.create(opening(work.namespace))
    work.create("strict", templateRef={"name": "closed"})
    work.create("lenient")
    work.wait("strict", "OpenedByOthers")
    work.ready("lenient")
    assert work.pod("strict") is None, json.dumps(work.get("strict")["status"])
    api.delete("NetworkPolicy", OTHERS, work.namespace)
    work.ready("strict")
    assert work.said("strict", "Isolated")[1] == "Isolated"
