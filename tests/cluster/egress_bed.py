"""A release with an egress process, and a host for its sandboxes to reach: a page, an API with a key, an index."""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import egress_host
from cluster.access_bed import an_agent, an_object
from cluster.egress_host import PORT
from cluster.fixtures import helm_of
from cluster.harness.testing import Cluster
from cluster.operators import IMAGE as EXECUTOR
from cluster.operators import RESTRICTED_LABELS, Sandboxes, python
from cluster.releases import IMAGE, SANDBOX_IMAGE, Release
from support.client import chat
from support.client.internet import node_package, registry_page
from support.operator.egress_bed import certificate
from support.wheels import sdist, wheel

Json = dict[str, Any]
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
# In the pod: a repository of one commit beside the packages, as files, and the program.
SERVE = """
cp -rL /index /tmp/served && mkdir /tmp/served/git /tmp/made && cd /tmp/made
export GIT_AUTHOR_NAME=one GIT_AUTHOR_EMAIL=one@example.com GIT_COMMITTER_NAME=one GIT_COMMITTER_EMAIL=one@example.com
git init -q && echo "from a repository" > words && git add words && git commit -qm first
git clone -q --bare . /tmp/served/git/words.git && git -C /tmp/served/git/words.git update-server-info
exec python3 /program/host.py /tmp/served /tls
"""


@dataclass
class Bed:
    release: Release
    work: str
    host: str

    @property
    def cluster(self) -> Cluster:
        return self.release.cluster

    @property
    def sandboxes(self) -> Sandboxes:
        return Sandboxes(self.cluster, self.work)

    @property
    def environment(self) -> dict[str, str]:
        """By which a client finds the release's fleet."""
        return {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "SANDFLEET_KUBECTL": str(self.cluster.programs["kubectl"]),
            "SANDFLEET_NAMESPACE": self.release.namespace,
            "SANDFLEET_SERVICE_ACCOUNT": "agent",
        }

    def asked(self, name: str, host: str) -> str:
        return python(self.sandboxes, name, ASK.replace("URL", repr(f"http://{host}:{PORT}/")))

    def pods(self, component: str) -> list[Json]:
        """The pods of a component of the release."""
        labels = f"app.kubernetes.io/component={component},app.kubernetes.io/instance={self.release.name}"
        said = self.cluster.kubectl("get", "pods", "-n", self.release.namespace, "-l", labels, "-o", "json")
        found: list[Json] = json.loads(said)["items"]
        return found

    def secret(self, name: str, value: str | None) -> None:
        """Writes a Secret of the sandboxes' namespace, or removes it."""
        if value is None:
            self.cluster.api.delete("Secret", name, self.work)
            return
        made = an_object("v1", "Secret", name, self.work, stringData={"token": value})
        self.cluster.kubectl("apply", "-f", "-", given=json.dumps(made))


def _host(cluster: Cluster, home: str, name: str) -> None:
    """The pod `web` and its Service, and the ConfigMap `authorities` by which the egress process trusts it."""
    with tempfile.TemporaryDirectory() as folder:
        _, _, authority = certificate(folder, name)
        tls = {"server.pem": (Path(folder) / "server.pem").read_text()}
        public = authority.read_text()
        node_package(folder, "greeting")
        archive = (Path(folder) / "npm/greeting-1.0.0.tgz").read_bytes()
    page = registry_page("greeting", archive, f"https://{name}:{egress_host.TLS_PORT}/npm/greeting-1.0.0.tgz")
    files = {
        "simple/outside/outside-1.0-py3-none-any.whl": wheel("outside", "1.0", value="from a wheel"),
        "simple/inside/inside-1.0.tar.gz": sdist("inside", "1.0", value="from a source"),
        "npm/greeting": page,
        "npm/greeting-1.0.0.tgz": archive,
    }
    index = {Path(path).name: base64.b64encode(data).decode() for path, data in files.items()}
    programs = {"host.py": egress_host.__file__, "support/client/chat.py": chat.__file__}
    texts = {Path(path).name: Path(file).read_text() for path, file in programs.items()}
    cluster.api.create(an_object("v1", "Secret", "web", home, stringData=tls))
    cluster.api.create(an_object("v1", "ConfigMap", "authorities", home, data={"ca.crt": public}))
    cluster.api.create(an_object("v1", "ConfigMap", "web", home, binaryData=index, data=texts))
    of_index, of_program = ([{"key": Path(path).name, "path": path} for path in paths] for paths in (files, programs))
    volumes = [
        {"name": "tls", "secret": {"secretName": "web"}},
        {"name": "program", "configMap": {"name": "web", "items": of_program}},
        {"name": "index", "configMap": {"name": "web", "items": of_index}},
    ]
    pod = an_object("v1", "Pod", "web", home)
    pod["metadata"]["labels"] = {"app": "web"}
    container = {
        "name": "web",
        "image": EXECUTOR,
        "command": ["sh", "-ec", SERVE],
        "volumeMounts": [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    pod["spec"] = {"containers": [container], "volumes": volumes}
    service = an_object("v1", "Service", "web", home)
    ports = [{"name": f"p{port}", "port": port} for port in (PORT, egress_host.TLS_PORT)]
    service["spec"] = {"selector": {"app": "web"}, "ports": ports}
    cluster.api.create(service)
    cluster.run_pod(pod)


@contextmanager
def egress_bed(images: Cluster, helm: Path, folder: Path) -> Iterator[Bed]:
    """A release whose egress process may lead to the cluster's own networks, on which the host of the test stands."""
    suffix = secrets.token_hex(4)
    home, work = f"egress-home-{suffix}", f"egress-work-{suffix}"
    for name, labels in ((home, {}), (work, RESTRICTED_LABELS)):
        images.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    host = f"web.{home}.svc.cluster.local"
    release = Release(images, helm_of(images, helm, folder), f"box-{suffix}", home)
    values = f"settings.watchNamespaces={{{work}}},crds.enabled=false,admissionPolicy.enabled=false,egress.enabled=true"
    more = f"egress.networks={{10.0.0.0/8,172.16.0.0/12,192.168.0.0/16}},egress.secrets.{work}={{api}}"
    try:
        _host(images, home, host)
        release.install(
            *IMAGE, *SANDBOX_IMAGE, "--set", values, "--set", f"{more},egress.authorities=authorities", "--wait"
        )
        for one in an_agent(work):
            images.kubectl("apply", "-f", "-", given=json.dumps(one))
        yield Bed(release, work, host)
        images.kubectl("delete", "csb", "--all", "-n", work)
        images.api.wait("the pods to be gone", lambda: not images.api.list("Pod", work), 60)
        release.uninstall()
    finally:
        for name in (work, home):
            images.api.delete("Namespace", name)
