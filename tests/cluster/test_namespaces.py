"""What a namespace needs before a claim binds there, on the real cluster: a template and nothing else."""

import asyncio
import re
import secrets
import shlex

import pytest
from cluster.access_bed import an_agent, fleet_bed
from cluster.harness.layout import REPOSITORY
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, Sandboxes, operator, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet

DENY = "sandfleet-default-deny"
REMOVAL = (REPOSITORY / "docs/howto/install.md").read_text().partition("## Remove it")[2]


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace without any object of ours."""
    api = images.api
    work = f"alone-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made:
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        yield made
        operator.end()
    api.delete("Namespace", work)


@pytest.fixture
async def fleet(bed, tmp_path):
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_text(bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"])
    token.write_text(bed.token(bed.namespaces[0], "agent"))
    made = await AsyncFleet.connect(
        f"127.0.0.1:{bed.port}", namespace=bed.namespaces[0], ca_file=str(ca), token_file=str(token)
    )
    yield made
    await made.close()


async def test_a_claim_of_a_template_without_a_pool_binds_also_after_its_namespace_was_left(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]

    async def until(what, happened, seconds=60):
        await asyncio.to_thread(api.wait, what, happened, seconds)

    for _ in range(2):
        api.create(template(work))
        async with await AsyncSandbox.create(template="python", fleet=fleet, max_wait=90) as one:
            assert (await one.run_code("6 * 7")).text == "42"
            assert api.get("NetworkPolicy", DENY, work)
        await until("the pod to be gone", lambda: not api.list("Pod", work))
        api.delete("SandboxTemplate", "python", work)
        await until("the namespace to be left", lambda: not api.list("NetworkPolicy", work), 90)
        assert "sandfleet-keys" not in {one["metadata"]["name"] for one in api.list("ConfigMap", work)}


def documented(block, namespace):
    """The kubectl commands of a block under "Remove it", for one namespace instead of all."""
    lines = re.findall(r"```bash\n(.*?)```", REMOVAL, re.DOTALL)[block].splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("kubectl ")]
    return [[part.replace("--all-namespaces", f"--namespace={namespace}") for part in one] for one in commands]


def ours(api, namespace):
    """What is left of an installation in a namespace of sandboxes."""
    found = [
        (kind, one["metadata"]["name"])
        for kind in ("NetworkPolicy", "ConfigMap", "Pod", "PersistentVolumeClaim", "SandboxTemplate", "CodeSandbox")
        for one in api.list(kind, namespace)
    ]
    return [one for one in found if one[1] != "kube-root-ca.crt"]


def test_the_documented_removal_leaves_what_it_lists(executor_image, kinds, tmp_path):
    cluster = executor_image
    with operator(cluster, tmp_path) as process:
        process.start()
        work = process.namespaces[0]
        made = Sandboxes(cluster, work)
        made.create("gone")
        made.create("kept", workspace={"retention": "Retain"})
        for name in ("gone", "kept"):
            made.ready(name)
        delete, wait = documented(0, work)
        cluster.kubectl(*delete)
        cluster.kubectl(*wait)
        assert ours(cluster.api, work) == [("PersistentVolumeClaim", "workspace-kept")]
        listing = documented(1, work)[0]
        assert "workspace-kept" in cluster.kubectl(*listing)


def test_what_an_operator_could_not_remove_is_removed_by_the_documented_command(executor_image, kinds, tmp_path):
    cluster = executor_image
    with operator(cluster, tmp_path) as process:
        process.start()
        work = process.namespaces[0]
        policies = [("NetworkPolicy", DENY), ("ConfigMap", "sandfleet-keys")]
        cluster.api.wait("the namespace to be closed", lambda: set(policies) <= set(ours(cluster.api, work)), 60)
        process.end()
        process.process = None
        cluster.kubectl(*documented(0, work)[0])
        assert ours(cluster.api, work) == policies
        cluster.kubectl(*documented(2, work)[0])
        assert ours(cluster.api, work) == []
