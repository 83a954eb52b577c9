"""Sessions of a cluster are suspended and resumed: the pod ends, its quota is free, and files and variables stay."""

import asyncio
import secrets

import pytest
from cluster.access_bed import a_grant, an_agent, an_object, fleet_bed
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, lend, template
from sandfleet import AsyncSandbox, SandboxEnded, SandboxSuspended
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import ClaimError, PreconditionFailed


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace with a pool of one, and a queue for one sandbox."""
    api, folder = images.api, tmp_path_factory.mktemp("fleet")
    work = f"suspend-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, folder, (work,)) as made:
        may_claim = {"apiGroups": ["sandfleet.io"], "resources": ["sandboxqueues"], "verbs": ["claim"]}
        made.apply(*an_agent(work), *a_grant("", "claims", [may_claim], (work, "agent"), work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work))
        of_pool = {"templateRef": {"name": "python"}, "replicas": 1}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", work, spec=of_pool))
        of_queue = {"nominalQuota": {"sandboxes": 1}}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxQueue", "default", work, spec=of_queue))
        (folder / "ca.crt").write_text(api.get("ConfigMap", "sandfleet-ca", made.namespace)["data"]["ca.crt"])
        (folder / "token").write_text(made.token(work, "agent"))
        yield made
        operator.end()
    api.delete("Namespace", work)


def connected(bed):
    files = {"ca_file": str(bed.folder / "ca.crt"), "token_file": str(bed.folder / "token")}
    return AsyncFleet.connect(f"127.0.0.1:{bed.port}", namespace=bed.namespaces[0], **files)


@pytest.fixture
async def fleet(bed):
    made = await connected(bed)
    yield made
    await made.close()


class Seen:
    """What kubectl shows."""

    def __init__(self, bed, sandbox_id):
        self.api, self.work = bed.cluster.api, bed.namespaces[0]
        self.name = sandbox_id.partition("/")[2]
        self._kubectl = bed.cluster.kubectl

    async def until(self, what, holds, within=90):
        await asyncio.to_thread(self.api.wait, what, holds, within)

    def pods(self):
        found = self.api.list("Pod", self.work)
        return [one for one in found if one["metadata"]["labels"].get("sandfleet.io/state") == "claimed"]

    def used(self):
        status = self.api.get("SandboxQueue", "default", self.work).get("status") or {}
        return (status.get("usage") or {}).get("sandboxes")

    def set_mode(self, mode):
        patch = f'{{"spec":{{"operatingMode":"{mode}"}}}}'
        self._kubectl("patch", f"csb/{self.name}", "--type=merge", "-p", patch, "-n", self.work)

    def admitted(self):
        """What the operator says of it as it is now: status and reason of the condition; None: nothing yet."""
        found = self.api.get("CodeSandbox", self.name, self.work)
        conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions", ())}
        said = conditions.get("Admitted", {})
        is_new = said.get("observedGeneration") == found["metadata"]["generation"]
        return (said["status"], said["reason"]) if is_new else None

    def lacks_quota(self):
        return self.admitted() == ("False", "QuotaReached")

    def mode(self):
        return self.api.get("CodeSandbox", self.name, self.work)["spec"].get("operatingMode")


@pytest.mark.timeout(280)
async def test_a_suspended_session_leaves_its_quota_and_returns_with_files_and_variables(bed, fleet):
    sandbox = await AsyncSandbox.create(pool="fast", fleet=fleet, labels={"run": "7"}, envs={"TEAM": "blue"})
    await sandbox.files.write("orders.csv", "a,b\n")
    await sandbox.run_code("rows = open('orders.csv').read(); gen = (x for x in rows)")
    seen = Seen(bed, sandbox.sandbox_id)
    with pytest.raises(ClaimError):
        await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=1)
    kept = await sandbox.suspend()
    assert kept.lost == ("default: gen (NotPicklable)",)
    with pytest.raises(SandboxSuspended):
        await sandbox.run_code("1")
    assert seen.mode() == "Suspended"
    await seen.until("its pod to be gone", lambda: not seen.pods())
    await seen.until("its quota to be free", lambda: seen.used() == 0)
    # Another one gets the quota, and the resume waits for it.
    other = await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=60)
    with pytest.raises(ClaimError) as caught:
        await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet, max_wait=2)
    assert caught.value.queued.reason == "QuotaReached"
    assert (await fleet.get(sandbox.sandbox_id)).state == "suspended"
    waits = asyncio.create_task(_resumed(sandbox.sandbox_id, fleet))
    await asyncio.sleep(1)
    await other.kill()
    async with await waits as again:
        assert again.resumption.lost == kept.lost
        execution = await again.run_code("import os; rows, open('orders.csv').read(), os.environ['TEAM']")
        assert execution.text == "('a,b\\n', 'a,b\\n', 'blue')"
        info = await again.get_info()
        assert (info.state, info.labels["run"], info.isolation) == ("claimed", "7", "gvisor")
    await seen.until("nothing to be left", lambda: not seen.pods() and not seen.api.list("CodeSandbox", seen.work))


@pytest.mark.timeout(280)
async def test_the_next_leader_and_kubectl_know_who_sleeps(bed, fleet):
    sandbox = await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=60)
    await sandbox.run_code("x = 5")
    await sandbox.suspend(timeout=3600)
    bed.fleet.kill()
    bed.fleet.start()
    after = await connected(bed)
    try:
        asleep = await after.get(sandbox.sandbox_id)
        assert (asleep.state, asleep.suspended_until is not None) == ("suspended", True)
        again = await _resumed(sandbox.sandbox_id, after)
        assert (await again.run_code("x")).text == "5"
        # Its owner may set the mode, too.
        seen = Seen(bed, sandbox.sandbox_id)
        await asyncio.to_thread(seen.set_mode, "Suspended")
        await seen.until("its pod to be gone", lambda: not seen.pods())
        assert (await after.get(sandbox.sandbox_id)).state == "suspended"
        await asyncio.to_thread(seen.set_mode, "Running")
        async with asyncio.timeout(90):
            while (await after.get(sandbox.sandbox_id)).state != "claimed":
                await asyncio.sleep(0.5)
        execution = await again.run_code("import pathlib; pathlib.Path.cwd().name")
        assert execution.text == "'workspace'"
        await again.kill()
    finally:
        await after.close()


@pytest.mark.timeout(200)
async def test_a_session_that_kubectl_sets_to_running_waits_for_quota(bed, fleet):
    """The quota of one is in use: it gets no pod and is not admitted, and goes on when the other leaves."""
    sandbox = await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=90)
    await sandbox.files.write("orders.csv", "a,b\n")
    await sandbox.suspend()
    other = await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=90)
    seen = Seen(bed, sandbox.sandbox_id)
    await asyncio.to_thread(seen.set_mode, "Running")
    await seen.until("it to wait for its queue, and to say why", seen.lacks_quota)
    assert len(seen.pods()) == 1
    await other.kill()
    async with asyncio.timeout(90):
        while (await fleet.get(sandbox.sandbox_id)).state != "claimed":
            await asyncio.sleep(0.2)
    assert seen.admitted() == ("True", "Admitted")
    async with await AsyncSandbox.connect(sandbox.sandbox_id, fleet=fleet) as again:
        assert (await again.files.read("orders.csv")) == "a,b\n"
        await again.kill()


@pytest.mark.timeout(120)
async def test_a_workspace_that_ends_with_its_pod_refuses_a_suspension(bed, fleet):
    bed.cluster.api.create(template(bed.namespaces[0], "brief", workspace={"ephemeral": True, "size": "64Mi"}))
    async with AsyncSandbox.create("brief", fleet=fleet, max_wait=90) as sandbox:
        with pytest.raises(PreconditionFailed) as caught:
            await sandbox.suspend()
        assert caught.value.reason == "WorkspaceEphemeral"
        assert (await sandbox.run_code("1 + 1")).text == "2"


async def _resumed(sandbox_id, fleet):
    return await AsyncSandbox.resume(sandbox_id, fleet=fleet, max_wait=90)


@pytest.mark.timeout(280)
async def test_the_idle_session_of_a_borrower_goes_for_the_owner_and_returns_by_itself(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    lend(api, work, "owner", "guest", "Suspend")
    busy = await AsyncSandbox.create(pool="fast", fleet=fleet, queue="guest", max_wait=90)
    idle = await AsyncSandbox.create(pool="fast", fleet=fleet, queue="guest", max_wait=90)
    await idle.run_code("rows = [1, 2]")
    await busy.services.start("web", ["sleep", "1000"])
    owner = await AsyncSandbox.create(pool="fast", fleet=fleet, queue="owner", max_wait=120)
    assert (await fleet.get(idle.sandbox_id)).state == "suspended"
    assert (await fleet.get(busy.sandbox_id)).state == "claimed"
    call = asyncio.create_task(idle.run_code("sum(rows)"))
    await asyncio.sleep(3)
    assert not call.done()
    await owner.kill()
    assert (await asyncio.wait_for(call, 120)).text == "3"
    assert [one.sandbox_id for one in idle.preemptions] == [idle.sandbox_id]
    await idle.kill()
    await busy.kill()


@pytest.mark.timeout(200)
async def test_an_idle_session_on_an_ephemeral_workspace_ends_for_the_owner_where_its_queue_allows_it(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    api.create(template(work, "short", workspace={"ephemeral": True, "size": "64Mi"}))
    lend(api, work, "lender", "borrower", "Release")
    busy = await AsyncSandbox.create("short", fleet=fleet, queue="borrower", max_wait=90)
    idle = await AsyncSandbox.create("short", fleet=fleet, queue="borrower", max_wait=90)
    assert (await idle.run_code("1 + 1")).text == "2"
    await busy.services.start("web", ["sleep", "1000"])
    owner = await AsyncSandbox.create("short", fleet=fleet, queue="lender", max_wait=90)
    with pytest.raises(SandboxEnded, match="it ended: Preempted"):
        await idle.run_code("1 + 1")
    assert (await owner.run_code("2 + 2")).text == "4"
    assert (await fleet.get(busy.sandbox_id)).state == "claimed"
    assert [one.name for one in await busy.services.list()] == ["web"]
    await owner.kill()
    await busy.kill()
