"""What a namespace needs before a claim binds there, on the real cluster: a template and nothing else."""

import asyncio
import secrets

import pytest
from cluster.access_bed import an_agent, fleet_bed
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet

DENY = "sandfleet-default-deny"


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
