"""Claims over the fleet's port on Kubernetes: who may, what comes back, and that it is one write."""

import asyncio
import json
import time

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail
from sandfleet_api.executor.v1.session_pb2 import ISOLATION_GVISOR
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub
from sandfleet_operator.api.kube import SANDBOX_QUEUE, ref_of
from sandfleet_operator.cluster import reviews
from sandfleet_operator.executors.contact import Contacts
from sandfleet_operator.executors.pod_client import PodExecutors
from sandfleet_operator.executors.tokens import base64url
from sandfleet_operator.fleet.kubernetes.reviews.desk import ReviewDesk
from sandfleet_operator.fleet.kubernetes.serve import Options, listen
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.names import RETENTION, SANDBOX, own_labels
from sandfleet_operator.plan.witness import Head, statement
from support.fleet.on_kubernetes import SYSTEM, Kube, World, new_signing
from support.kubernetes import world as kubernetes_world
from support.kubernetes.world import pool_object, template_object

ALICE = (("authorization", "Bearer alice"),)
RIGHTS = [("create", "team", ""), ("create/connect", "team", ""), ("list", "team", ""), ("watch", "team", "")]


@pytest.fixture
async def world():
    kube = Kube()
    async with kubernetes_world.World(cluster=kube.cluster) as cluster:
        await cluster.add(template_object(mounts=[{"path": "/of-template"}]), pool_object())
        signing = await new_signing(kube)
        options = Options(
            namespace=SYSTEM, settings=kubernetes_world.SETTINGS, identity="fleet-0", host="127.0.0.1", port=0
        )
        running = await cluster.fleet()
        desk = ReviewDesk(kube, running, signing, lambda: 1)
        server, port = await listen(kube, signing, options, running, board=desk.board)
        made = World(kube, signing, port)
        made.cluster, made.running, made.listens = cluster, running, (options, desk)
        made.stub = FleetServiceStub(made.channel())
        kube.knows("alice", "alice")
        kube.allowed |= {("alice", *right) for right in RIGHTS}
        yield made
        for channel in made.channels:
            await channel.close()
        await server.stop(0)


def request(request_id="r1", namespace="team", **fields):
    return fleet_pb2.ClaimRequest(request_id=request_id, namespace=namespace, **fields)


async def claimed(world, asked=None, metadata=ALICE, timeout=10):
    answers = [one async for one in world.stub.Claim(asked or request(), metadata=metadata, timeout=timeout)]
    assert [one.sequence for one in answers] == list(range(1, len(answers) + 1))
    return answers[-1].bound


async def refusal(call):
    with pytest.raises(Exception, match="StatusCode") as caught:
        if hasattr(call, "__aiter__"):
            _ = [one async for one in call]
        else:
            await call
    return caught.value.code().name, caught.value.details()


def allow(world, sandbox, *verbs):
    namespace, _, name = sandbox.partition("/")
    world.kube.allowed |= {("alice", verb, namespace, name) for verb in verbs}


async def add_queue_for_one(world):
    spec = {"nominalQuota": {"sandboxes": 1}}
    made = {"apiVersion": SANDBOX_QUEUE.api_version, "kind": SANDBOX_QUEUE.kind, "spec": spec}
    await world.cluster.add(made | {"metadata": {"namespace": "team", "name": "default"}})
    world.kube.allowed |= {(caller, "queue claim", "team", "default") for caller in ("alice", "bob")}
    await world.cluster.until(lambda: world.running.scheduler.queues.spec("team/default") is not None)


async def test_a_claim_gives_a_warm_sandbox_and_the_key_to_it(world):
    await world.cluster.until(lambda: world.running.scheduler.summary("team/fast").warm == 2)
    bound = await claimed(world, request(labels={"app": "agent"}))
    sandbox = bound.sandbox
    assert bound.warm
    assert (sandbox.template, sandbox.pool, dict(sandbox.labels)) == ("python", "fast", {"app": "agent"})
    assert (sandbox.state, sandbox.isolation) == (fleet_pb2.SANDBOX_STATE_CLAIMED, ISOLATION_GVISOR)
    assert bound.egress == fleet_pb2.EGRESS_STATE_DENIED
    assert bound.access.ca_pem == world.signing.authority.pem
    assert sandbox.workspace_id.startswith("workspace-fast-")
    assert (await claimed(world)).sandbox.sandbox_id == sandbox.sandbox_id


async def test_a_claim_that_waits_is_given_a_ticket_and_told_why_one_that_it_shows_is_ignored(world):
    await add_queue_for_one(world)
    await claimed(world)
    waiting = world.stub.Claim(request("r2"), metadata=ALICE, timeout=10)
    said = (await waiting.read()).queued
    # The list that it signs says whose it is.
    assert json.loads(said.ticket[32:])[1:5] == ["alice", "r2", "team/fast", "team/default"]
    assert "ticket" not in said.message
    foreign = world.stub.Claim(request("r3", ticket=said.ticket), metadata=ALICE, timeout=10)
    told = (await foreign.read()).queued
    assert told.position == 2
    assert told.message.endswith("; its ticket was ignored: it is of another claim")
    waiting.cancel()
    foreign.cancel()


@pytest.mark.smoke
async def test_the_same_request_of_another_caller_is_another_claim(world):
    world.kube.knows("bob", "bob")
    world.kube.allowed |= {("bob", *right) for right in RIGHTS}
    first = await claimed(world)
    second = await claimed(world, metadata=(("authorization", "Bearer bob"),))
    assert first.sandbox.sandbox_uid != second.sandbox.sandbox_uid


async def test_the_same_request_id_in_another_pool_or_namespace_is_another_claim(world):
    await world.cluster.add(pool_object("other", 1))
    await world.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rivals"}})
    await world.cluster.isolate("rivals")
    for made in (template_object(), pool_object()):
        made["metadata"]["namespace"] = "rivals"
        await world.cluster.add(made)
    world.kube.allowed |= {("alice", verb, "rivals", name) for verb, _, name in RIGHTS}
    asked = (request(), request(pool="other"), request(namespace="rivals"))
    bounds = [await claimed(world, one) for one in asked]
    places = [bound.sandbox.sandbox_id.partition("/")[0] + "/" + bound.sandbox.pool for bound in bounds]
    assert places == ["team/fast", "team/other", "rivals/fast"]
    await world.cluster.until(lambda: len(world.cluster.objects()) == 3)
    again = [await claimed(world, one) for one in asked]
    assert [one.sandbox.sandbox_uid for one in again] == [one.sandbox.sandbox_uid for one in bounds]


async def test_rights_that_end_while_a_claim_waits_end_its_answer(world, monkeypatch):
    # Otherwise what was allowed is remembered for ten seconds.
    monkeypatch.setattr(reviews, "ALLOWED", 0.0)
    await add_queue_for_one(world)
    world.kube.knows("bob", "bob")
    world.kube.allowed |= {("bob", *right) for right in [*RIGHTS, ("delete", "team", "")]}
    bob = (("authorization", "Bearer bob"),)

    async def release(bound):
        await world.stub.Release(fleet_pb2.ReleaseRequest(sandbox_id=bound.sandbox.sandbox_id), metadata=bob)

    for taken_away in (False, True):
        first = await claimed(world, request(f"first-{taken_away}"), metadata=bob)
        waiting = aiter(world.stub.Claim(request(f"waits-{taken_away}"), metadata=ALICE, timeout=30))
        assert (await anext(waiting)).HasField("queued")
        if taken_away:
            world.kube.allowed -= {("alice", *right) for right in RIGHTS}
        await release(first)
        if taken_away:
            assert (await refusal(waiting))[0] == "PERMISSION_DENIED"
        else:
            # Control: who may still gets the sandbox.
            await release([one async for one in waiting][-1].bound)


@pytest.mark.smoke
async def test_what_the_template_allows_is_opened_by_the_claim_unless_it_wants_nothing(world):
    egress = {"allow": [{"cidr": "203.0.113.0/24"}]}
    await world.cluster.add(template_object("open", egress=egress), pool_object("open", 1, "open"))
    bound = await claimed(world, request("a", pool="open"))
    assert bound.egress == fleet_pb2.EGRESS_STATE_OPENING
    none = await claimed(world, request("b", pool="open", egress=fleet_pb2.EGRESS_NONE))
    assert none.egress == fleet_pb2.EGRESS_STATE_DENIED
    labels = {one["metadata"]["uid"]: one["metadata"]["labels"] for one in world.cluster.pods("claimed")}
    assert labels[bound.sandbox.sandbox_uid].get("sandfleet.io/egress-class") == "open"
    assert "sandfleet.io/egress-class" not in labels[none.sandbox.sandbox_uid]


def pod_of(world, bound):
    return next(one for one in world.cluster.pods("claimed") if one["metadata"]["uid"] == bound.sandbox.sandbox_uid)


async def test_a_claim_binds_only_a_warm_pod_of_its_own_contract_and_otherwise_starts_cold(world):
    both = template_object("both", contracts=["Autonomous", "Brokered"], egress={"allow": [{"cidr": "203.0.113.0/24"}]})
    tools = template_object("tools", contracts=["Brokered"])
    await world.cluster.add(both, pool_object("both", 1, "both"), tools, pool_object("tools", 1, "tools"))
    scheduler = world.running.scheduler
    await world.cluster.until(
        lambda: all(scheduler.pool(one) and scheduler.summary(one).warm for one in ("team/both", "team/tools"))
    )
    warm = await claimed(world, request("a", pool="both"))
    cold = await claimed(world, request("b", pool="both", contract="brokered"))
    first = await claimed(world, request("c", pool="tools"))
    contracts = [pod_of(world, one)["metadata"]["labels"].get("sandfleet.io/contract") for one in (warm, cold, first)]
    assert [one.warm for one in (warm, cold, first)] == [True, False, True]
    assert contracts == [None, "brokered", "brokered"]
    # The same template without a pool is served from the same place.
    again = await claimed(world, request("d", template="both", contract="brokered"))
    assert (again.warm, again.sandbox.template, again.sandbox.pool) == (False, "both", "")
    opened = [pod_of(world, one)["metadata"]["labels"].get("sandfleet.io/egress-class") for one in (warm, cold)]
    assert opened == ["both", None]


@pytest.mark.smoke
async def test_a_template_with_secrets_cannot_be_claimed_as_brokered(world):
    secrets = [{"secretRef": {"name": "password"}}]
    await world.cluster.add(template_object("keys", contracts=["Autonomous", "Brokered"], envFrom=secrets))
    asked = request(template="keys", contract="brokered")
    code, said = await refusal(world.stub.Claim(asked, metadata=ALICE))
    assert code == "FAILED_PRECONDITION"
    assert "cannot take contract Brokered: the template gives its code Secrets (password)" in said


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (request(pool="none"), "NOT_FOUND", "there is no pool 'none'"),
        (request(pool="x" * 100_000), "NOT_FOUND", "there is no pool 'xxx"),
        (request(template="none"), "NOT_FOUND", "there is no SandboxTemplate 'none'"),
        (request(pool="fast", template="other"), "NOT_FOUND", "of template 'other'"),
        (fleet_pb2.ClaimRequest(request_id="r", namespace="Team"), "INVALID_ARGUMENT", "not NAMESPACE/NAME"),
        (request("!"), "INVALID_ARGUMENT", "the request id"),
        (request(contract="reviewed"), "FAILED_PRECONDITION", "the template allows Autonomous"),
        (request(contract="else"), "FAILED_PRECONDITION", "there is no contract 'else'"),
        (request(contract="brokered"), "FAILED_PRECONDITION", "the template allows Autonomous"),
        (request(labels={"sandfleet.io/state": "warm"}), "INVALID_ARGUMENT", "is Kubernetes' or Sandfleet's"),
        (request(envs={"A": "x" * 60_000}), "INVALID_ARGUMENT", "is larger than"),
        (request(envs={"A": "😀" * 45_000}), "INVALID_ARGUMENT", "is larger than"),
        (request(mounts={"/etc": ""}), "INVALID_ARGUMENT", "cannot mount /etc: /etc belongs to the system"),
        (request(mounts={"/of-template/x": ""}), "INVALID_ARGUMENT", "it lies in /of-template"),
        (fleet_pb2.ClaimRequest(request_id="r", namespace="other"), "PERMISSION_DENIED", "may not create"),
    ],
)
async def test_what_cannot_be_claimed_is_refused_in_words_and_no_error_of_the_fleet(world, caplog, asked, code, said):
    found, details = await refusal(world.stub.Claim(asked, metadata=ALICE))
    assert (found, said in details) == (code, True), details
    assert not [one for one in caplog.records if one.exc_info or one.levelname == "ERROR"]


async def test_a_claim_that_waited_in_vain_or_whose_caller_left_is_no_error_of_the_fleet(world, caplog):
    await world.cluster.add(pool_object("slow", 0))
    world.cluster.starts = False
    waits = request("a", pool="slow")
    waits.max_wait.FromMilliseconds(100)
    assert (await refusal(world.stub.Claim(waits, metadata=ALICE)))[0] == "DEADLINE_EXCEEDED"
    left = world.stub.Claim(request("b", pool="slow"), metadata=ALICE)
    await left.read()
    left.cancel()
    await world.cluster.until(lambda: not world.running.scheduler.inventory.waiting)
    assert not [one for one in caplog.records if one.exc_info or one.levelname == "ERROR"]


@pytest.mark.smoke
async def test_who_may_make_objects_but_not_connect_may_not_claim(world):
    world.kube.allowed.discard(("alice", "create/connect", "team", ""))
    code, said = await refusal(world.stub.Claim(request(), metadata=ALICE))
    assert (code, "codesandboxes/connect" in said) == ("PERMISSION_DENIED", True)
    assert (await refusal(world.stub.Claim(request())))[0] == "UNAUTHENTICATED"


async def test_a_session_is_renewed_and_released_by_who_may(world):
    bound = await claimed(world)
    name = bound.sandbox.sandbox_id
    renew = fleet_pb2.RenewRequest(sandbox_id=name)
    renew.lease.FromSeconds(60)
    release = fleet_pb2.ReleaseRequest(sandbox_id=name)
    assert (await refusal(world.stub.Release(release, metadata=ALICE)))[0] == "PERMISSION_DENIED"
    allow(world, name, "get", "delete")
    answer = await world.stub.Renew(renew, metadata=ALICE)
    assert answer.access.token
    opened = world.running.pretended.opened.values()
    assert ("r1", 60.0) in opened
    found = await world.stub.Get(fleet_pb2.GetRequest(sandbox_id=name, with_access=True), metadata=ALICE)
    assert found.sandbox.sandbox_uid == bound.sandbox.sandbox_uid
    assert (await world.stub.Release(release, metadata=ALICE)).released
    await world.cluster.until(lambda: not world.cluster.objects() and not world.cluster.pods("claimed"))
    for _ in range(2):
        refused = await refusal(world.stub.Get(fleet_pb2.GetRequest(sandbox_id=name), metadata=ALICE))
        assert refused == ("NOT_FOUND", f"cannot get sandbox {name}: it ended: Released")


async def test_the_head_of_a_journal_is_signed_for_who_may_run_code_and_at_the_release(world):
    bound = await claimed(world)
    sandbox, asked = bound.sandbox, fleet_pb2.CountersignJournalRequest(sandbox_id=bound.sandbox.sandbox_id)
    world.kube.knows("bob", "bob")
    bob = (("authorization", "Bearer bob"),)
    assert (await refusal(world.stub.CountersignJournal(asked, metadata=bob)))[0] == "PERMISSION_DENIED"
    allow(world, sandbox.sandbox_id, "delete")
    assert not (await world.stub.CountersignJournal(asked, metadata=ALICE)).heads
    executors = world.running.pretended
    executors.head = Head(7, "a" * 64)
    (one,) = (await world.stub.CountersignJournal(asked, metadata=ALICE)).heads
    assert (one.session, one.pod_uid, one.number) == (sandbox.sandbox_id, sandbox.sandbox_uid, 7)
    # By the key that executors know, which the authority has signed.
    key = Ed25519PublicKey.from_public_bytes(one.public_key)
    key.verify(one.signature, statement(one.session, one.pod_uid, Head(7, "a" * 64), one.time_ms))
    published = json.loads(world.signing.public_keys)["keys"]
    assert (one.key_id, base64url(one.key_signature)) in {
        (each["kid"], each["sandfleet_signature"]) for each in published
    }
    executors.head = Head(3, "b" * 64)
    assert (await refusal(world.stub.CountersignJournal(asked, metadata=ALICE)))[0] == "FAILED_PRECONDITION"
    executors.head = Head(8, "c" * 64)
    gone = await world.stub.Release(fleet_pb2.ReleaseRequest(sandbox_id=sandbox.sandbox_id), metadata=ALICE)
    assert [each.number for each in gone.journal_heads] == [8]


READERS = {"sign the last heads of journals", "read the usage of sessions that end"}


def running():
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_what_reads_executors_ends_with_the_fleet(world):
    assert running() >= READERS
    for end in world.running.at_end:
        end()
    await asyncio.sleep(0)
    assert not running() & READERS
    # A fleet that ends does so.
    await world.running.close()


async def test_the_next_leader_does_not_sign_another_past(world):
    """What was signed stands on the pod: a fleet that has signed nothing itself reads it there."""
    bound = await claimed(world)
    asked = fleet_pb2.CountersignJournalRequest(sandbox_id=bound.sandbox.sandbox_id)
    world.running.pretended.head = Head(7, "a" * 64)
    (one,) = (await world.stub.CountersignJournal(asked, metadata=ALICE)).heads
    async with asyncio.timeout(60):
        while not any(names.JOURNAL_HEAD in pod["metadata"]["annotations"] for pod in world.cluster.pods()):
            await asyncio.sleep(0.01)
    options, desk = world.listens
    server, port = await listen(world.kube, world.signing, options, world.running, board=desk.board)
    later = World(world.kube, world.signing, port)
    stub = FleetServiceStub(channel := later.channel())
    try:
        assert list((await stub.CountersignJournal(asked, metadata=ALICE)).heads) == [one]
        world.running.pretended.head = Head(6, "b" * 64)
        assert (await refusal(stub.CountersignJournal(asked, metadata=ALICE)))[0] == "FAILED_PRECONDITION"
        # The control: a journal that goes on is signed.
        world.running.pretended.head = Head(8, "c" * 64)
        assert [each.number for each in (await stub.CountersignJournal(asked, metadata=ALICE)).heads] == [7, 8]
    finally:
        await channel.close()
        await server.stop(0)


async def test_a_token_opens_one_sandbox_for_its_lease(world):
    real = PodExecutors(Contacts(world.signing, time.time), world.signing, world.running._store, 50051)
    world.running.pretended.caller_token = real.caller_token
    asked = request()
    asked.lease.FromSeconds(120)
    bound = await claimed(world, asked)
    key = world.signing.material.tokens.keys[0].private.public_key()
    said = jwt.decode(bound.access.token, key, algorithms=["EdDSA"], audience=bound.sandbox.sandbox_uid)
    assert said["sub"] == "alice"
    assert said["sid"] == bound.sandbox.sandbox_id.replace("/", ".")
    assert "admin" not in said["scope"]
    assert 110 <= said["exp"] - time.time() <= 122


async def released(world, sandbox):
    allow(world, sandbox.sandbox_id, "delete")
    await world.stub.Release(fleet_pb2.ReleaseRequest(sandbox_id=sandbox.sandbox_id), metadata=ALICE)


async def test_a_released_workspace_is_claimed_again_by_its_id(world):
    first = (await claimed(world, request(keep_workspace=True))).sandbox
    on_it = request("r2", workspace_id=first.workspace_id, keep_workspace=True)
    found, said = await refusal(world.stub.Claim(on_it, metadata=ALICE))
    assert (found, "is in use by" in said) == ("FAILED_PRECONDITION", True), said
    await released(world, first)
    # Its pod is still ending: the claim waits for it.
    bound = await claimed(world, on_it)
    assert (bound.warm, bound.sandbox.workspace_id) == (False, first.workspace_id)
    again = await claimed(world, on_it)
    assert again.sandbox.sandbox_id == bound.sandbox.sandbox_id
    await released(world, bound.sandbox)
    assert (await refusal(world.stub.Claim(on_it, metadata=ALICE)))[0] == "FAILED_PRECONDITION"
    assert (await claimed(world, request("r3", workspace_id=first.workspace_id))).sandbox.workspace_id


async def test_a_workspace_is_refused_with_its_reason_while_its_sandbox_ends_for_too_long(world):
    first = (await claimed(world, request(keep_workspace=True))).sandbox
    world.cluster.cluster.edit(
        ref_of(next(iter(world.cluster.pods("claimed")))), lambda obj: obj["metadata"].update(finalizers=["x/y"])
    )
    await released(world, first)
    hurried = request("r2", workspace_id=first.workspace_id)
    hurried.max_wait.FromSeconds(0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await claimed(world, hurried)
    detail = ErrorDetail.FromString(dict(caught.value.trailing_metadata())["sandfleet-error-bin"])
    assert (detail.reason, detail.retryable, detail.subject.decode()) == ("WorkspaceBusy", True, first.workspace_id)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("workspace-none", "NOT_FOUND", "no sandbox has left a workspace 'workspace-none' in namespace team"),
        ("database", "NOT_FOUND", "no sandbox has left"),
        ("workspace-to-go", "NOT_FOUND", "no sandbox has left"),
        ("../other", "INVALID_ARGUMENT", "cannot be the id of a workspace"),
        ("other/workspace-none", "INVALID_ARGUMENT", "cannot be the id of a workspace"),
    ],
)
async def test_only_what_a_sandbox_has_left_is_a_workspace(world, name, code, said):
    own = own_labels(**{SANDBOX: "earlier"})
    await world.kube.create(a_volume("database", {}, "Retain"))
    await world.kube.create(a_volume("workspace-to-go", own, "Delete"))
    found, details = await refusal(world.stub.Claim(request(workspace_id=name), metadata=ALICE))
    assert (found, said in details) == (code, True), details
    await world.cluster.until(lambda: not world.cluster.pods("claimed"))


def a_volume(name, labels, retention):
    metadata = {"namespace": "team", "name": name, "labels": labels, "annotations": {RETENTION: retention}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}}


async def test_a_suspended_sandbox_has_its_workspace(world):
    await world.kube.create(a_volume("workspace-mine", own_labels(**{SANDBOX: "mine"}), "Retain"))
    await world.add("mine", spec={"operatingMode": "Suspended"})
    found, said = await refusal(world.stub.Claim(request(workspace_id="workspace-mine"), metadata=ALICE))
    assert (found, "in use by CodeSandbox mine" in said) == ("FAILED_PRECONDITION", True), said


@pytest.mark.parametrize("asked", [{"keep_workspace": True}, {"workspace_id": "workspace-old"}])
async def test_no_workspace_is_promised_where_it_is_a_directory_of_its_pod(world, asked):
    workspace = {"size": "1Gi", "ephemeral": True}
    await world.cluster.add(template_object("quick", workspace=workspace))
    found, said = await refusal(world.stub.Claim(request(template="quick", **asked), metadata=ALICE))
    assert (found, "go with them" in said) == ("FAILED_PRECONDITION", True), said


async def test_the_template_may_say_that_workspaces_stay(world):
    await world.cluster.add(
        template_object("lasting", workspace={"size": "1Gi", "retention": "Retain"}), pool_object("last", 1, "lasting")
    )
    sandbox = (await claimed(world, request(pool="last"))).sandbox
    await released(world, sandbox)
    bound = await claimed(world, request("r2", pool="last", workspace_id=sandbox.workspace_id))
    assert bound.sandbox.workspace_id == sandbox.workspace_id


async def test_pools_are_listed_with_what_they_lack(world):
    await world.cluster.until(lambda: world.running.scheduler.summary("team/fast").warm == 2)
    await claimed(world)
    (pool,) = (await world.stub.ListPools(fleet_pb2.ListPoolsRequest(namespace="team"), metadata=ALICE)).pools
    assert (pool.pool_id, pool.template, pool.target_warm, pool.claimed, pool.hit_rate) == (
        "team/fast",
        "python",
        2,
        1,
        1.0,
    )
    code, _ = await refusal(world.stub.ListPools(fleet_pb2.ListPoolsRequest(), metadata=ALICE))
    assert code == "PERMISSION_DENIED"


async def test_a_watch_says_what_is_there_and_then_what_happens(world):
    await claimed(world)
    await world.cluster.until(world.cluster.objects)
    watching = world.stub.Watch(fleet_pb2.WatchRequest(namespace="team"), metadata=ALICE)
    first, synced = await watching.read(), await watching.read()
    assert (first.changed.pool or first.changed.template, synced.synced) == ("python", True)
    await claimed(world, request("r2"))
    async with asyncio.timeout(60):
        while (await watching.read()).changed.sandbox_id == first.changed.sandbox_id:
            pass
    watching.cancel()


async def test_a_deposed_fleet_answers_no_caller(world):
    world.running.state["leading"] = None
    code, said = await refusal(world.stub.Claim(request(), metadata=ALICE))
    assert (code, "another fleet leads" in said) == ("UNAVAILABLE", True)


OPENS = {"allow": [{"cidr": "203.0.113.7/32", "ports": [{"protocol": "TCP", "port": 443}]}]}


async def test_egress_is_opening_in_the_reply_and_open_in_whatever_is_asked_later(world):
    await world.cluster.add(template_object("open", egress=OPENS), pool_object("open", 1, "open"))
    answer = asyncio.Event()

    async def reaches(_):
        await answer.wait()
        return [True]

    world.running.pretended.reaches = reaches
    bound = await claimed(world, request("a", pool="open"))
    assert (bound.egress, bound.sandbox.egress.reason) == (fleet_pb2.EGRESS_STATE_OPENING, "Asking")
    name = bound.sandbox.sandbox_id
    await world.cluster.until(world.cluster.objects)
    watching = world.stub.Watch(fleet_pb2.WatchRequest(namespace="team"), metadata=ALICE)
    first = await watching.read()
    assert (first.changed.sandbox_id, first.changed.egress.state) == (name, fleet_pb2.EGRESS_STATE_OPENING)
    before = time.time()
    answer.set()
    async with asyncio.timeout(60):
        while (seen := await watching.read()).changed.egress.state != fleet_pb2.EGRESS_STATE_OPEN:
            pass
    watching.cancel()
    assert before <= seen.changed.egress.since.ToMicroseconds() / 1e6 <= time.time()
    assert seen.changed.egress.message == "answered: 203.0.113.7:443"
    allow(world, name, "get", "create/connect")
    got = await world.stub.Get(fleet_pb2.GetRequest(sandbox_id=name), metadata=ALICE)
    renewed = await world.stub.Renew(fleet_pb2.RenewRequest(sandbox_id=name), metadata=ALICE)
    (listed,) = (await world.stub.List(fleet_pb2.ListRequest(namespace="team"), metadata=ALICE)).sandboxes
    assert got.sandbox.egress == listed.egress == renewed.sandbox.egress == seen.changed.egress
    # The same request again is the same claim, of which more is known by now.
    assert (await claimed(world, request("a", pool="open"))).egress == fleet_pb2.EGRESS_STATE_OPEN


async def test_of_a_sandbox_that_no_claim_serves_nothing_is_said(world):
    await world.add()
    allow(world, "team/one", "get")
    found = await world.stub.Get(fleet_pb2.GetRequest(sandbox_id="team/one"), metadata=ALICE)
    assert not found.sandbox.HasField("egress")


# Which queues the namespace has, what the claim names, what the caller may do → the refusal; nothing: it is bound.
CLASSES = [{"name": "high", "restricted": True}, {"name": "low"}]
USE, PRIORITIZE = ("queue claim", "team", "default"), ("queue prioritize", "team", "default")
QUEUED = {
    "without a queue no review": ((), {}, [], ("", "")),
    "the default queue without the right": (("default",), {}, [], ("PERMISSION_DENIED", "alice may not claim sandboxqueues.sandfleet.io default in namespace team")),
    "the default queue": (("default",), {}, [USE], ("", "")),
    "another queue": (("default", "other"), {"queue": "other"}, [USE], ("PERMISSION_DENIED", "may not claim sandboxqueues.sandfleet.io other")),
    "a free class": (("default",), {"priority": "low"}, [USE], ("", "")),
    "a restricted class": (("default",), {"priority": "high"}, [USE], ("PERMISSION_DENIED", "cannot claim: priority class 'high' of queue team/default is restricted")),
    "a restricted class by right": (("default",), {"priority": "high"}, [USE, PRIORITIZE], ("", "")),
    "a queue that is not there": ((), {"queue": "default"}, [USE], ("NOT_FOUND", "there is no queue 'team/default'")),
}  # fmt: skip


@pytest.mark.parametrize("name", QUEUED)
async def test_who_may_claim_in_a_queue_and_with_a_restricted_class(world, name):
    queues, asked, rights, (code, said) = QUEUED[name]
    for queue in queues:
        spec = {"nominalQuota": {"sandboxes": 2}, "priorityClasses": CLASSES}
        meta = {"namespace": "team", "name": queue}
        await world.cluster.add({"apiVersion": "sandfleet.io/v1alpha1", "kind": "SandboxQueue", "metadata": meta, "spec": spec})  # fmt: skip
    await world.cluster.until(lambda: len(world.running.scheduler.queues.names) == len(queues))
    world.kube.allowed |= {("alice", *right) for right in rights}
    if code:
        found = await refusal(world.stub.Claim(request(**asked), metadata=ALICE, timeout=10))
        assert (found[0], said in found[1]) == (code, True), found
    else:
        assert (await claimed(world, request(**asked))).sandbox.pool == "fast"
    on_queues = [one for one in world.kube.reviews if "sandboxqueues" in str(one)]
    assert bool(on_queues) == bool(queues or asked)


async def test_the_object_of_a_claim_names_its_queue_and_class(world):
    meta = {"namespace": "team", "name": "default"}
    spec = {"nominalQuota": {"sandboxes": 2}, "priorityClasses": [{"name": "low"}]}
    await world.cluster.add({"apiVersion": "sandfleet.io/v1alpha1", "kind": "SandboxQueue", "metadata": meta, "spec": spec})  # fmt: skip
    await world.cluster.until(lambda: world.running.scheduler.queues.names)
    world.kube.allowed |= {("alice", *USE)}
    bound = await claimed(world, request(priority="low"))
    await world.cluster.until(world.cluster.objects)
    (made,) = world.cluster.objects()
    assert bound.sandbox.sandbox_id == f"team/{made['metadata']['name']}"
    assert (made["spec"]["queueRef"], made["spec"]["priorityClass"]) == ({"name": "default"}, "low")


async def test_a_session_that_ended_for_the_owner_of_its_quota_says_so(world):
    await world.cluster.add(template_object("quick", workspace={"size": "1Gi", "ephemeral": True}))
    for name, more in (("owner", {}), ("guest", {"preemption": "Release"})):
        spec = {"nominalQuota": {"sandboxes": 1}, "cohort": "all", **more}
        meta = {"namespace": "team", "name": name}
        await world.cluster.add(
            {"apiVersion": SANDBOX_QUEUE.api_version, "kind": SANDBOX_QUEUE.kind, "metadata": meta, "spec": spec}
        )
        world.kube.allowed.add(("alice", "queue claim", "team", name))
    await world.cluster.until(lambda: len(world.running.scheduler.queues.names) == 2)

    async def idle(_sandbox):
        return 60.0

    async def suspend(_sandbox, **_how):
        return session_pb2.Suspension()

    world.running.pretended.idle, world.running.pretended.suspend = idle, suspend
    names = [
        (await claimed(world, request(one, template="quick", queue="guest"))).sandbox.sandbox_id for one in ("r1", "r2")
    ]
    await claimed(world, request("r3", template="quick", queue="owner"), timeout=60)
    await world.cluster.until(lambda: len([one for one in names if world.running.session_of(one) is None]) == 1)
    name = next(one for one in names if world.running.session_of(one) is None)
    allow(world, name, "get")
    found, said = await refusal(world.stub.Get(fleet_pb2.GetRequest(sandbox_id=name), metadata=ALICE))
    assert (found, said) == ("NOT_FOUND", f"cannot get sandbox {name}: it ended: Preempted")
