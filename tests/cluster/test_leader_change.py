"""A change of leader on the real cluster: sessions keep renewed leases, and gangs are whole, also after a reinstall."""

import asyncio
import secrets

import pytest
from cluster.access_bed import an_agent, an_object, fleet_bed
from cluster.harness.api import has_condition, path_of
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.scheduler.limits import FleetLimits

# Seconds: of the claim, of its renewal, and what the fleet gives an executor to end by itself.
LEASE, RENEWED, GRACE = 10.0, 3600.0, FleetLimits().lease_grace


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace with a pool in it."""
    api = images.api
    work = f"leader-work-{secrets.token_hex(4)}"
    metadata = {"name": work, "labels": RESTRICTED_LABELS}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made:
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work))
        spec = {"templateRef": {"name": "python"}, "replicas": 1}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=spec))
        api.wait("the pool to be warm", lambda: any(has_condition(one, "Ready") for one in api.list("Pod", work)), 90)
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


async def a_renewed_session(bed, fleet):
    """With one variable, and with the end of its lease on its CodeSandbox."""
    one = await AsyncSandbox.create(pool="fast", fleet=fleet, timeout=LEASE, keep_alive=False)
    await one.set_timeout(RENEWED)
    await one.run_code("x = 41")
    await asyncio.to_thread(bed.cluster.api.wait, "the lease to be written down", lambda: written(bed, one), 30)
    return one


def written(bed, one):
    return annotations(bed, "CodeSandbox", one).get(names.LEASE_EXPIRES)


def annotations(bed, kind, one):
    return bed.cluster.api.get(kind, one.sandbox_id.partition("/")[2], bed.namespaces[0])["metadata"]["annotations"]


async def restarted(bed, fleet, one):
    """The next fleet, and the time in which it would end the session by the lease of its claim."""
    await asyncio.to_thread(bed.fleet.start)
    await asyncio.sleep(LEASE + GRACE + 2)
    assert (await one.run_code("x + 1")).text == "42"
    info = await fleet.get(one.sandbox_id)
    assert info.lease_expires is not None
    return info


@pytest.mark.parametrize("kept", [True, False], ids=["written down", "not written down"])
async def test_a_renewed_session_lives_on_when_its_leader_is_killed(bed, fleet, kept):
    one = await a_renewed_session(bed, fleet)
    before = await fleet.get(one.sandbox_id)
    await asyncio.to_thread(bed.fleet.kill)
    if not kept:
        where = path_of("CodeSandbox", bed.namespaces[0], one.sandbox_id.partition("/")[2])
        patch = {"metadata": {"annotations": {names.LEASE_EXPIRES: None}}}
        await asyncio.to_thread(bed.cluster.api.call, "PATCH", where, patch, "application/merge-patch+json")
    after = await restarted(bed, fleet, one)
    assert abs((after.lease_expires - before.lease_expires).total_seconds()) < 5
    assert await fleet.release(one.sandbox_id)


async def test_a_fleet_without_its_lease_counts_on_and_takes_the_session_over(bed, fleet):
    one = await a_renewed_session(bed, fleet)
    record = read_record(annotations(bed, "CodeSandbox", one)[names.CLAIM])
    await asyncio.to_thread(bed.fleet.kill)
    # As an uninstall by hand leaves it.
    await asyncio.to_thread(bed.cluster.api.delete, "Lease", "sandfleet-fleet", bed.namespace)
    await restarted(bed, fleet, one)
    lease = await asyncio.to_thread(bed.cluster.api.get, "Lease", "sandfleet-fleet", bed.namespace)
    assert lease["spec"]["leaseTransitions"] > record.number
    assert await fleet.release(one.sandbox_id)


def bound_to(bed, gang):
    """Pods that a claim of this gang has."""
    pods = [one["metadata"] for one in bed.cluster.api.list("Pod", bed.namespaces[0])]
    records = [read_record(one.get("annotations", {}).get(names.CLAIM, "")) for one in pods]
    return [one for one in records if one is not None and one.gang is not None and one.gang.gang_id == gang]


async def test_a_gang_is_served_whole_when_its_leader_is_killed_between_two_binds(bed, fleet):
    """One sandbox is warm, so that the others are bound when they have started."""
    gang = asyncio.create_task(
        AsyncSandbox.create_many(3, pool="fast", fleet=fleet, gang=True, request_id="gang", max_wait=120.0)
    )
    await asyncio.to_thread(bed.cluster.api.wait, "the first bind", lambda: bound_to(bed, "gang"), 60)
    assert len(bound_to(bed, "gang")) < 3
    await asyncio.to_thread(bed.fleet.kill)
    assert not gang.done()
    await asyncio.to_thread(bed.fleet.start)
    made = await gang
    assert [(await one.run_code("6 * 7")).text for one in made] == ["42"] * 3
    assert len(bound_to(bed, "gang")) == len({one.sandbox_id for one in made}) == 3
    for one in made:
        await one.kill()
    await asyncio.to_thread(bed.cluster.api.wait, "it to be gone", lambda: not bound_to(bed, "gang"), 60)
