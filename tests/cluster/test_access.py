"""How callers reach a sandbox of a real cluster: tokens, rights, kubectl, and a pod that the plan has made."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cluster.access_bed import FleetBed, a_grant, an_object, fleet_bed
from cluster.harness.api import path_of
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from sandfleet import Sandbox
from sandfleet._fleets.cluster import Place
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main
from sandfleet.errors import AccessDenied, AuthenticationError, PreconditionFailed, SandboxEnded
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.cluster.kube import connect
from sandfleet_operator.executors.contact import Contacts, Executor
from sandfleet_operator.executors.signing import Signing
from sandfleet_operator.plan.pods.merge import Effective, effective
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.pods.podspec import PodRequest, keys_config_map, sandbox_pod, trusting
from sandfleet_operator.plan.pods.volume import workspace_claim
from support.operator.builders import SETTINGS, a_spec, a_template

pytestmark = pytest.mark.usefixtures("kinds")
Json = dict[str, Any]
IMAGE = "localhost/sandfleet-executor:dev"
MAY_LOOK = [{"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes"], "verbs": ["get"]}]
MAY_GET = [*MAY_LOOK, {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/connect"], "verbs": ["create"]}]


# Namespaces that the fleet watches: it gives no access to a sandbox whose pod it does not see.
WATCHED = [f"watched-{secrets.token_hex(4)}" for _ in range(12)]


@pytest.fixture(scope="module")
def bed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetBed]:
    with fleet_bed(cluster, tmp_path_factory.mktemp("fleet"), tuple(WATCHED)) as made:
        yield made


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return iter(WATCHED)


@pytest.fixture
def team(new_namespace, bed: FleetBed, names: Iterator[str]) -> str:
    """With the account `agent`, which may get sandboxes there, and `stranger`, which may do nothing."""
    name: str = new_namespace(name=next(names))
    accounts = [an_object("v1", "ServiceAccount", account, name) for account in ("agent", "stranger")]
    bed.apply(*accounts, *a_grant("", "get-sandboxes", MAY_GET, (name, "agent"), name))
    return name


def a_sandbox(bed: FleetBed, namespace: str, name: str = "one", **status: Any) -> str:
    """Make one with a status as the operator writes it, about a pod that no node takes. Return the pod's uid."""
    made = sandbox_pod(PodRequest(namespace=namespace, name=name, wanted=wanted()), SETTINGS)
    made = owned(bed, {**made, "spec": {**made["spec"], "schedulerName": "none"}})
    addressed = {"status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]}}
    path = f"{path_of('Pod', namespace, name)}/status"
    return told(bed, bed.cluster.api.call("PATCH", path, addressed, "application/merge-patch+json"), **status)


def owned(bed: FleetBed, pod: Json) -> Json:
    """The pod and its CodeSandbox, made as the operator makes them: a fleet ends a claimed pod that has no owner."""
    create, meta = bed.cluster.api.create, pod["metadata"]
    spec = {"templateRef": {"name": "none"}}
    made = create(an_object("sandfleet.io/v1alpha1", "CodeSandbox", meta["name"], meta["namespace"], spec=spec))
    owner = {"apiVersion": made["apiVersion"], "kind": "CodeSandbox", "name": meta["name"], "controller": True}
    owners = [{**owner, "uid": made["metadata"]["uid"]}]
    answer: Json = create({**pod, "metadata": {**meta, "ownerReferences": owners}})
    return answer


def told(bed: FleetBed, pod: Json, **status: Any) -> str:
    """The status of the pod's CodeSandbox says that the pod is ready. Return the pod's uid."""
    namespace, name, uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
    address = f"{pod['status']['podIP']}:{SETTINGS.executor_port}"
    full = {"podName": name, "podUID": uid, "address": address, "runtime": "gvisor", **status}
    ready = {"type": "Ready", "status": "True", "reason": "ExecutorAnswers", "message": ""}
    full["conditions"] = [{**ready, **full.pop("ready", {}), "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    path = f"{path_of('CodeSandbox', namespace, name)}/status"
    bed.cluster.api.call("PATCH", path, {"status": full}, "application/merge-patch+json")
    return str(uid)


class Known:
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


async def asked(bed: FleetBed, token: str, sandbox: str) -> Json:
    """What a caller with this token gets: the claims of its capability token, and where to go."""
    ca = bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"].encode()
    address = f"127.0.0.1:{bed.port}"
    async with AsyncFleet(address, Place(address, ca, "localhost", Known(token))) as fleet:
        _, access = await fleet.access(sandbox, wait=10)
        assert access.ca_pem == ca
        return jwt.decode(access.token, options={"verify_signature": False}) | {"address": access.address}


async def test_a_caller_that_may_get_a_sandbox_gets_access_to_it_and_to_no_other(
    bed: FleetBed, team: str, new_namespace, names: Iterator[str]
) -> None:
    other = new_namespace(name=next(names))
    uid = a_sandbox(bed, team)
    a_sandbox(bed, other)
    token = bed.token(team, "agent")
    given = await asked(bed, token, f"{team}/one")
    assert (given["address"], given["aud"]) == ("192.0.2.1:50051", uid)
    assert (given["sub"], given["sid"]) == (f"system:serviceaccount:{team}:agent", f"{team}.one")
    for sandbox in (f"{other}/one", f"{other}/absent"):
        with pytest.raises(
            AccessDenied, match=f"system:serviceaccount:{team}:agent may not get .* in namespace {other}"
        ):
            await asked(bed, token, sandbox)
    with pytest.raises(SandboxEnded):
        await asked(bed, token, f"{team}/absent")


async def test_an_account_without_the_right_gets_nothing(bed: FleetBed, team: str) -> None:
    uid = a_sandbox(bed, team)
    with pytest.raises(AccessDenied, match=f"{team}:stranger may not get"):
        await asked(bed, bed.token(team, "stranger"), f"{team}/one")
    bed.apply(*a_grant("", "more", MAY_GET, (team, "stranger"), team))
    assert (await asked(bed, bed.token(team, "stranger"), f"{team}/one"))["aud"] == uid


@pytest.mark.parametrize("audience", ["", "other"])
async def test_a_token_for_another_audience_is_refused(bed: FleetBed, team: str, audience: str) -> None:
    a_sandbox(bed, team)
    with pytest.raises(AuthenticationError):
        await asked(bed, bed.token(team, "agent", audience=audience), f"{team}/one")


async def test_a_token_of_a_deleted_account_is_refused(bed: FleetBed, team: str) -> None:
    a_sandbox(bed, team)
    token = bed.token(team, "agent")
    bed.cluster.api.delete("ServiceAccount", "agent", team)
    with pytest.raises(AuthenticationError):
        await asked(bed, token, f"{team}/one")


async def test_an_expired_token_is_refused(bed: FleetBed, team: str, node: Cluster) -> None:
    """The API server makes none that is: it is signed here, with the key of a cluster of ours."""
    assert node.layout is not None
    uid = a_sandbox(bed, team)
    good = bed.token(team, "agent")
    claims, head = jwt.decode(good, options={"verify_signature": False}), jwt.get_unverified_header(good)
    key: Any = load_pem_private_key((node.layout.pki / "service-accounts.key").read_bytes(), None)

    def until(end: int) -> str:
        times = {"iat": end - 7200, "nbf": end - 7200, "exp": end}
        return jwt.encode({**claims, **times}, key, algorithm=head["alg"], headers={"kid": head["kid"]})

    with pytest.raises(AuthenticationError, match="expired"):
        await asked(bed, until(int(time.time()) - 60), f"{team}/one")
    # The control: only the time was wrong.
    assert (await asked(bed, until(int(time.time()) + 600), f"{team}/one"))["aud"] == uid


async def test_a_sandbox_that_is_not_ready_says_why_in_the_operators_words(bed: FleetBed, team: str) -> None:
    a_sandbox(bed, team, ready={"status": "False", "reason": "ImagePullFailed", "message": "no such image"})
    with pytest.raises(PreconditionFailed, match=f"cannot open sandbox {team}/one: ImagePullFailed: no such image"):
        await asked(bed, bed.token(team, "agent"), f"{team}/one")


def test_the_fleet_has_no_right_that_it_does_not_need(bed: FleetBed) -> None:
    """All that is above was done with these."""
    account = f"system:serviceaccount:{bed.namespace}:fleet"
    for words in (
        ["list", "secrets"],
        ["get", "secrets"],
        ["create", "pods", "--subresource=exec"],
        ["update", "codesandboxes.sandfleet.io"],
    ):
        # kubectl says it by its exit code as well.
        with pytest.raises(ClusterError, match=r": no$"):
            bed.cluster.kubectl("auth", "can-i", *words, "--as", account, "-n", bed.namespace)


# A pod of the planner's, from its first contact to a cell that a stranger to the cluster runs with kubectl.


def wanted() -> Effective:
    made = effective(replace(a_template(), image=IMAGE), a_spec(), replace(SETTINGS, allowed_images=(IMAGE,)))
    assert isinstance(made, Effective)
    return made


@pytest.fixture
async def signing(bed: FleetBed) -> AsyncIterator[Signing]:
    kube = await connect("access-test", str(bed.cluster.kubeconfig))
    made = Signing(kube, bed.namespace, time.time)
    await made.load()
    yield made
    await kube.close()


@pytest.fixture
async def pod(bed: FleetBed, executor_image: Cluster, signing: Signing, new_namespace, names: Iterator[str]) -> Json:
    namespace = new_namespace({"pod-security.kubernetes.io/enforce": "restricted"}, next(names))
    create = bed.cluster.api.create
    create(keys_config_map(namespace, signing.public_keys))
    create(workspace_claim(namespace, "one", wanted(), owner=None))
    made_of = sandbox_pod(PodRequest(namespace=namespace, name="one", wanted=wanted()), SETTINGS)
    owned(bed, trusting(made_of, signing.authority.public_text))
    return await asyncio.to_thread(bed.cluster.pod_ready, namespace, "one", 120)


async def test_a_sandbox_is_reached_with_nothing_but_its_name_and_kubectl(
    bed: FleetBed, pod: Json, signing: Signing, node: Cluster, tmp_path, monkeypatch, capsys
) -> None:
    namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
    address = f"{pod['status']['podIP']}:{SETTINGS.executor_port}"
    there = Executor(address=address, pod_uid=uid, session_id=session_id(namespace, "one"))
    contacts = Contacts(signing, time.time, deadline=30.0)
    found = await contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert found.runtime == "gvisor"
    assert "gvisor" in found.kernel.lower()
    await contacts.contact(there, isolation=Isolation.GVISOR, first=False)
    assert (await contacts.open(there)).session_id == f"{namespace}.one"

    told(bed, pod)
    bed.apply(*a_grant("", "get-sandboxes", MAY_GET, (namespace, "default"), namespace))
    bed.publish(node.addresses.machine)
    for name in [name for name in os.environ if name.startswith("SANDFLEET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KUBECONFIG", str(bed.cluster.kubeconfig))
    monkeypatch.setenv("SANDFLEET_KUBECTL", str(bed.cluster.programs["kubectl"]))
    monkeypatch.setenv("SANDFLEET_NAMESPACE", bed.namespace)
    (tmp_path / "code.py").write_text("print(kept)")

    def use() -> None:
        with Sandbox.connect(f"{namespace}/one") as sandbox:
            assert sandbox.run_code("kept = 41\n1 + 1").text == "2"
            assert sandbox.commands.run("id -u").stdout == "1000\n"
            info = sandbox.get_info()
            assert (info.sandbox_id, info.sandbox_uid, info.isolation) == (f"{namespace}/one", uid, "gvisor")
        # It is still there, with its variables.
        assert main(["run", "--sandbox", f"{namespace}/one", str(tmp_path / "code.py")]) == 0

    await asyncio.to_thread(use)
    assert capsys.readouterr().out == "41\n"
