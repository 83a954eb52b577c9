"""The fleet's service on Kubernetes, over TLS: who is let in, what they get, and in which words they are refused."""

import asyncio
import ssl
import time

import grpc
import jwt
import pytest
from sandfleet._wire.api import common
from sandfleet.errors import (
    AccessDenied,
    AuthenticationError,
    InvalidArgument,
    PreconditionFailed,
    SandboxEnded,
    UnavailableError,
)
from sandfleet_api.executor.v1.session_pb2 import ISOLATION_GVISOR
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref
from sandfleet_operator.executors.tokens import MAX_LIFETIME
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.serve import CERTIFICATE_SECONDS, Options, PortCertificate
from support.fleet.gateway import fleet_world
from support.fleet.on_kubernetes import POD_UID, SYSTEM, TURNS, new_signing
from support.kubernetes import world as kubernetes_world


@pytest.fixture
async def world():
    async with fleet_world() as made:
        made.kube.knows("alice", "alice")
        rights = {("get", "team", "one"), ("create/connect", "team", "one"), ("list", "", "")}
        made.kube.allowed |= {("alice", *right) for right in rights}
        yield made


ONE = Ref(CODE_SANDBOX, "team", "one")
ALICE = (("authorization", "Bearer alice"),)
READY = [
    {"type": "Ready", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
]


# What is given.


async def test_who_may_get_the_object_gets_the_way_to_its_executor(world):
    await world.add(labels={"a": "b"})
    sandbox, access = await world.fleet().access("team/one", wait=10)
    assert (sandbox.sandbox_id, sandbox.sandbox_uid, sandbox.template) == ("team/one", POD_UID, "python")
    assert (sandbox.state, sandbox.isolation) == (fleet_pb2.SANDBOX_STATE_CLAIMED, ISOLATION_GVISOR)
    assert (dict(sandbox.labels), sandbox.workspace_id) == ({"a": "b"}, "workspace-one")
    assert (sandbox.restarts, sandbox.last_restart_reason) == (1, "PodDeleted")
    assert (access.address, access.ca_pem) == ("10.0.0.7:50051", world.signing.authority.pem)
    key = world.signing.material.tokens.keys[0].private.public_key()
    claims = jwt.decode(access.token, key, algorithms=["EdDSA"], audience=POD_UID)
    assert (claims["sub"], claims["sid"], claims["scope"]) == (
        "alice",
        "team.one",
        "interpreter process filesystem session ports tools",
    )
    assert claims["exp"] - claims["iat"] <= MAX_LIFETIME + 1
    assert access.token_expires.seconds == claims["exp"]


@pytest.mark.smoke
async def test_without_access_an_object_in_any_state_is_described(world):
    await world.add(status=False)
    assert (await world.fleet().get("team/one")).state == "starting"
    answer = await FleetServiceStub(world.channel()).Get(
        fleet_pb2.GetRequest(sandbox_id="team/one"), metadata=(("authorization", "Bearer alice"),)
    )
    assert not answer.HasField("access")


@pytest.mark.smoke
async def test_the_api_server_is_asked_about_the_caller_as_it_described_it(world):
    await world.add()
    await world.fleet().get("team/one")
    token, everywhere, access = (review["spec"] for review in world.kube.reviews)
    assert token == {"token": "alice", "audiences": ["sandfleet"]}
    alice = {"user": "alice", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}
    asked = {"group": "sandfleet.io", "resource": "codesandboxes", "verb": "get", "namespace": "team"}
    assert everywhere == {**alice, "resourceAttributes": asked}
    assert access == {**alice, "resourceAttributes": {**asked, "name": "one"}}


# Who is let in.


@pytest.mark.smoke
async def test_a_call_without_one_good_token_is_not_let_in(world):
    await world.add()
    stub = FleetServiceStub(world.channel())
    good = ("authorization", "Bearer alice")
    await stub.Get(fleet_pb2.GetRequest(sandbox_id="team/one"), metadata=(good,))
    for metadata in ((), (("authorization", "alice"),), (("authorization", "Basic alice"),), (good, good)):
        calls = (
            stub.Get(fleet_pb2.GetRequest(sandbox_id="team/one", with_access=True), metadata=metadata),
            stub.List(fleet_pb2.ListRequest(), metadata=metadata),
            stub.Release(fleet_pb2.ReleaseRequest(), metadata=metadata),
            stub.Renew(fleet_pb2.RenewRequest(), metadata=metadata),
            stub.Claim(fleet_pb2.ClaimRequest(), metadata=metadata).read(),
        )
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            said = dict(caught.value.trailing_metadata())["sandfleet-error-bin"]
            assert common.ErrorDetail.FromString(said).reason == "TokenMissing"


TOKENS = {
    "unknown": ({"authenticated": False, "error": "invalid bearer token"}, "invalid bearer token"),
    "for another audience": ({"authenticated": True, "audiences": ["x"], "user": {"username": "alice"}}, "audience"),
    "of an authenticator without audiences": ({"authenticated": True, "user": {"username": "alice"}}, "audience"),
    "without a user": ({"authenticated": True, "audiences": ["sandfleet"], "user": {}}, "does not say who"),
    "with an answer of another kind": ({"authenticated": "true", "audiences": ["sandfleet"]}, "does not accept"),
    "with no answer": ({}, "does not accept"),
}


@pytest.mark.parametrize("what", TOKENS)
async def test_a_token_that_is_not_clearly_accepted_is_refused(world, what):
    await world.add()
    world.kube.tokens["bad"], why = TOKENS[what]
    refused = await world.refusal(AuthenticationError, "bad")
    assert (refused.reason, refused.retryable) == ("TokenInvalid", False)
    assert why in refused.message


@pytest.mark.parametrize("sandbox", ["team/two", "other/one", "team/absent"])
async def test_without_the_right_nothing_is_said_not_even_whether_it_is_there(world, sandbox):
    for name, namespace in (("two", "team"), ("one", "other")):
        await world.add(name, namespace)
    refused = await world.refusal(AccessDenied, sandbox=sandbox)
    namespace, _, name = sandbox.partition("/")
    assert refused.message == (
        f"cannot get sandboxes: alice may not get codesandboxes.sandfleet.io {name} in namespace {namespace};"
        " a RoleBinding can allow it"
    )


@pytest.mark.smoke
async def test_who_may_only_look_gets_no_way_to_run_code(world):
    await world.add()
    world.kube.allowed.discard(("alice", "create/connect", "team", "one"))
    assert (await world.fleet().get("team/one")).sandbox_id == "team/one"
    refused = await world.refusal(AccessDenied, sandbox="team/one")
    assert "may not create codesandboxes/connect.sandfleet.io one in namespace team" in refused.message


@pytest.mark.smoke
async def test_while_reviews_fail_no_caller_is_let_in_and_no_secret_is_told(world):
    await world.add()
    world.kube.broken = True
    refused = await world.refusal(UnavailableError)
    assert (refused.reason, refused.retryable) == ("ReviewFailed", True)
    assert "secret" not in refused.message


@pytest.mark.smoke
async def test_a_client_that_trusts_another_authority_does_not_send_its_token(world):
    other = await new_signing()
    await world.refusal(UnavailableError, ca=other.authority.pem)
    assert world.kube.reviews == []


# What is refused, and in which words.


@pytest.mark.parametrize(
    ("condition", "retryable"),
    [
        (("Ready", "False", "ImagePullFailed", "no such image"), False),
        (("Ready", "False", "TemplateNotFound", "no template python"), False),
        (("Ready", "False", "PodStarting", "it is starting"), True),
        (("Ready", "Unknown", "NodeNotResponding", "node n is silent"), False),
        (("Ready", "False", "Suspended", "it is suspended"), False),
        (("Ready", "False", "PodDeleted", "another one comes"), True),
    ],
)
async def test_one_that_is_not_ready_is_refused_with_its_own_reason(world, condition, retryable):
    await world.add()
    await world.say(conditions=(("Isolated", "True", "Isolated", ""), condition))
    refused = await world.refusal(PreconditionFailed)
    assert (refused.reason, refused.retryable, refused.subject) == (condition[2], retryable, "team/one")
    assert refused.message == f"cannot open sandbox team/one: {condition[2]}: {condition[3]}"


@pytest.mark.parametrize("missing", ["address", "podUID"])
async def test_ready_without_an_address_or_a_pod_is_not_ready(world, missing):
    await world.add()
    await world.say(**{missing: None})
    assert (await world.refusal(PreconditionFailed)).retryable


@pytest.mark.smoke
async def test_one_that_the_operator_has_not_seen_is_not_ready(world):
    await world.add(status=False)
    assert (await world.refusal(PreconditionFailed)).reason == "PodStarting"


@pytest.mark.parametrize(
    "brought", [{"env": [{"name": "BASH_ENV", "value": "/workspace/x"}]}, {"workspace": {"claimName": "earlier"}}]
)
async def test_a_reviewed_one_that_brings_what_no_reviewer_has_seen_is_not_opened(world, brought):
    await world.add(spec={"contract": "Reviewed", **brought})
    refused = await world.refusal(PreconditionFailed)
    assert refused.reason == "ContractNotSupported"
    assert "may bring code that no reviewer has seen" in refused.message


VICTIM = {"podName": "victim", "podUID": "uid-of-the-victim", "address": "10.0.0.66:50051"}


async def the_victim(world):
    """A pod of another namespace, which its own object names."""
    await world.add("victim", "other", status=False)
    await world.say("victim", "other", **VICTIM)
    world.kube.allowed |= {("alice", "create/connect", "team", "one")}


@pytest.mark.parametrize("name", ["victim", "one"])
async def test_a_status_that_names_a_pod_of_another_namespace_gives_no_token_and_no_way(world, name, monkeypatch):
    await the_victim(world)
    await world.add(status=False)
    # The pod of the own object is there; its status is written by an account of the namespace.
    world.run(await world.kube.get(ONE), {**VICTIM, "podName": "one", "podUID": "own", "address": "10.0.0.7:50051"})
    status = {**VICTIM, "podName": name, "conditions": READY}
    await world.kube.merge(ONE, {"status": status}, "status")
    refused = await world.refusal(PreconditionFailed)
    assert (refused.reason, "which is not its own" in refused.message) == ("PodStarting", True)
    route = FleetServiceStub(world.channel()).Route(fleet_pb2.RouteRequest(sandbox_id="team/one"), metadata=ALICE)
    with pytest.raises(grpc.aio.AioRpcError):
        await route
    # Control: where the status is believed, the caller gets a token for the victim's executor.
    monkeypatch.setattr(KubernetesFleet, "endpoint", lambda _self, sandbox: feed.endpoint(sandbox))
    _, access = await world.fleet().access("team/one", wait=10)
    assert access.address == VICTIM["address"]
    assert jwt.decode(access.token, options={"verify_signature": False})["aud"] == VICTIM["podUID"]


@pytest.mark.parametrize(
    "changes",
    [
        {"ownerReferences": []},
        {"ownerReferences": [{"kind": "CodeSandbox", "name": "two", "uid": "of-another"}]},
        {"uid": "a-later-one"},
    ],
    ids=["no owner", "another's", "another uid"],
)
async def test_a_pod_of_the_own_namespace_has_to_name_the_object_too(world, changes):
    await world.add()
    world.run(await world.kube.get(ONE), {"podName": "one", "podUID": POD_UID, "address": "10.0.0.7:50051"}, **changes)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert (await world.refusal(PreconditionFailed)).reason == "PodStarting"


@pytest.mark.smoke
async def test_one_that_is_over_has_ended(world):
    await world.add()
    await world.say(conditions=(("Expired", "True", "LifetimeOver", ""), ("Ready", "False", "LifetimeOver", "")))
    assert (await world.refusal(SandboxEnded)).reason == "LifetimeOver"
    await world.kube.delete(Ref(CODE_SANDBOX, "team", "one"))
    refused = await world.refusal(SandboxEnded)
    assert (refused.reason, refused.message) == (
        "SandboxNotFound",
        "cannot get sandbox team/one: there is no CodeSandbox one in namespace team",
    )


@pytest.mark.parametrize(
    "sandbox", ["", "one", "a/b/c", "../x", "Team/one", "team/", "/one", "team/one\n", "t" * 64 + "/a"]
)
async def test_an_id_that_is_none_is_refused(world, sandbox):
    assert (await world.refusal(InvalidArgument, sandbox=sandbox)).reason == "InvalidId"


@pytest.mark.smoke
async def test_a_release_deletes_no_sandbox_that_got_the_name_meanwhile(world):
    world.kube.allowed |= {("alice", "delete", "team", "one")}
    await world.add()
    ref = Ref(CODE_SANDBOX, "team", "one")

    def another(write):
        if write.verb == "delete":
            world.kube.cluster.edit(ref, lambda obj: obj["metadata"].update(uid="another"))

    world.kube.fault = another
    assert not await world.fleet().release("team/one")
    assert world.kube.cluster.objects[ref]["metadata"]["uid"] == "another"


@pytest.mark.smoke
async def test_what_people_made_has_no_lease_and_is_released_by_its_deletion(world):
    await world.add()
    fleet = world.fleet()
    with pytest.raises(PreconditionFailed) as caught:
        await fleet.renew("team/one", 10)
    assert caught.value.reason == "NoLease"
    with pytest.raises(AccessDenied):
        await fleet.release("team/one")
    world.kube.allowed.add(("alice", "delete", "team", "one"))
    assert await fleet.release("team/one")
    assert not await fleet.release("team/one")


# Lists.


async def test_a_list_needs_the_right_for_all_namespaces_and_comes_in_pages(world):
    for name in ("c", "a", "b"):
        await world.add(name, "team", {"x": name})
    await world.add("a", "other", {"x": "a"})
    assert [one.sandbox_id for one in await world.fleet().list()] == ["other/a", "team/a", "team/b", "team/c"]
    assert [one.sandbox_id for one in await world.fleet().list("x=a")] == ["other/a", "team/a"]
    stub, pages, token = FleetServiceStub(world.channel()), [], ""
    while True:
        request = fleet_pb2.ListRequest(page_size=3, page_token=token)
        answer = await stub.List(request, metadata=(("authorization", "Bearer alice"),))
        pages.append([one.sandbox_id for one in answer.sandboxes])
        if not (token := answer.next_page_token):
            break
    assert pages == [["other/a", "team/a", "team/b"], ["team/c"]]
    world.kube.knows("bob", "bob")
    world.kube.allowed.add(("bob", "list", "team", ""))
    with pytest.raises(AccessDenied, match=r"may not list codesandboxes\.sandfleet\.io in all namespaces"):
        await world.fleet("bob").list()


@pytest.mark.parametrize("selector", ["x in (a)", "!x", "x=" + "a" * 20_000])
async def test_a_selector_that_is_none_is_refused(world, selector):
    with pytest.raises(InvalidArgument):
        await world.fleet().list(selector)


# The port.


@pytest.mark.smoke
async def test_the_port_shows_a_certificate_for_each_of_its_names(world):
    context = ssl.create_default_context(cadata=world.signing.authority.pem.decode())
    for name in (
        "sandfleet-fleet",
        f"sandfleet-fleet.{SYSTEM}",
        f"sandfleet-fleet.{SYSTEM}.svc",
        "localhost",
        "10.9.9.9",
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", world.port, ssl=context, server_hostname=name)
        writer.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", world.port, ssl=context, server_hostname="elsewhere")


@pytest.mark.smoke
async def test_the_certificate_is_renewed_before_it_ends_and_when_the_authority_changed(world):
    now = [time.time()]
    options = Options(namespace=SYSTEM, settings=kubernetes_world.SETTINGS, identity="fleet-0")
    shown = PortCertificate(world.signing, options, lambda: now[0])
    first = shown.configuration()
    await world.signing.refresh()
    assert shown.configuration() is first
    now[0] += CERTIFICATE_SECONDS / 2
    second = shown.configuration()
    assert second is not first
    world.signing._material = (await new_signing()).material
    assert shown.configuration() is not second
