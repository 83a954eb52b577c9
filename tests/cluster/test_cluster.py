"""The cluster is a real one: what the tests of the product rely on is looked at here first."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.harness import base_image, images
from cluster.harness.api import ApiError
from cluster.harness.layout import ClusterError, cache
from cluster.harness.processes import alive, wait_until
from cluster.harness.progress import timed
from cluster.harness.testing import RESTRICTED, Cluster, Probe, probe_pod

GVISOR = {"runtimeClassName": "gvisor"}
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}


def shell(namespace: str, name: str, script: str, **spec: object) -> dict[str, object]:
    container = {"command": ["/bin/sh", "-c", script], **spec.pop("container", {})}
    return probe_pod(namespace, name, container=container, **spec)


def finished(cluster: Cluster, namespace: str, name: str) -> str:
    """The pod's log, once it has succeeded."""

    def over() -> bool:
        phase = cluster.api.get("Pod", name, namespace)["status"].get("phase")
        assert phase != "Failed", cluster.kubectl("logs", "-n", namespace, name)
        return phase == "Succeeded"

    cluster.api.wait(f"the end of pod {name}", over, 60)
    return cluster.kubectl("logs", "-n", namespace, name)


@pytest.mark.parametrize(("runtime", "sandboxed"), [(GVISOR, True), ({}, False)], ids=["gvisor", "runc"])
def test_a_pod_of_the_runtime_class_gvisor_runs_in_gvisor_and_another_does_not(
    cluster: Cluster, new_namespace: Callable[..., str], runtime: dict[str, str], sandboxed: bool
):
    namespace = new_namespace(ENFORCED)
    # The node's own kernel does not let this user read its log.
    script = "cat /proc/version; dmesg || true"
    cluster.api.create(shell(namespace, "look", script, restartPolicy="Never", **runtime))
    log = finished(cluster, namespace, "look")
    assert ("gvisor" in log) is sandboxed
    assert ("Starting gVisor" in log) is sandboxed


def test_a_namespace_that_enforces_restricted_refuses_a_privileged_pod(
    cluster: Cluster, new_namespace: Callable[..., str]
):
    privileged = {"securityContext": {"privileged": True}}
    with pytest.raises(ApiError, match="violates PodSecurity") as refusal:
        cluster.api.create(probe_pod(new_namespace(ENFORCED), "privileged", container=privileged))
    assert refusal.value.status == 403
    cluster.api.create(probe_pod(new_namespace(), "privileged", container=privileged))


def test_a_volume_survives_its_pod(cluster: Cluster, namespace: str):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
    metadata = {"name": "work", "namespace": namespace}
    cluster.api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/workspace"}]}
    volume = {"volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}]}
    word = secrets.token_hex(8)
    write = shell(
        namespace, "first", f"echo {word} > /workspace/file", restartPolicy="Never", container=mount, **volume, **GVISOR
    )
    cluster.api.create(write)
    finished(cluster, namespace, "first")
    cluster.api.delete("Pod", "first", namespace, grace=0)
    read = shell(namespace, "second", "cat /workspace/file", restartPolicy="Never", container=mount, **volume, **GVISOR)
    cluster.api.create(read)
    assert finished(cluster, namespace, "second").strip() == word


def test_a_service_is_found_by_its_name_and_answers(cluster: Cluster, namespace: str):
    server = probe_pod(namespace, "server", ["serve", "7000", "tcp:8080"], labels={"app": "server"}, **GVISOR)
    cluster.run_pod(server)
    spec = {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}
    metadata = {"name": "web", "namespace": namespace}
    cluster.api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    client = cluster.run_pod(probe_pod(namespace, "client", ["serve", "7000"], **GVISOR))
    probe = Probe(client["status"]["podIP"])
    target, unknown = (f"tcp:{name}.{namespace}.svc.cluster.local:80" for name in ("web", "unknown"))
    cluster.api.wait("the service", lambda: probe.dial([target], 3000)[target], 20)
    assert probe.dial([target, unknown], 3000) == {target: True, unknown: False}


def test_logs_and_exec_work_in_gvisor(cluster: Cluster, namespace: str):
    cluster.run_pod(shell(namespace, "talk", "echo spoken; sleep 600", **GVISOR))
    assert cluster.kubectl("logs", "-n", namespace, "talk") == "spoken\n"
    inside = ("exec", "-n", namespace, "talk", "-i", "--", "/bin/sh", "-c")
    assert cluster.kubectl(*inside, "cat; id -u", given="heard\n") == "heard\n1000\n"
    with pytest.raises(ClusterError, match="exit code 7"):
        cluster.kubectl(*inside, "exit 7")


@pytest.mark.alone(on="cluster")
@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
def test_the_store_and_the_api_server_can_be_killed_and_come_back_with_everything(
    node: Cluster, namespace: str, name: str
):
    value = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kept", "namespace": namespace},
        "data": {"a": "b"},
    }
    node.api.create(value)
    killed = node.kill(name)
    assert wait_until(lambda: not alive(killed), 10)

    def back() -> bool:
        return node.api.get("ConfigMap", "kept", namespace)["data"] == {"a": "b"} and bool(node.component(name))

    node.api.wait(f"{name} to come back", back, 60)
    assert node.component(name) != killed
    node.run_pod(probe_pod(namespace, "after", **GVISOR))


@pytest.mark.alone(on="cluster")
def test_pods_live_on_when_kubelet_and_containerd_are_killed(node: Cluster, namespace: str):
    before = node.run_pod(shell(namespace, "steady", "echo $$; sleep 600", **GVISOR))
    killed = [node.kill("kubelet"), node.kill("containerd")]
    assert wait_until(lambda: not any(alive(process) for process in killed), 10)
    node.run_pod(probe_pod(namespace, "after", **GVISOR), 90)
    after = node.api.get("Pod", "steady", namespace)
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    assert node.kubectl("exec", "-n", namespace, "steady", "--", "/bin/echo", "here") == "here\n"


def test_an_image_that_buildah_made_runs_in_the_cluster(node: Cluster, namespace: str, tmp_path: Path):
    image = base_image.make(cache(), timed("base image"))
    images.load(node.layout, node.programs["ctr"], base_image.export(cache(), image, tmp_path / "base.tar"))
    script = "import sys, platform; print(sys.version_info[:2], platform.freedesktop_os_release()['VERSION_ID'])"
    container = {"image": image, "command": ["python", "-c", script]}
    node.api.create(probe_pod(namespace, "python", container=container, restartPolicy="Never", **GVISOR))
    assert finished(node, namespace, "python").strip() == "(3, 11) 12"


def test_a_namespace_that_enforces_restricted_accepts_a_pod_without_rights(
    cluster: Cluster, new_namespace: Callable[..., str]
):
    pod = cluster.run_pod(probe_pod(new_namespace(ENFORCED), "modest", **GVISOR))
    assert pod["spec"]["containers"][0]["securityContext"] == RESTRICTED
    assert pod["status"]["phase"] == "Running"
