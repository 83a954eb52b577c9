"""Young claims on the real cluster: only pods at first, objects when they are older or their pods end (ADR 36)."""

import asyncio
import json
import secrets

import pytest
from cluster.access_bed import an_agent, an_object, fleet_bed
from cluster.harness.api import has_condition
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main

POOL = 2
# Longer than any test, however busy the machine is.
YOUNG = {"youngClaimSeconds": 3600.0}


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace, with a pool without volumes whose claims stay young."""
    api, work = images.api, f"young-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,), settings=YOUNG) as made:
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work, workspace={"size": "64Mi", "ephemeral": True}))
        spec = {"templateRef": {"name": "python"}, "replicas": POOL}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=spec))
        api.wait("the pool to be warm", lambda: settled(made), 90)
        yield made
        operator.end()
    api.delete("Namespace", work)


@pytest.fixture
def place(bed, tmp_path):
    """Address, CA and token of the fleet."""
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_text(bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"])
    token.write_text(bed.token(bed.namespaces[0], "agent"))
    return f"127.0.0.1:{bed.port}", str(ca), str(token)


@pytest.fixture
async def fleet(bed, place):
    address, ca, token = place
    made = await AsyncFleet.connect(address, namespace=bed.namespaces[0], ca_file=ca, token_file=token)
    yield made
    await made.close()


def settled(bed):
    """Warm pods, and nothing else."""
    pods = bed.cluster.api.list("Pod", bed.namespaces[0])
    warm = [one for one in pods if one["metadata"]["labels"].get("sandfleet.io/state") == "warm"]
    return len(warm) == len(pods) == POOL and all(has_condition(one, "Ready") for one in warm) and not objects(bed)


def objects(bed):
    return [one["metadata"]["name"] for one in bed.cluster.api.list("CodeSandbox", bed.namespaces[0])]


def pod_of(bed, uid):
    pods = bed.cluster.api.list("Pod", bed.namespaces[0])
    return next((one["metadata"] for one in pods if one["metadata"]["uid"] == uid), None)


def version(bed):
    """Of all CodeSandboxes."""
    listed = bed.cluster.api.call("GET", f"apis/sandfleet.io/v1alpha1/namespaces/{bed.namespaces[0]}/codesandboxes")
    return listed["metadata"]["resourceVersion"]


def changes_since(bed, start):
    """The names of CodeSandboxes that have changed since then."""
    where = f"apis/sandfleet.io/v1alpha1/namespaces/{bed.namespaces[0]}/codesandboxes"
    said = bed.cluster.kubectl("get", "--raw", f"/{where}?watch=1&timeoutSeconds=1&resourceVersion={start}")
    return [json.loads(line)["object"]["metadata"]["name"] for line in said.splitlines()]


async def until(bed, what, happened, seconds=90):
    await asyncio.to_thread(bed.cluster.api.wait, what, happened, seconds)


async def shown(fleet):
    """Sandboxes that a new watch reports before it has synced."""
    found = {}
    async for change in fleet.watch():
        if change.kind == "synced":
            break
        found[change.sandbox.sandbox_id] = change.sandbox.state
    return found


async def test_a_young_session_is_only_its_pod_and_leaves_nothing_behind(bed, fleet, place, monkeypatch, capsys):
    start = version(bed)
    async with await AsyncSandbox.create(pool="fast", fleet=fleet) as one:
        assert (await one.run_code("6 * 7")).text == "42"
        info = await one.get_info()
        pod = pod_of(bed, info.sandbox_uid)
        assert (pod["labels"]["sandfleet.io/state"], pod.get("ownerReferences", [])) == ("claimed", [])
        assert objects(bed) == []
        # Lists and watches follow the watch of pods, a moment behind the answer.
        async with asyncio.timeout(30):
            while [each.sandbox_id for each in await fleet.list()] != [info.sandbox_id]:
                await asyncio.sleep(0.1)
        [listed] = await fleet.list()
        assert listed.state == info.state == (await shown(fleet))[info.sandbox_id]
        for name, value in zip(("FLEET", "FLEET_CA", "TOKEN_FILE"), place, strict=True):
            monkeypatch.setenv(f"SANDFLEET_{name}", value)
        monkeypatch.setenv("SANDFLEET_SANDBOX_NAMESPACE", bed.namespaces[0])
        assert await asyncio.to_thread(main, ["sandboxes", "ls"]) == 0
        assert info.sandbox_id in capsys.readouterr().out
    await until(bed, "nothing to be left", lambda: settled(bed))
    assert changes_since(bed, start) == []


async def test_a_young_session_whose_pod_is_deleted_is_written_and_recovered(bed, fleet):
    async with await AsyncSandbox.create(pool="fast", fleet=fleet) as one:
        info = await one.get_info()
        assert objects(bed) == []
        pod = pod_of(bed, info.sandbox_uid)
        await asyncio.to_thread(bed.cluster.api.delete, "Pod", pod["name"], bed.namespaces[0])
        name = info.sandbox_id.partition("/")[2]
        await until(bed, "its object", lambda: objects(bed) == [name])

        def recovered():
            status = bed.cluster.api.get("CodeSandbox", name, bed.namespaces[0]).get("status", {})
            return status.get("restarts") == 1 and has_condition({"status": status}, "Ready")

        await until(bed, "it to be recovered", recovered)
        assert (await one.run_code("6 * 7")).text == "42"
        assert (await one.get_info()).sandbox_uid != info.sandbox_uid
    await until(bed, "nothing to be left", lambda: settled(bed))


async def test_a_claim_that_is_no_longer_young_gets_its_object_from_the_next_leader_too(bed, fleet):
    """The first leader would write it an hour later; for the next one youth ends after a second."""
    one = await AsyncSandbox.create(pool="fast", fleet=fleet)
    await one.run_code("kept = 42")
    assert objects(bed) == []
    file = bed.folder / "fleet.json"
    settings = json.loads(file.read_text())
    await asyncio.to_thread(bed.fleet.kill)
    file.write_text(json.dumps(settings | {"youngClaimSeconds": 1.0}))
    try:
        await asyncio.to_thread(bed.fleet.start)
        info = await one.get_info()
        name = info.sandbox_id.partition("/")[2]
        await until(bed, "its object", lambda: objects(bed) == [name])
        await until(
            bed,
            "it to be Ready",
            lambda: has_condition(bed.cluster.api.get("CodeSandbox", name, bed.namespaces[0]), "Ready"),
        )
        assert [each["kind"] for each in pod_of(bed, info.sandbox_uid)["ownerReferences"]] == ["CodeSandbox"]
        assert (await one.run_code("kept")).text == "42"
        async with await AsyncSandbox.create(pool="fast", fleet=fleet) as other:
            names = {name, (await other.get_info()).sandbox_id.partition("/")[2]}
            await until(bed, "the object of a new claim", lambda: set(objects(bed)) == names)
        await one.kill()
        await until(bed, "nothing to be left", lambda: settled(bed))
    finally:
        await asyncio.to_thread(bed.fleet.kill)
        file.write_text(json.dumps(settings))
        await asyncio.to_thread(bed.fleet.start)
