"""Hosts by name from gVisor pods: the chart's egress process, Services and policies of a real cluster."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster.access_bed import an_object
from cluster.fixtures import helm_of
from cluster.harness.api import has_condition
from cluster.harness.testing import Cluster
from cluster.operators import IMAGE as EXECUTOR
from cluster.operators import RESTRICTED_LABELS, Sandboxes, python, template
from cluster.releases import IMAGE, SANDBOX_IMAGE, Release

pytestmark = [pytest.mark.usefixtures("kinds"), pytest.mark.timeout(300)]
PORT = 8080
# Asks for a page as any program does that knows the variables of the session. Prints the status and the first line.
ASK = """
import urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"}))
try:
    answer = opener.open(URL, timeout=20)
    print(answer.status, answer.read(20).decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode().strip())
except OSError as error:
    print("nothing", error)
"""
# Speaks with the egress process as an executor would, without an executor's certificate.
WITHOUT_CERTIFICATE = """
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    with context.wrap_socket(socket.create_connection(ADDRESS, 5)) as tls:
        line = b'{"pod": "NAME"}\\n'
        tls.sendall(len(line).to_bytes(4, "big") + line)
        print("said", tls.recv(100))
except ssl.SSLError as error:
    print("refused", error.reason)
"""


@dataclass
class Bed:
    release: Release
    work: str
    host: str

    @property
    def sandboxes(self) -> Sandboxes:
        return Sandboxes(self.release.cluster, self.work)

    def asked(self, name: str, host: str) -> str:
        return python(self.sandboxes, name, ASK.replace("URL", repr(f"http://{host}:{PORT}/")))


def _page(cluster: Cluster, home: str) -> None:
    """A web server that answers `hello` at web.HOME.svc."""
    program = (
        "import http.server as h\n"
        "class Page(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.send_header('Content-Length', '5'); self.end_headers()\n"
        "        self.wfile.write(b'hello')\n"
        f"h.ThreadingHTTPServer(('', {PORT}), Page).serve_forever()"
    )
    pod = an_object("v1", "Pod", "web", home)
    pod["metadata"]["labels"] = {"app": "web"}
    pod["spec"] = {
        "containers": [
            {
                "name": "web",
                "image": EXECUTOR,
                "command": ["python3", "-c", program],
                "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
            }
        ]
    }
    service = an_object("v1", "Service", "web", home)
    service["spec"] = {"selector": {"app": "web"}, "ports": [{"port": PORT}]}
    cluster.api.create(pod)
    cluster.api.create(service)
    cluster.api.wait("the page", lambda: has_condition(cluster.api.get("Pod", "web", home), "Ready"), 60)


@pytest.fixture(scope="module")
def bed(images: Cluster, kinds, program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    suffix = secrets.token_hex(4)
    home, work = f"egress-home-{suffix}", f"egress-work-{suffix}"
    for name, labels in ((home, {}), (work, RESTRICTED_LABELS)):
        images.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    folder = tmp_path_factory.mktemp("egress")
    release = Release(images, helm_of(images, program("helm"), folder), f"box-{suffix}", home)
    values = f"settings.watchNamespaces={{{work}}},crds.enabled=false,admissionPolicy.enabled=false,egress.enabled=true"
    # The page of the test stands on the cluster's own networks.
    private = "egress.networks={10.0.0.0/8,172.16.0.0/12,192.168.0.0/16}"
    try:
        release.install(*IMAGE, *SANDBOX_IMAGE, "--set", values, "--set", private, "--wait")
        _page(images, home)
        made = Bed(release, work, f"web.{home}.svc.cluster.local")
        images.api.create(template(work, egress={"names": [{"host": made.host, "ports": [PORT]}]}))
        images.api.create(template(work, "closed"))
        yield made
        images.kubectl("delete", "csb", "--all", "-n", work)
        images.api.wait("the pods to be gone", lambda: not images.api.list("Pod", work), 60)
        release.uninstall()
    finally:
        for name in (work, home):
            images.api.delete("Namespace", name)


def test_a_sandbox_reaches_the_hosts_of_its_list_and_loses_them_with_it(bed: Bed) -> None:
    sandboxes, api = bed.sandboxes, bed.release.cluster.api
    sandboxes.create("one")
    sandboxes.create("none", templateRef={"name": "closed"})
    sandboxes.ready("one", 90)
    sandboxes.ready("none", 90)
    assert bed.asked("one", bed.host) == "200 hello\n"
    assert "not in its egress list" in bed.asked("one", "kubernetes.default.svc.cluster.local")
    # A sandbox of a template without hosts has no way out.
    assert bed.asked("none", bed.host).startswith("nothing")
    # It reaches the port of the egress process, and gets nothing there without a certificate.
    service = api.get("Service", "sandfleet-egress", bed.release.namespace)
    code = WITHOUT_CERTIFICATE.replace("ADDRESS", repr((service["spec"]["clusterIP"], 3129)))
    said = python(sandboxes, "none", code.replace("NAME", f"{bed.work}/one"))
    assert said.startswith("refused") or said == "said b''\n", said
    # The list is changed as kubectl would; within a second or two it counts.
    sandboxes.patch("one", {"egress": {"names": []}})
    api.wait("the list to count", lambda: "not in its egress list" in bed.asked("one", bed.host), 15)
    sandboxes.patch("one", {"egress": None})
    api.wait("the list to count again", lambda: bed.asked("one", bed.host) == "200 hello\n", 15)


def test_the_other_replica_serves_when_one_is_gone(bed: Bed) -> None:
    sandboxes, cluster = bed.sandboxes, bed.release.cluster
    sandboxes.create("two")
    sandboxes.ready("two", 90)
    assert bed.asked("two", bed.host) == "200 hello\n"
    labels = f"app.kubernetes.io/component=egress,app.kubernetes.io/instance={bed.release.name}"
    said = cluster.kubectl("get", "pods", "-n", bed.release.namespace, "-l", labels, "-o", "json")
    pods = json.loads(said)["items"]
    assert len(pods) == 2
    cluster.kubectl(
        "delete", "pod", "-n", bed.release.namespace, pods[0]["metadata"]["name"], "--grace-period=0", "--force"
    )
    cluster.api.wait("the other replica", lambda: bed.asked("two", bed.host) == "200 hello\n", 30)
