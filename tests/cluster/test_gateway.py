"""The release's gateway, reached from outside by a real port-forward under a user's own rights."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.access_bed import a_grant, an_agent, an_object
from cluster.fixtures import helm_of
from cluster.harness.api import has_condition
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, sandbox, template
from cluster.releases import IMAGE, SANDBOX_IMAGE, Release
from sandfleet import AsyncSandbox
from sandfleet._fleets import cluster as found_by
from sandfleet._fleets import port_forward
from sandfleet.errors import AccessDenied

pytestmark = [pytest.mark.usefixtures("kinds"), pytest.mark.timeout(300)]
# What `create token` needs, which Kubernetes' own role edit has.
TOKENS = [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]


class Bed:
    """A release, a namespace with a sandbox `one`, and the kubeconfig of a user who may no more than a user may."""

    def __init__(self, release: Release, work: str, kubeconfig: Path) -> None:
        self.release, self.work, self.kubeconfig = release, work, kubeconfig
        self.cluster = release.cluster

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "SANDFLEET_KUBECTL": str(self.cluster.programs["kubectl"]),
            "SANDFLEET_NAMESPACE": self.release.namespace,
            "SANDFLEET_SERVICE_ACCOUNT": "agent",
            # This machine reaches pods; a laptop does not.
            "SANDFLEET_CONNECT": found_by.TUNNEL,
        }

    def apply(self, *objects: dict) -> None:
        self.cluster.kubectl(
            "apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def gateway(self) -> dict:
        """Its pod, once it is ready."""
        labels = f"app.kubernetes.io/component=gateway,app.kubernetes.io/instance={self.release.name}"
        found: list[dict] = []

        def ready() -> bool:
            said = self.cluster.kubectl("get", "pods", "-n", self.release.namespace, "-l", labels, "-o", "json")
            live = [one for one in json.loads(said)["items"] if "deletionTimestamp" not in one["metadata"]]
            found[:] = [one for one in live if has_condition(one, "Ready")]
            return bool(found)

        self.cluster.api.wait("the gateway", ready, 60)
        return found[0]

    def ready(self) -> None:
        api = self.cluster.api
        api.wait("the sandbox", lambda: has_condition(api.get("CodeSandbox", "one", self.work), "Ready"), 90)


@pytest.fixture(scope="module")
def bed(images: Cluster, kinds, program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder, suffix = tmp_path_factory.mktemp("gateway"), time.time_ns() % 10**9
    home, work = f"gateway-home-{suffix}", f"gateway-work-{suffix}"
    for name, labels in ((home, {}), (work, RESTRICTED_LABELS)):
        images.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    release = Release(images, helm_of(images, program("helm"), folder), f"box-{suffix}", home)
    try:
        values = f"settings.watchNamespaces={{{work}}},crds.enabled=false,admissionPolicy.enabled=false"
        release.install(*IMAGE, *SANDBOX_IMAGE, "--set", values, "--wait")
        made = Bed(release, work, _kubeconfig(release, work, folder))
        images.api.create(template(work))
        images.api.create(sandbox(work, "one"))
        made.ready()
        yield made
        images.kubectl("delete", "csb", "--all", "-n", work)
        images.api.wait("the pods to be gone", lambda: not images.api.list("Pod", work), 60)
        release.uninstall()
    finally:
        for name in (work, home):
            images.api.delete("Namespace", name)


def _kubeconfig(release: Release, work: str, folder: Path) -> Path:
    """Of the account `laptop`: the chart's role for people outside, and tokens of the namespace's agent."""
    laptop = (work, "laptop")
    remote = an_object("rbac.authorization.k8s.io/v1", "RoleBinding", "laptop", release.namespace)
    remote["roleRef"] = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": f"{release.prefix}-remote",
    }
    remote["subjects"] = [{"kind": "ServiceAccount", "namespace": work, "name": "laptop"}]
    objects = [an_object("v1", "ServiceAccount", "laptop", work), remote, *an_agent(work)]
    objects += a_grant("", "tokens", TOKENS, laptop, work)
    kubectl = release.cluster.kubectl
    kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    token = kubectl("create", "token", "laptop", "-n", work).strip()
    config["users"] = [{"name": "laptop", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "laptop"
    path = folder / "laptop.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def outside(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    yield
    port_forward.stop()


def forwards() -> set[str]:
    """The port-forwards that run on this machine."""
    said = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in said.splitlines() if " port-forward --namespace gateway-home" in line}


def test_a_script_runs_in_a_sandbox_of_the_cluster_and_leaves_no_port_forward(bed: Bed, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import os, sys\nprint(6 * 7, os.uname().sysname, sys.argv[1:])\nsys.exit(3)\n")
    command = [sys.executable, "-m", "sandfleet", "run", "--sandbox", f"{bed.work}/one", str(script), "--", "a"]
    environment = {**os.environ, **bed.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (3, "42 Linux ['a']\n"), done.stderr
    assert forwards() == set()


async def test_cells_files_and_ports_work_and_the_sandbox_is_gvisors(bed: Bed, outside: None) -> None:
    data = os.urandom(8 << 20)
    async with await AsyncSandbox.connect(f"{bed.work}/one") as one:
        assert (await one.get_info()).isolation == "gvisor"
        await one.files.write("data", data)
        assert await one.files.read("data", format="bytes") == data
        handle = await one.commands.run("python3 -um http.server 8000", background=True)
        async with await one.forward(8000) as forward:
            async with asyncio.timeout(30):
                while b"200 OK" not in (said := await headers(forward.local_port)):
                    await asyncio.sleep(0.1)
            assert f"Content-Length: {len(data)}".encode() in said
        await handle.kill()


async def headers(port: int) -> bytes:
    """What a web server says of the file; nothing while it does not listen yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"HEAD /data HTTP/1.0\r\n\r\n")
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_a_claim_works_from_outside_and_its_pod_may_be_replaced(bed: Bed, outside: None) -> None:
    async with await AsyncSandbox.create("python", namespace=bed.work, max_wait=90) as made:
        assert (await made.run_code("kept = 6 * 7; kept")).text == "42"
    async with await AsyncSandbox.connect(f"{bed.work}/one", rpc_timeout=90.0) as one:
        assert (await one.run_code("1 + 1")).text == "2"
        before = bed.cluster.api.get("CodeSandbox", "one", bed.work)["status"]["podUID"]
        await asyncio.to_thread(bed.cluster.kubectl, "delete", "pod", "one", "-n", bed.work, "--now")
        assert (await one.run_code("2 + 2")).text == "4"
        assert bed.cluster.api.get("CodeSandbox", "one", bed.work)["status"]["podUID"] != before


async def test_the_gateway_may_be_replaced_in_the_middle(bed: Bed, outside: None) -> None:
    heard: list[str] = []
    async with await AsyncSandbox.connect(f"{bed.work}/one", rpc_timeout=90.0) as one:
        code = "import time\nfor n in range(60): print(n, flush=True); time.sleep(0.25)"
        running = asyncio.ensure_future(one.run_code(code, on_stdout=heard.append))
        while not heard:
            await asyncio.sleep(0.1)
        name = (await asyncio.to_thread(bed.gateway))["metadata"]["name"]
        await asyncio.to_thread(bed.cluster.kubectl, "delete", "pod", name, "-n", bed.release.namespace, "--wait=false")
        execution = await running
        assert execution.outcome == "ok"
        assert execution.logs.stdout.split() == [str(number) for number in range(60)]


def test_the_gateways_port_is_on_its_pods_loopback_alone(bed: Bed) -> None:
    """From the node, which every policy permits. Control: the port of its probes answers."""
    address = bed.gateway()["status"]["podIP"]
    socket.create_connection((address, 8081), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, 8444), 5)


async def test_a_right_that_is_taken_ends_an_open_connection(bed: Bed, outside: None) -> None:
    """Runs last: the agent loses its right."""
    async with await AsyncSandbox.connect(f"{bed.work}/one") as one:
        code = "import time\nfor n in range(200): print(n, flush=True); time.sleep(0.5)"
        heard: list[str] = []
        running = asyncio.ensure_future(one.run_code(code, on_stdout=heard.append))
        while not heard:
            await asyncio.sleep(0.1)
        await asyncio.to_thread(bed.cluster.kubectl, "delete", "rolebinding", "agent", "-n", bed.work)
        began = time.monotonic()
        execution = await running
        assert (execution.outcome, execution.reason) == ("lost", "Forbidden")
        with pytest.raises(AccessDenied):
            await one.run_code("1 + 1")
        # A check every 15 s, and a right is remembered for 10 s.
        assert time.monotonic() - began < 40
