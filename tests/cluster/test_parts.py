"""The other parts that tests are given: S3, nodes that pretend, a network that fails, helm and kubectl."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from cluster.harness.chaos import Chaos
from cluster.harness.fake_nodes import PLACEMENT
from cluster.harness.layout import TESTKIT_IMAGE, ClusterError
from cluster.harness.s3 import S3, Account
from cluster.harness.testing import Cluster, Probe, probe_pod


def client(server: S3, account: Account) -> Any:
    settings = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": account.access_key, "aws_secret_access_key": account.secret_key}
    return boto3.client("s3", endpoint_url=server.endpoint, region_name=server.region, config=settings, **keys)


@pytest.fixture
def bucket(s3: S3, request: pytest.FixtureRequest) -> str:
    name = "bucket-" + str(abs(hash(request.node.name)))
    client(s3, s3.root).create_bucket(Bucket=name)
    return name


def refused(call: Callable[..., object], **arguments: object) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return str(error.value.response["Error"]["Code"])


def test_a_conditional_create_writes_an_object_only_once(s3: S3, bucket: str):
    one = client(s3, s3.root)
    one.put_object(Bucket=bucket, Key="lock", Body=b"first", IfNoneMatch="*")
    assert refused(one.put_object, Bucket=bucket, Key="lock", Body=b"second", IfNoneMatch="*") == "PreconditionFailed"
    assert one.get_object(Bucket=bucket, Key="lock")["Body"].read() == b"first"


def test_a_conditional_replace_needs_the_version_that_was_read(s3: S3, bucket: str):
    one = client(s3, s3.root)
    tag = one.put_object(Bucket=bucket, Key="head", Body=b"1")["ETag"]
    one.put_object(Bucket=bucket, Key="head", Body=b"2", IfMatch=tag)
    assert refused(one.put_object, Bucket=bucket, Key="head", Body=b"3", IfMatch=tag) == "PreconditionFailed"
    assert one.get_object(Bucket=bucket, Key="head")["Body"].read() == b"2"


def test_versions_are_kept(s3: S3, bucket: str):
    one = client(s3, s3.root)
    one.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = one.put_object(Bucket=bucket, Key="note", Body=b"old")["VersionId"]
    one.put_object(Bucket=bucket, Key="note", Body=b"new")
    assert one.get_object(Bucket=bucket, Key="note")["Body"].read() == b"new"
    assert one.get_object(Bucket=bucket, Key="note", VersionId=first)["Body"].read() == b"old"


def test_a_user_sees_only_their_own_bucket(s3: S3, bucket: str):
    alice, bob = s3.user("alice"), s3.user("bob")
    s3.give_bucket(bucket, alice)
    client(s3, alice).put_object(Bucket=bucket, Key="secret", Body=b"1")
    assert refused(client(s3, bob).get_object, Bucket=bucket, Key="secret") == "AccessDenied"
    assert (
        refused(client(s3, Account("alice", "wrong")).get_object, Bucket=bucket, Key="secret")
        == "SignatureDoesNotMatch"
    )


def test_a_pod_reaches_the_s3_server(node: Cluster, s3: S3, namespace: str):
    pod = node.run_pod(probe_pod(namespace, "asker", ["serve", "7000"], runtimeClassName="gvisor"))
    script = f"wget -q -O- {s3.endpoint}/health && echo reached"
    container = {"command": ["/bin/sh", "-c", script]}
    node.api.create(
        probe_pod(namespace, "client", container=container, restartPolicy="Never", runtimeClassName="gvisor")
    )
    node.api.wait("the answer", lambda: node.api.get("Pod", "client", namespace)["status"]["phase"] == "Succeeded", 30)
    assert node.kubectl("logs", "-n", namespace, "client").endswith("reached\n")
    assert pod["spec"]["runtimeClassName"] == "gvisor"


def test_two_hundred_pretended_nodes_run_pods_that_start_as_slowly_as_real_ones(
    cluster: Cluster, namespace: str, fake_nodes: Callable[[int], None]
):
    fake_nodes(200)
    began = time.monotonic()
    for number in range(50):
        pod = probe_pod(namespace, f"pod-{number}", **PLACEMENT)
        cluster.api.create(pod)

    def placed() -> list[dict[str, Any]]:
        return [pod for pod in cluster.api.list("Pod", namespace) if pod["status"]["phase"] == "Running"]

    cluster.api.wait("the pretended pods", lambda: len(placed()) == 50, 60)
    assert time.monotonic() - began > 0.8
    assert all(pod["spec"]["nodeName"].startswith("fake-") for pod in placed())
    assert len({pod["status"]["podIP"] for pod in placed()}) == 50
    for number in range(50):
        cluster.api.delete("Pod", f"pod-{number}", namespace)
    cluster.api.wait("them to go", lambda: not cluster.api.list("Pod", namespace), 60)


def test_pods_that_do_not_ask_for_it_are_not_placed_on_pretended_nodes(
    node: Cluster, namespace: str, fake_nodes: Callable[[int], None]
):
    fake_nodes(3)
    pod = node.run_pod(probe_pod(namespace, "real", ["serve", "7000"]))
    assert not pod["spec"]["nodeName"].startswith("fake-")
    assert Probe(pod["status"]["podIP"]).heard() == {}


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server on this machine that sends everything back."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(4096):
                        connection.sendall(data)
                except OSError:
                    return

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_a_proxy_delays_cuts_swallows_and_heals(chaos: Chaos, echo: int):
    proxy = chaos.proxy("127.0.0.1", echo)
    with socket.create_connection((proxy.host, proxy.port), timeout=5) as line:
        line.sendall(b"one")
        assert line.recv(10) == b"one"
        proxy.delay(0.3)
        began = time.monotonic()
        line.sendall(b"two")
        assert line.recv(10) == b"two"
        assert time.monotonic() - began >= 0.6
        proxy.heal()
        proxy.black_hole()
        line.sendall(b"three")
        line.settimeout(0.3)
        with pytest.raises(TimeoutError):
            line.recv(10)
        proxy.heal()
        line.settimeout(5)
        assert line.recv(10) == b"three"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            line.recv(10)
    proxy.cut(refuse=True)
    with pytest.raises(ConnectionResetError), socket.create_connection((proxy.host, proxy.port), timeout=5) as line:
        line.sendall(b"four")
        line.recv(10)
    proxy.heal()
    with socket.create_connection((proxy.host, proxy.port), timeout=5) as line:
        line.sendall(b"five")
        assert line.recv(10) == b"five"


CHART = {
    "Chart.yaml": "apiVersion: v2\nname: tiny\nversion: 0.1.0\n",
    "templates/pod.yaml": json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}", "namespace": "{{ .Release.Namespace }}"},
            "data": {"image": TESTKIT_IMAGE, "kubernetes": "{{ .Capabilities.KubeVersion.Minor }}"},
        }
    ),
}


def test_helm_installs_and_removes_a_chart(
    cluster: Cluster, namespace: str, helm: Callable[..., str], kubectl: Callable[..., str], tmp_path: Path
):
    chart = tmp_path / "tiny"
    for name, content in CHART.items():
        (chart / name).parent.mkdir(parents=True, exist_ok=True)
        (chart / name).write_text(content)
    helm("install", "tiny", str(chart), "--namespace", namespace, "--wait")
    data = json.loads(kubectl("get", "configmap", "tiny", "-n", namespace, "-o", "json"))["data"]
    assert data["kubernetes"] == json.loads(kubectl("version", "-o", "json"))["serverVersion"]["minor"]
    helm("uninstall", "tiny", "--namespace", namespace, "--wait")
    with pytest.raises(ClusterError, match="not found"):
        kubectl("get", "configmap", "tiny", "-n", namespace)
