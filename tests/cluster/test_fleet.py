"""The fleet on the real cluster: warm claims that end in a first cell under gVisor, and what they leave behind."""

import asyncio
import itertools
import json
import random
import secrets
import time

import pytest
import yaml
from cluster.access_bed import PROBE, an_agent, an_object, fleet_bed
from cluster.harness.api import has_condition, path_of
from cluster.harness.testing import probe_pod
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, Sandboxes, sandbox, template
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import ClaimError, SandfleetError
from sandfleet.values.sandbox import Limits

POOL = 3
# Of the templates whose pods cannot start: the least.
START_SECONDS = 10
FLOOD = """
import os
for n in range(20):
    if not os.fork():
        f = os.memfd_create(str(n))
        os.write(f, bytes(200 << 20))
        import signal; signal.pause()
"""
# A pod with the label of a queue begins with a scheduling gate.
GATES = """
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicy
metadata: {name: gates-WORK}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  matchConditions:
    - {name: queued, expression: "has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels"}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >-
          Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: "kueue.x-k8s.io/admission"}]}}
---
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicyBinding
metadata: {name: gates-WORK}
spec:
  policyName: gates-WORK
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: WORK}}}
"""


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace that enforces PodSecurity `restricted`, with a pool in it."""
    api = images.api
    work = f"fleet-work-{secrets.token_hex(4)}"
    metadata = {"name": work, "labels": RESTRICTED_LABELS}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    folder = tmp_path_factory.mktemp("fleet")
    with fleet_bed(images, folder, (work,)) as made:
        made.apply(*an_agent(work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        made.operator = operator
        api.create(template(work, mounts=[{"path": "/of-template"}]))
        pool = an_object(
            "sandfleet.io/v1alpha1",
            "SandboxPool",
            "fast",
            work,
            spec={"templateRef": {"name": "python"}, "replicas": POOL},
        )
        api.create(pool)
        api.wait("the pool to be warm", lambda: len(pods(made, "warm", ready=True)) == POOL, 90)
        yield made
        operator.end()
    api.delete("Namespace", work)


def pods(bed, state=None, *, ready=False):
    found = bed.cluster.api.list("Pod", bed.namespaces[0])
    states = [one for one in found if state in {None, one["metadata"]["labels"].get("sandfleet.io/state")}]
    return [one for one in states if not ready or has_condition(one, "Ready")]


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


def settled(bed):
    """Nothing but the pool is left."""
    api, work = bed.cluster.api, bed.namespaces[0]
    warm = {one["metadata"]["name"] for one in pods(bed, "warm", ready=True)}
    claims = {one["metadata"]["name"] for one in api.list("PersistentVolumeClaim", work)}
    others = len(pods(bed)) - len(warm)
    return len(warm) == POOL and not others and not api.list("CodeSandbox", work) and len(claims) == POOL


async def test_a_warm_claim_runs_a_cell_in_gvisor_and_is_gone_after_its_release(bed, fleet):
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, labels={"app": "agent"}, envs={"WHO": "me"}) as one:
        info = await one.get_info()
        assert (info.isolation, info.labels["app"]) == ("gvisor", "agent")
        execution = await one.run_code("import os; os.environ['WHO'] + str(6 * 7)")
        assert execution.text == "'me42'"
        api, work = bed.cluster.api, bed.namespaces[0]
        name = info.sandbox_id.partition("/")[2]
        await asyncio.to_thread(
            api.wait, "its object to be Ready", lambda: has_condition(api.get("CodeSandbox", name, work), "Ready"), 30
        )
        pod = next(pod for pod in pods(bed, "claimed") if pod["metadata"]["uid"] == info.sandbox_uid)
        assert [one["kind"] for one in pod["metadata"]["ownerReferences"]] == ["CodeSandbox"]
    await asyncio.to_thread(bed.cluster.api.wait, "nothing to be left", lambda: settled(bed), 60)


async def test_a_template_s_modules_are_loaded_ahead_and_its_sandbox_says_which_are_not(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    api.create(template(work, "ahead", preload=["xml.dom.minidom", "nowhere"]))
    code = "import sys, time\nbegun = time.perf_counter()\nimport xml.dom.minidom\ntime.perf_counter() - begun"
    async with await AsyncSandbox.create("ahead", fleet=fleet, max_wait=90) as one:
        execution = await one.run_code(code)
        assert float(execution.text) < 0.005
        assert [notice.reason for notice in execution.notices] == ["ModulesNotPreloaded"]
        info = await one.get_info()
        assert {each.name: each.state for each in info.preload} == {"xml.dom.minidom": "loaded", "nowhere": "failed"}
        name = info.sandbox_id.partition("/")[2]
        await asyncio.to_thread(
            api.wait,
            "its object to be Degraded",
            lambda: has_condition(api.get("CodeSandbox", name, work), "Degraded"),
            30,
        )
        [degraded] = [
            each for each in api.get("CodeSandbox", name, work)["status"]["conditions"] if each["type"] == "Degraded"
        ]
        assert (degraded["reason"], "nowhere" in degraded["message"]) == ("ModulesNotPreloaded", True)


async def test_code_reaches_nothing_from_the_first_moment_after_a_claim(bed, fleet):
    addresses = bed.cluster.addresses
    warm = {pod["metadata"]["uid"]: pod["status"]["podIP"] for pod in pods(bed, "warm", ready=True)}
    async with await AsyncSandbox.create(pool="fast", fleet=fleet) as one:
        # What it is itself it may reach.
        own = (await one.get_info()).sandbox_uid
        other = next(address for uid, address in warm.items() if uid != own)
        targets = {
            "sandbox": (other, 50051),
            "API server": (addresses.machine, 6443),
            "metadata": ("169.254.169.254", 80),
            "fleet": (addresses.machine, bed.port),
        }
        execution = await one.run_code(PROBE.replace("TARGETS", repr(json.dumps(targets))))
        assert json.loads(execution.text.strip("'")) == dict.fromkeys(targets, False)


async def test_a_killed_executor_comes_back_on_its_workspace_with_its_mounts_under_the_same_claim(bed, fleet):
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, mounts=["/app", "/home/user"]) as one:
        await one.files.write("/app/kept.txt", b"kept")
        assert (await one.commands.run("ls -d /app/* /home/user /of-template")).ok
        api, work = bed.cluster.api, bed.namespaces[0]
        info = await one.get_info()
        name = info.sandbox_id.partition("/")[2]
        # A claim whose pod goes before anybody has written down that it had one is over (ADR 14).
        await asyncio.to_thread(
            api.wait, "it to be on record", lambda: has_condition(api.get("CodeSandbox", name, work), "Ready"), 30
        )
        # The one before this test may still be going.
        pod = next(pod for pod in pods(bed, "claimed") if pod["metadata"]["uid"] == info.sandbox_uid)
        await asyncio.to_thread(bed.cluster.api.delete, "Pod", pod["metadata"]["name"], work)
        async with asyncio.timeout(90):
            while (info := await _info(one)) is None or info.restarts == 0:
                await asyncio.sleep(0.5)
        assert await one.files.read("/app/kept.txt") == await one.files.read("app/kept.txt") == "kept"
        assert (await one.commands.run("ls -d /app/* /home/user /of-template")).ok
        assert (await one.get_info()).restarts == 1


async def test_a_workspace_that_was_left_is_claimed_again_with_its_files(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, keep_workspace=True) as one:
        await one.files.write("kept.txt", b"kept")
        first = await one.get_info()
        with pytest.raises(ClaimError) as caught:
            await AsyncSandbox.create(pool="fast", fleet=fleet, workspace_id=first.workspace_id)
        assert caught.value.reason == "WorkspaceBusy"
    # Its pod is still ending: the claim waits for it.
    on_it = {"workspace_id": first.workspace_id, "limits": Limits(processes=64), "max_wait": 120}
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, **on_it) as one:
        assert await one.files.read("kept.txt") == "kept"
        info = await one.get_info()
        assert (info.isolation, info.workspace_id) == ("gvisor", first.workspace_id)
        name = info.sandbox_id.partition("/")[2]
        await asyncio.to_thread(
            api.wait, "its object to be Ready", lambda: has_condition(api.get("CodeSandbox", name, work), "Ready"), 30
        )
        made = api.get("CodeSandbox", name, work)
        assert made["spec"]["workspace"] == {"claimName": first.workspace_id, "retention": "Delete"}
        assert made["spec"]["executionLimits"] == {"processes": 64}
        assert made["status"]["workspaceClaimName"] == first.workspace_id
    # It was not to stay this time.
    await asyncio.to_thread(api.wait, "nothing to be left", lambda: settled(bed), 60)
    with pytest.raises(ClaimError) as caught:
        await AsyncSandbox.create(pool="fast", fleet=fleet, workspace_id=first.workspace_id)
    assert caught.value.reason == "WorkspaceNotFound"


async def test_a_codesandbox_starts_on_a_workspace_that_a_claim_has_left(bed, fleet):
    api, work = bed.cluster.api, bed.namespaces[0]
    async with await AsyncSandbox.create(pool="fast", fleet=fleet, keep_workspace=True) as one:
        await one.files.write("kept.txt", b"kept")
        left = (await one.get_info()).workspace_id
    for name in ("one", "two"):
        api.create(sandbox(work, name, workspace={"claimName": left, "retention": "Delete"}))
    await asyncio.to_thread(
        api.wait, "the first to be Ready", lambda: has_condition(api.get("CodeSandbox", "one", work), "Ready"), 90
    )
    assert _reason(api.get("CodeSandbox", "two", work)) == "WorkspaceInUse"
    opened = await AsyncSandbox.connect(f"{work}/one", fleet=fleet)
    assert await opened.files.read("kept.txt") == "kept"
    await opened.close()
    for name in ("two", "one"):
        api.delete("CodeSandbox", name, work)
    await asyncio.to_thread(api.wait, "nothing to be left", lambda: settled(bed), 90)


async def test_a_suspended_sandbox_comes_back_with_its_variables(bed, fleet):
    made = Sandboxes(bed.cluster, bed.namespaces[0])

    async def cell_and_suspend(code, *, autosave):
        await asyncio.to_thread(made.ready, "sleeper", 90)
        opened = await AsyncSandbox.connect(f"{made.namespace}/sleeper", fleet=fleet, autosave=autosave)
        execution = await opened.run_code(code)
        await opened.close()
        made.patch("sleeper", {"operatingMode": "Suspended"})
        await asyncio.to_thread(made.wait, "sleeper", "Suspended")
        made.patch("sleeper", {"operatingMode": "Running"})
        return execution

    made.create("sleeper")
    assert (await cell_and_suspend("x = [1]", autosave=True)).restored == ""
    again = await cell_and_suspend("x", autosave=True)
    assert (again.text, again.restored) == ("[1]", "1 variable, as after cell 1")
    # Control: who does not ask for them begins with nothing.
    assert (await cell_and_suspend("x", autosave=False)).error.name == "NameError"
    made.delete("sleeper")
    await asyncio.to_thread(bed.cluster.api.wait, "nothing to be left", lambda: settled(bed), 90)


def _is_gated(bed, label):
    """Whether a pod would be: the API server takes up a policy some time after it was written."""
    pod = probe_pod(bed.namespaces[0], "would-be")
    pod["metadata"]["labels"] = label
    made = bed.cluster.api.call("POST", f"{path_of('Pod', bed.namespaces[0])}?dryRun=All", pod)
    return bool(made["spec"].get("schedulingGates"))


def _reason(sandbox):
    conditions = sandbox.get("status", {}).get("conditions") or ()
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")


async def _info(sandbox):
    try:
        return await sandbox.get_info()
    except SandfleetError:
        return None


def a_pool(work, name, replicas=2):
    spec = {"templateRef": {"name": name}, "replicas": replicas}
    return an_object("sandfleet.io/v1alpha1", "SandboxPool", name, work, spec=spec)


def of_pool(bed, name):
    found = (one for one in pods(bed) if one["metadata"]["labels"].get("sandfleet.io/pool") == name)
    return {one["metadata"]["uid"]: one for one in found if "deletionTimestamp" not in one["metadata"]}


def why(bed, name):
    return _reason(bed.cluster.api.get("SandboxPool", name, bed.namespaces[0]))


async def _kept(bed, name, reason):
    """The pods of a pool that can start none of them, a while after each would have been given up."""
    api = bed.cluster.api
    await asyncio.to_thread(api.wait, f"the pool to say {reason}", lambda: why(bed, name) == reason, 60)
    before = set(of_pool(bed, name))
    await asyncio.sleep(START_SECONDS * 2)
    assert (len(before), set(of_pool(bed, name))) == (2, before)
    assert why(bed, name) == reason
    return before


async def test_a_pool_larger_than_the_cluster_keeps_its_pods_until_its_template_is_corrected(bed):
    api, work = bed.cluster.api, bed.namespaces[0]
    api.apply(template(work, "large", startTimeoutSeconds=START_SECONDS, nodeSelector={"size": "large"}))
    api.create(a_pool(work, "large"))
    try:
        before = await _kept(bed, "large", "Unschedulable")
        api.apply(template(work, "large", startTimeoutSeconds=60))
        await asyncio.to_thread(api.wait, "the pool to be warm", lambda: why(bed, "large") == "Filled", 90)
        assert not before & set(of_pool(bed, "large"))
    finally:
        api.delete("SandboxPool", "large", work)
        await asyncio.to_thread(api.wait, "its pods to be gone", lambda: not of_pool(bed, "large"), 60)


async def test_pods_that_another_controller_holds_back_by_gates_keep_their_place(bed):
    """A policy puts a gate on each pod with the label of a queue, as Kueue's webhook does."""
    api, work = bed.cluster.api, bed.namespaces[0]
    gated = list(yaml.safe_load_all(GATES.replace("WORK", work)))
    for one in gated:
        api.create(one)
    label = {"kueue.x-k8s.io/queue-name": "agents"}
    api.create(template(work, "queued", startTimeoutSeconds=START_SECONDS, podLabels=label))
    try:
        await asyncio.to_thread(api.wait, "the policy to hold", lambda: _is_gated(bed, label), 30)
        api.create(a_pool(work, "queued"))
        before = await _kept(bed, "queued", "SchedulingGated")
        for pod in of_pool(bed, "queued").values():
            freed = [{"op": "remove", "path": "/spec/schedulingGates"}]
            bed.cluster.kubectl(
                "patch", "pod", pod["metadata"]["name"], "-n", work, "--type=json", "-p", json.dumps(freed)
            )
        await asyncio.to_thread(api.wait, "the pool to be warm", lambda: why(bed, "queued") == "Filled", 90)
        assert set(of_pool(bed, "queued")) == before
    finally:
        api.delete("SandboxPool", "queued", work)
        for one in reversed(gated):
            api.delete(one["kind"], one["metadata"]["name"])
        await asyncio.to_thread(api.wait, "its pods to be gone", lambda: not of_pool(bed, "queued"), 60)


async def test_a_cell_that_uses_up_the_memory_of_its_whole_sandbox_is_told_memory(bed, fleet):
    """In files without a name, by many processes at once: faster than the executor's guard looks."""
    api, work = bed.cluster.api, bed.namespaces[0]
    api.create(template(work, "narrow", resources={"limits": {"cpu": "1", "memory": "512Mi"}}))
    async with await AsyncSandbox.create("narrow", fleet=fleet, max_wait=90) as one:
        begun = time.monotonic()
        ended = await one.run_code(FLOOD, timeout=60)
        print(f"{ended.outcome} ({ended.reason}) after {time.monotonic() - begun:.1f} s")
        assert (ended.outcome, ended.blame) == ("memory", "limit"), ended
        assert (await one.run_code("1 + 1")).text == "2"


async def test_claims_survive_that_fleet_and_operator_are_killed_again_and_again(bed, fleet):
    """Each claim ends in a cell that ran, or in a typed error; afterwards the pool is full and nothing else exists."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, numbers, over = random.Random(seed), itertools.count(), asyncio.Event()
    done, failed = [], []

    async def agent():
        while not over.is_set():
            number = next(numbers)
            try:
                async with await AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=40, timeout=60) as one:
                    execution = await one.run_code(f"{number} * 2")
                    done.append(execution.text == str(number * 2))
            except SandfleetError as error:
                failed.append(error)

    async def killer():
        for round_ in range(6):
            await asyncio.sleep(chance.uniform(2, 5))
            victim = bed.fleet if round_ % 2 == 0 else bed.operator
            await asyncio.to_thread(victim.kill)
            if round_ % 2:
                await asyncio.to_thread(bed.operator.bury)
            await asyncio.to_thread(victim.start)
        over.set()

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(agent())
        group.create_task(killer())
    print(
        f"{len(done)} claims ended in a cell, {len(failed)} in an error: {sorted({error.reason for error in failed})}"
    )
    assert done
    assert all(done)
    assert all(error.reason for error in failed)
    await asyncio.to_thread(bed.cluster.api.wait, "nothing to be left", lambda: settled(bed), 120)
