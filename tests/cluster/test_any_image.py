"""Images that know nothing of the executor, in gVisor pods: tests/images/*.Dockerfile, through operator, fleet and client."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
from cluster.access_bed import an_agent
from cluster.egress_bed import Bed
from cluster.fixtures import helm_of
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, template
from cluster.releases import IMAGE, SANDBOX_IMAGE, Release
from sandfleet import AsyncSandbox
from sandfleet._fleets import port_forward

pytestmark = [pytest.mark.usefixtures("kinds"), pytest.mark.timeout(300)]
TASK, STATIC = "localhost/sandfleet-task:dev", "localhost/sandfleet-static:dev"


@pytest.fixture(scope="module", params=["ImageVolume", "InitContainer"])
def delivery(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def bed(images: Cluster, kinds, program, delivery: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    suffix = secrets.token_hex(4)
    home, work, strict = (f"image-{name}-{suffix}" for name in ("home", "work", "strict"))
    for name, labels in ((home, {}), (work, {}), (strict, RESTRICTED_LABELS)):
        images.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    release = Release(images, helm_of(images, program("helm"), tmp_path_factory.mktemp("image")), f"i-{suffix}", home)
    values = f"settings.watchNamespaces={{{work},{strict}}},crds.enabled=false,admissionPolicy.enabled=false"
    try:
        release.install(
            *IMAGE, *SANDBOX_IMAGE, "--set", f"{values},settings.executor.delivery={delivery}", "--wait"
        )
        for one in (
            template(work, "task", image=TASK),
            template(work, "as-dev", image=TASK, user="4321"),
            template(work, "static", image=STATIC),
            template(work, "misfit", image="localhost/sandfleet-executor:dev", executor="Beside"),
            template(strict, "task", image=TASK),
            template(strict, "static", image=STATIC, user="1234"),
        ):
            images.api.create(one)
        for name in (work, strict):
            for one in an_agent(name):
                images.kubectl("apply", "-f", "-", given=json.dumps(one))
        yield Bed(release, work, strict)
        images.kubectl("delete", "csb", "--all", "-n", work)
        images.api.wait("the pods to be gone", lambda: not images.api.list("Pod", work), 60)
        release.uninstall()
    finally:
        for name in (work, strict, home):
            images.api.delete("Namespace", name)


@pytest.fixture
async def created(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator:
    """Makes a sandbox of a template."""
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    made: list[AsyncSandbox] = []

    async def create(name: str, namespace: str = bed.work, **options) -> AsyncSandbox:
        made.append(await AsyncSandbox.create(name, namespace=namespace, max_wait=90, **options))
        return made[-1]

    yield create
    for one in made:
        await one.kill()
    port_forward.stop()


async def test_an_image_with_a_project_runs_as_it_is(created) -> None:
    sandbox = await created("task")
    said = await sandbox.commands.run("id -u; pwd; echo $GREETING; cd /testbed && python3 -S test_task.py; head -1 /etc/os-release")
    assert said.stdout == 'x', said
