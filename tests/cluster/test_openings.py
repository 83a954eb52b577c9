"""Policies of others on the real cluster: what they open is open, and the status says so."""

import json

import pytest
from cluster.harness.testing import probe_pod
from cluster.operators import Sandboxes, operator, python, template

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


DIAL = """
import socket
try:
    socket.create_connection(TARGET, 2).close()
    print("open")
except OSError:
    print("closed")
"""


def test_isolated_names_the_policy_that_opens_the_sandbox(work, new_namespace):
    api, cluster = work.cluster.api, work.cluster
    server = cluster.run_pod(probe_pod(new_namespace(), "server", ["serve", "7000", "tcp:8080"]))
    work.create("demo")
    work.ready("demo")

    def reaches():
        target = repr((server["status"]["podIP"], 8080))
        return python(work, "demo", DIAL.replace("TARGET", target)).strip() == "open"

    assert not reaches()
    api.create(opening(work.namespace))
    assert OTHERS in work.wait("demo", "OpenedByOthers", "Isolated")
    assert work.said("demo")[0] == "True"
    # It is the truth: code in the sandbox reaches a pod of another namespace now.
    api.wait("the sandbox to be open", reaches, 30)
    api.delete("NetworkPolicy", OTHERS, work.namespace)
    work.wait("demo", "Isolated", "Isolated")
    api.wait("the sandbox to be closed", lambda: not reaches(), 30)


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
