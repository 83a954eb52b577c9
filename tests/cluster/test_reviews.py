"""Reviewed sandboxes on the real cluster: code under gVisor waits for another account than the agent's."""

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time

import grpc
import pytest
from cluster.access_bed import a_grant, an_agent, an_object, fleet_bed
from cluster.harness.api import ApiError, has_condition, path_of
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, sandbox, template
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import AccessDenied, ClaimError, PreconditionFailed
from sandfleet_api.executor.v1.review_pb2 import AnswerRequest
from sandfleet_api.executor.v1.review_pb2_grpc import ReviewServiceStub
from sandfleet_operator.executors.contact import Executor, own_token, verified_channel
from sandfleet_operator.executors.tokens import KeyRing, Signer, TokenKey, public_jwk
from sandfleet_operator.plan.pods.names import session_id

REVIEWER_RULES = [
    {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/reviews"], "verbs": ["get", "list", "approve"]},
]
SHOWN_SECONDS = 30


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace with a pool of reviewed sandboxes; agent and reviewer are two accounts."""
    api, work = images.api, f"reviewed-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made:
        made.apply(*an_agent(work))
        made.apply(an_object("v1", "ServiceAccount", "reviewer", work))
        made.apply(*a_grant("", "reviewer", REVIEWER_RULES, (work, "reviewer"), work))
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work, "python", contracts=["Reviewed"], reviewRules=["PureExpression", "SameCell"]))
        pool = {"templateRef": {"name": "python"}, "replicas": 1}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "reviewed", work, spec=pool))
        made.apply(an_object("v1", "ServiceAccount", "second", work))
        made.apply(*a_grant("", "second", REVIEWER_RULES, (work, "second"), work))
        api.create(template(work, "four-eyes", contracts=["Reviewed"], approvals=2))
        yield made
        operator.end()
    api.delete("Namespace", work)


@contextlib.asynccontextmanager
async def as_account(bed, folder, account):
    ca, token = folder / "ca.crt", folder / f"{account}.token"
    ca.write_text(bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"])
    token.write_text(bed.token(bed.namespaces[0], account))
    address = f"127.0.0.1:{bed.port}"
    made = await AsyncFleet.connect(address, namespace=bed.namespaces[0], ca_file=str(ca), token_file=str(token))
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def agent(bed, tmp_path):
    async with as_account(bed, tmp_path, "agent") as made:
        yield made


@pytest.fixture
async def reviewer(bed, tmp_path):
    async with as_account(bed, tmp_path, "reviewer") as made:
        yield made


async def waiting(reviewer, sandbox_id, kind="cell"):
    """The one review of the sandbox, as soon as it waits."""
    async with asyncio.timeout(SHOWN_SECONDS):
        while True:
            with contextlib.suppress(Exception):
                async for found in reviewer.reviews.watch(sandbox_id):
                    if found and found[0].kind == kind:
                        return found[0]
            await asyncio.sleep(0.2)


async def shown(bed, name, wanted):
    """`kubectl get csb` has this in the column REVIEW."""

    def says():
        printed = bed.cluster.kubectl("get", "csb", name, "-n", bed.namespaces[0])
        return ("AwaitingReview" in printed) is wanted

    await asyncio.to_thread(bed.cluster.api.wait, f"AwaitingReview: {wanted}", says, SHOWN_SECONDS)


async def said(bed, folder, account, *words):
    """Code and output of `sandfleet reviews` with the token of an account."""
    named = {
        "SANDFLEET_FLEET": f"127.0.0.1:{bed.port}",
        "SANDFLEET_FLEET_CA": str(folder / "ca.crt"),
        "SANDFLEET_TOKEN_FILE": str(folder / f"{account}.token"),
    }
    command = [sys.executable, "-m", "sandfleet", "reviews", *words, "-n", bed.namespaces[0], "--json"]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **named}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode, json.loads(output)


@pytest.mark.timeout(240)
async def test_a_reviewer_answers_at_the_command_line(bed, agent, reviewer, tmp_path):
    async with await AsyncSandbox.create(pool="reviewed", fleet=agent, max_wait=120) as made:
        running = asyncio.create_task(made.run_code("6 * 7 ** (len('x'))\nimport json"))
        await waiting(reviewer, made.sandbox_id)
        code, (review,) = await said(bed, tmp_path, "reviewer", "ls")
        assert (code, review["sandbox_id"]) == (0, made.sandbox_id)
        named = f"{review['review_id']}@{review['state']}"
        code, refusal = await said(bed, tmp_path, "agent", "approve", named)
        assert code == 3, refusal
        assert await said(bed, tmp_path, "reviewer", "approve", named) == (0, {"missing": 0})
        assert (await running).outcome == "ok"


@pytest.mark.timeout(240)
async def test_a_cell_waits_for_another_account_and_kubectl_shows_it(bed, agent, reviewer):
    async with await AsyncSandbox.create(pool="reviewed", fleet=agent, max_wait=120) as made:
        assert (await made.get_info()).isolation == "gvisor"
        running = asyncio.create_task(made.run_code("open('/workspace/seen', 'w').write('x')"))
        review = await waiting(reviewer, made.sandbox_id)
        assert review.holder.endswith(":agent")
        assert [one.review_id for one in await reviewer.reviews.list()] == [review.review_id]
        await shown(bed, made.sandbox_id.partition("/")[2], True)
        assert not await made.files.exists("seen")
        await reviewer.reviews.answer(review, review.approve())
        assert (await running).outcome == "ok"
        assert await made.files.exists("seen")
        await shown(bed, made.sandbox_id.partition("/")[2], False)
        # Again the same bytes: a rule answers, and names itself.
        again = await made.run_code("open('/workspace/seen', 'w').write('x')")
        assert (again.outcome, [one.reason for one in again.notices]) == ("ok", ["ReviewRule"])
        denied = asyncio.create_task(made.run_code("import os"))
        review = await waiting(reviewer, made.sandbox_id)
        await reviewer.reviews.answer(review, review.deny("not here"))
        assert ((await denied).outcome, (await denied).blame) == ("denied", "policy")


@pytest.mark.timeout(240)
async def test_the_agents_own_account_never_answers(bed, agent, reviewer, tmp_path):
    work = bed.namespaces[0]
    async with await AsyncSandbox.create(pool="reviewed", fleet=agent, max_wait=120) as made:
        running = asyncio.create_task(made.run_code("import os"))
        review = await waiting(reviewer, made.sandbox_id)
        with pytest.raises(AccessDenied, match="may not approve codesandboxes/reviews"):
            await agent.reviews.answer(review, review.approve())
        with pytest.raises(AccessDenied, match="may not list codesandboxes/reviews"):
            await agent.reviews.list()
        # Also with the right: who has claimed a sandbox does not review it.
        bed.apply(*a_grant("", "agent-reviews", REVIEWER_RULES, (work, "agent"), work))
        try:
            async with asyncio.timeout(SHOWN_SECONDS):
                while True:
                    with pytest.raises(AccessDenied) as caught:
                        await agent.reviews.answer(review, review.approve())
                    if caught.value.reason == "NotReviewer":
                        break
                    await asyncio.sleep(1)
        finally:
            bed.cluster.kubectl("delete", "role,rolebinding", "agent-reviews", "-n", work)
        assert not running.done()
        # The control: the same answer of the other account lets it run.
        await reviewer.reviews.answer(review, review.approve())
        assert (await running).outcome == "ok"


@pytest.mark.timeout(300)
async def test_what_waits_outlives_a_kill_of_the_fleet_and_what_was_approved_counts_no_more(bed, agent, reviewer):
    async with await AsyncSandbox.create(pool="reviewed", fleet=agent, max_wait=120) as made:
        first = asyncio.create_task(made.run_code("x = 20"))
        review = await waiting(reviewer, made.sandbox_id)
        await reviewer.reviews.answer(review, review.approve())
        assert (await first).outcome == "ok"
        assert (await made.run_code("x + 1")).text == "21", "a rule approves what is computed from approved names"
        running = asyncio.create_task(made.run_code("open('/workspace/late', 'w').write('x')"))
        before = await waiting(reviewer, made.sandbox_id)
        await shown(bed, made.sandbox_id.partition("/")[2], True)
        await asyncio.to_thread(bed.fleet.kill)
        await asyncio.to_thread(bed.fleet.start)
        after = await waiting(reviewer, made.sandbox_id)
        assert (after.review_id, running.done()) == (before.review_id, False)
        await reviewer.reviews.answer(after, after.approve())
        assert (await running).outcome == "ok"
        asked = asyncio.create_task(made.run_code("x + 1"))
        review = await waiting(reviewer, made.sandbox_id)
        assert review.code == "x + 1", "the new leader does not know what x is"
        await reviewer.reviews.answer(review, review.approve())
        assert (await asked).text == "21"


@pytest.mark.timeout(240)
async def test_a_sandbox_made_with_kubectl_is_reviewed_too_and_may_bring_no_environment(bed, agent, reviewer):
    api, work = bed.cluster.api, bed.namespaces[0]
    api.create(sandbox(work, "made"))
    api.create(sandbox(work, "brings", env=[{"name": "BASH_ENV", "value": "/workspace/x"}]))
    for name in ("made", "brings"):
        await asyncio.to_thread(
            api.wait,
            f"{name} to be ready",
            lambda name=name: has_condition(api.get("CodeSandbox", name, work), "Ready"),
            120,
        )
    made = await AsyncSandbox.connect(f"{work}/made", fleet=agent)
    running = asyncio.create_task(made.run_code("import os; os.getpid() > 0"))
    review = await waiting(reviewer, made.sandbox_id)
    await reviewer.reviews.answer(review, review.approve())
    assert (await running).text == "True"
    await made.close()
    with pytest.raises(PreconditionFailed, match="may bring code that no reviewer has seen"):
        await AsyncSandbox.connect(f"{work}/brings", fleet=agent)
    for name in ("made", "brings"):
        api.delete("CodeSandbox", name, work)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("brought", [{"envs": {"BASH_ENV": "/workspace/x"}}, {"workspace_id": "earlier"}])
async def test_a_claim_that_brings_what_no_reviewer_has_seen_is_refused(agent, brought):
    with pytest.raises(ClaimError, match="no reviewer has seen"):
        await AsyncSandbox.create(pool="reviewed", fleet=agent, max_wait=30, **brought)


@pytest.mark.timeout(240)
async def test_a_template_can_demand_two_accounts(bed, agent, reviewer, tmp_path):
    async with (
        as_account(bed, tmp_path, "second") as second,
        await AsyncSandbox.create("four-eyes", fleet=agent, contract="reviewed", max_wait=120) as made,
    ):
        running = asyncio.create_task(made.run_code("import os; os.getpid() > 0"))
        review = await waiting(reviewer, made.sandbox_id)
        assert await reviewer.reviews.answer(review, review.approve()) == 1
        assert await reviewer.reviews.answer(review, review.approve()) == 1
        assert not running.done()
        review = await waiting(second, made.sandbox_id)
        assert await second.reviews.answer(review, review.approve()) == 0
        assert (await running).text == "True"


CONFIG_MAP = "sandfleet-keys"


# Between two looks into the pod.
WRITING_SECONDS = 2.0


def add_a_key(bed, key):
    """As a tenant who may write ConfigMaps of its namespace; until the operator writes its own content again."""
    work = bed.namespaces[0]
    there = json.loads(bed.cluster.api.get("ConfigMap", CONFIG_MAP, work)["data"]["keys.json"])
    there["keys"].append(public_jwk("tenant", key.public_key()))
    path = f"{path_of('ConfigMap', work)}/{CONFIG_MAP}"
    content = {"data": {"keys.json": json.dumps(there)}}
    bed.cluster.api.call("PATCH", path, content, "application/merge-patch+json")


@pytest.mark.timeout(300)
async def test_a_tenant_that_adds_a_signing_key_approves_nothing(bed, agent, reviewer):
    """The kubelet takes a minute to bring a ConfigMap into a pod, and a new pod begins with what is there."""
    work, key = bed.namespaces[0], Ed25519PrivateKey.generate()
    api = bed.cluster.api
    async with await AsyncSandbox.create(pool="reviewed", fleet=agent, max_wait=120) as made:
        running = asyncio.create_task(made.run_code("import os"))
        review = await waiting(reviewer, made.sandbox_id)
        uid = (await made.get_info()).sandbox_uid
        pod = next(one for one in api.list("Pod", work) if one["metadata"]["uid"] == uid)
        name, address = pod["metadata"]["name"], f"{pod['status']['podIP']}:50051"
        await asyncio.to_thread(add_a_key, bed, key)
        shown = ("exec", "-n", work, name, "--", "cat", "/run/sandfleet/keys/keys.json")

        def arrives():
            # The operator repairs the ConfigMap at once, and the kubelet takes what is there when it looks: a tenant
            # that wants to be seen writes it again and again.
            until = time.monotonic() + WRITING_SECONDS
            while time.monotonic() < until:
                with contextlib.suppress(ApiError):
                    add_a_key(bed, key)
            return "tenant" in bed.cluster.kubectl(*shown)

        await asyncio.to_thread(api.wait, "the tenant's key in the pod", arrives, 180)
        signer = Signer(KeyRing((TokenKey("tenant", key, 0.0),)), time.time)
        claims = {"review": review.review_id, "digest": review.digest.hex(), "state": review.state, "verb": "approve"}
        statement = signer.answer(sandbox_uid=uid, reviewer="tenant", claims=claims)
        forged = Executor(address=address, pod_uid=uid, session_id=session_id(work, name), contract="reviewed")
        ca = api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"].encode()
        async with verified_channel(forged, ca) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                metadata = own_token(signer, forged)
                await ReviewServiceStub(channel).Answer(AnswerRequest(statement=statement), metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert not running.done()
        await reviewer.reviews.answer(review, review.approve())
        assert (await running).outcome == "ok"
