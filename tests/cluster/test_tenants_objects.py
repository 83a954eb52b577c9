"""Objects that tenants edit and forge, on the real API server: what becomes of them, and of the sandboxes of others."""

import asyncio
import json
import secrets

import pytest
from cluster.access_bed import an_agent, an_object, fleet_bed
from cluster.harness.api import has_condition, path_of
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names

MERGE = "application/merge-patch+json"
RECORD = json.loads(record_text(Record(object="forged", request="r", holder="h", fencing=1, at=1.0, lease=9.0)))


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace with a pool in it."""
    api = images.api
    work = f"tenant-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made:
        made.apply(*an_agent(work))
        made.operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work))
        spec = {"templateRef": {"name": "python"}, "replicas": 1}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=spec))
        api.wait("the pool to be warm", lambda: any(has_condition(one, "Ready") for one in api.list("Pod", work)), 90)
        yield made
        made.operator.end()
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


def broken(work, **fields):
    """A CodeSandbox and a pod of a tenant, with the annotations of the control plane and any JSON in them."""
    claim = json.dumps({**RECORD, **fields})
    made = an_object("sandfleet.io/v1alpha1", "CodeSandbox", "broken", work, spec={"templateRef": {"name": "python"}})
    made["metadata"]["annotations"] = {names.BOUND_POD: "broken/u", names.CLAIM: claim}
    made["spec"]["operatingMode"] = "Suspended"
    closed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "executor", "image": "localhost/nowhere:1", "securityContext": closed}
    spec = {
        "schedulerName": "none",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    pod = an_object("v1", "Pod", "broken", work, spec=spec)
    pod["metadata"]["labels"] = names.own_labels(**{names.STATE: "claimed", names.SANDBOX: "broken"})
    pod["metadata"]["annotations"] = {names.CLAIM: claim}
    return made, pod


def sandbox_of(bed, one):
    return bed.cluster.api.get("CodeSandbox", one.sandbox_id.partition("/")[2], bed.namespaces[0])


def pods_of(bed, one):
    name = one.sandbox_id.partition("/")[2]
    found = bed.cluster.api.list("Pod", bed.namespaces[0])
    return [pod for pod in found if pod["metadata"]["labels"].get(names.SANDBOX) == name]


async def until(bed, what, happened, seconds=60):
    await asyncio.to_thread(bed.cluster.api.wait, what, happened, seconds)


@pytest.mark.parametrize("fields", [{"holder": ["h"]}, {"fencing": "x"}])
async def test_broken_annotations_stop_neither_this_leader_nor_the_next_one(bed, fleet, fields):
    api, work = bed.cluster.api, bed.namespaces[0]
    for obj in broken(work, **fields):
        api.create(obj)
    async with await AsyncSandbox.create(pool="fast", fleet=fleet) as one:
        await asyncio.to_thread(bed.fleet.kill)
        await asyncio.to_thread(bed.fleet.start)
        assert (await one.run_code("6 * 7")).text == "42"
        async with await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=90) as another:
            assert (await another.run_code("6 * 7")).text == "42"
    for kind in ("CodeSandbox", "Pod"):
        api.delete(kind, "broken", work)
    await until(
        bed, "the pod to go", lambda: "broken" not in {one["metadata"]["name"] for one in api.list("Pod", work)}
    )


async def test_lost_annotations_make_no_second_pod(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=90) as one:
        await one.files.write("kept.txt", b"kept")
        await until(bed, "it to be Ready", lambda: has_condition(sandbox_of(bed, one), "Ready"))
        (before,) = pods_of(bed, one)
        lost = {"metadata": {"annotations": dict.fromkeys((names.BOUND_POD, names.CLAIM))}}
        api.call("PATCH", path_of("CodeSandbox", work, one.sandbox_id.partition("/")[2]), lost, MERGE)
        bed.operator.kill()
        bed.operator.bury()
        bed.operator.start()
        await asyncio.to_thread(bed.operator.wait_leading, bed.operator.led + 1)
        await asyncio.to_thread(bed.fleet.kill)
        await asyncio.to_thread(bed.fleet.start)
        # The operator's first round of each sandbox follows its first list.
        async with await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=90) as other:
            await until(bed, "another to be Ready", lambda: has_condition(sandbox_of(bed, other), "Ready"))
        assert [pod["metadata"]["uid"] for pod in pods_of(bed, one)] == [before["metadata"]["uid"]]
        assert await one.files.read("kept.txt") == "kept"
        assert (await one.get_info()).restarts == 0


async def test_an_evicted_pod_costs_no_files_while_the_operator_is_away(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    bed.operator.kill()
    bed.operator.bury()
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=90) as one:
        await one.files.write("kept.txt", b"kept")
        await until(bed, "the binding", lambda: (sandbox_of(bed, one).get("status") or {}).get("binding"))
        (pod,) = pods_of(bed, one)
        workspace = names.workspace_claim_name(pod["metadata"]["name"])
        owners = api.get("PersistentVolumeClaim", workspace, work)["metadata"]["ownerReferences"]
        assert [owner["kind"] for owner in owners] == ["CodeSandbox"]
        await asyncio.to_thread(api.delete, "Pod", pod["metadata"]["name"], work)
        await until(bed, "the pod to go", lambda: not pods_of(bed, one))
        bed.operator.start()
        await until(
            bed,
            "the next pod",
            lambda: has_condition(made := sandbox_of(bed, one), "Ready") and made["status"]["restarts"],
        )
        async with asyncio.timeout(60):
            while (await one.get_info()).restarts == 0:
                await asyncio.sleep(0.5)
        assert await one.files.read("kept.txt") == "kept"
        assert "deletionTimestamp" not in api.get("PersistentVolumeClaim", workspace, work)["metadata"]
