"""How a client finds the fleet of a cluster and says who it is, without a cluster: kubectl is a script."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet._fleets import cluster, port_forward
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._wire import api
from sandfleet._wire.link import Link
from sandfleet.errors import (
    PreconditionFailed,
    RpcTimeout,
    SandboxError,
    UnavailableError,
)
from sandfleet.sandbox import AsyncSandbox
from support.client.fake_kubectl import Kubectl, a_token

pytestmark = pytest.mark.process

FORWARD = ["port-forward", "--namespace", "sandfleet-system", "--address", "127.0.0.1"]


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Which addresses of pods this machine reaches; without a word, all."""
    reached: dict[str, bool] = {}
    monkeypatch.setattr(cluster, "_answers", lambda address: reached.get(address, True))
    return reached


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("SANDFLEET_", "KUBERNETES_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    (tmp_path / "ca").write_text("OURS")
    (tmp_path / "token").write_text("first\n")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubectl]:
    (tmp_path / "bin").mkdir()
    made = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    yield made
    port_forward.stop()


def name_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str = "fleet.example:443") -> None:
    monkeypatch.setenv("SANDFLEET_FLEET", address)
    monkeypatch.setenv("SANDFLEET_FLEET_CA", str(tmp_path / "ca"))
    monkeypatch.setenv("SANDFLEET_TOKEN_FILE", str(tmp_path / "token"))


def be_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "ca.crt").write_text("POD")
    (tmp_path / "pod" / "token").write_text("projected")
    monkeypatch.setattr(cluster, "POD_FILES", tmp_path / "pod")


def test_the_fleet_that_is_named_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kubectl: Kubectl) -> None:
    be_a_pod(monkeypatch, tmp_path)
    name_it(monkeypatch, tmp_path)
    found = cluster.find("team")
    assert (found.address, found.ca, found.name) == ("fleet.example:443", b"OURS", "fleet.example")
    assert found.tokens.token() == "first"
    assert kubectl.asked() == []


@pytest.mark.parametrize(("system", "name"), [("", "sandfleet-system"), ("ours", "ours")])
def test_a_pod_uses_its_own_clusters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kubectl: Kubectl, system: str, name: str
) -> None:
    be_a_pod(monkeypatch, tmp_path)
    monkeypatch.setenv("SANDFLEET_NAMESPACE", system)
    found = cluster.find("team")
    assert found.address == f"sandfleet-fleet.{name}.svc:8443"
    assert (found.ca, found.name) == (b"POD", f"sandfleet-fleet.{name}.svc")
    assert found.tokens.token() == "projected"
    assert kubectl.asked() == []


def test_kubectl_is_the_last_source_of_place_and_token(kubectl: Kubectl) -> None:
    found = cluster.find("team")
    assert (found.address, found.ca, found.name) == ("10.1.0.5:8443", b"PEM", "sandfleet-fleet")
    assert found.tokens.token() == kubectl.answers["token"]
    assert found.tokens.token() == kubectl.answers["token"]
    system = ["--namespace", "sandfleet-system", "--output", "json"]
    assert kubectl.asked() == [
        ["get", "configmap", "sandfleet-ca", *system],
        ["get", "endpointslices", "-l", "kubernetes.io/service-name=sandfleet-fleet", *system],
        ["create", "token", "default", "--namespace", "team", "--audience", "sandfleet"],
    ]


def test_kubectl_its_account_and_the_namespace_of_the_control_plane_can_be_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    named = Kubectl(tmp_path / "elsewhere")
    monkeypatch.setenv("SANDFLEET_KUBECTL", str(named.program))
    monkeypatch.setenv("SANDFLEET_SERVICE_ACCOUNT", "agent")
    monkeypatch.setenv("SANDFLEET_NAMESPACE", "ours")
    cluster.find("team").tokens.token()
    assert {words[words.index("--namespace") + 1] for words in named.asked()} == {"ours", "team"}
    assert named.asked()[-1][:3] == ["create", "token", "agent"]


def test_a_fleet_whose_address_answers_is_reached_there_and_its_gateway_by_a_port_forward(kubectl: Kubectl) -> None:
    found = cluster.find("team")
    assert (found.address, found.forwarded) == ("10.1.0.5:8443", False)
    assert kubectl.forwarding() == 0
    assert found.gateway
    assert found.gateway() == "127.0.0.1:40001"
    assert kubectl.asked()[-1] == [*FORWARD, "service/sandfleet-gateway", ":8444"]


def test_a_fleet_whose_address_does_not_answer_is_reached_by_a_port_forward(
    kubectl: Kubectl, answering: dict[str, bool]
) -> None:
    answering["10.1.0.5:8443"] = False
    found = cluster.find("team")
    assert (found.address, found.forwarded, found.name) == ("127.0.0.1:40001", True, "sandfleet-fleet")
    assert kubectl.asked()[-1] == [*FORWARD, "pod/fleet-5", ":8443"]
    # Another pod is preferred to the one behind an address that did not serve.
    two = [{"addresses": [f"10.1.0.{number}"], "targetRef": {"name": f"fleet-{number}"}} for number in (5, 6)]
    kubectl.say(endpointslices={"items": [{"endpoints": two}]})
    answering["10.1.0.6:8443"] = False
    cluster.find("team", avoid="127.0.0.1:40001")
    assert kubectl.asked()[-1] == [*FORWARD, "pod/fleet-6", ":8443"]


@pytest.mark.parametrize(
    ("way", "reached", "address", "gateway"),
    [
        ("direct", False, "10.1.0.5:8443", False),
        ("direct", True, "10.1.0.5:8443", False),
        ("tunnel", True, "127.0.0.1:40001", True),
    ],
)
def test_the_way_can_be_named(
    monkeypatch: pytest.MonkeyPatch,
    kubectl: Kubectl,
    answering: dict[str, bool],
    way: str,
    reached: bool,
    address: str,
    gateway: bool,
) -> None:
    answering["10.1.0.5:8443"] = reached
    monkeypatch.setenv("SANDFLEET_CONNECT", way)
    found = cluster.find("team")
    assert (found.address, found.gateway is not None) == (address, gateway)


def test_an_unknown_way_is_refused(monkeypatch: pytest.MonkeyPatch, kubectl: Kubectl) -> None:
    monkeypatch.setenv("SANDFLEET_CONNECT", "tunel")
    with pytest.raises(UnavailableError, match="SANDFLEET_CONNECT is direct or tunnel, not 'tunel'"):
        cluster.find("team")


def test_a_fleet_outside_the_cluster_has_no_pod_to_forward_to(kubectl: Kubectl, answering: dict[str, bool]) -> None:
    kubectl.point_to("192.0.2.1:8443")
    answering["192.0.2.1:8443"] = False
    found = cluster.find("team")
    assert (found.address, found.gateway) == ("192.0.2.1:8443", None)


def test_a_right_that_is_missing_for_the_port_forward_is_named(kubectl: Kubectl, answering: dict[str, bool]) -> None:
    answering["10.1.0.5:8443"] = False
    kubectl.say(**{"port-forward": {"error": "error: pods is forbidden"}})
    with pytest.raises(UnavailableError, match=r"kubectl port-forward .* failed: error: pods is forbidden"):
        cluster.find("team")


def test_a_token_of_kubectl_is_made_anew_before_it_ends(kubectl: Kubectl) -> None:
    found = cluster.find("team")
    for token in (a_token(time.time() + 30), a_token(time.time() - 1), "no JWT"):
        kubectl.say(token=token)
        assert found.tokens.token() == token
    assert [words[0] for words in kubectl.asked()].count("create") == 3


def test_an_address_of_the_sixth_version_is_put_in_brackets(kubectl: Kubectl) -> None:
    kubectl.say(endpointslices={"items": [{"ports": [{"port": 1}], "endpoints": [{"addresses": ["fd00::5"]}]}]})
    assert cluster.find("team").address == "[fd00::5]:1"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"configmap": None}, r"`kubectl get configmap sandfleet-ca .* failed: error: You must be logged in"),
        (
            {"configmap": {"error": "The connection to the server localhost:8080 was refused"}},
            "kubectl knows no cluster: set KUBECONFIG",
        ),
        ({"configmap": {"error": 'configmaps "sandfleet-ca" not found'}}, "not found; .* SANDFLEET_NAMESPACE"),
        ({"configmap": "no json"}, "kubectl did not answer with an object"),
        ({"configmap": {"metadata": {}}}, r"ConfigMap sandfleet-ca in namespace sandfleet-system has no ca\.crt"),
        ({"endpointslices": {"items": []}}, "Service sandfleet-fleet in namespace sandfleet-system has no ready pod"),
        ({"endpointslices": {"items": [{"endpoints": None, "ports": None}]}}, "has no ready pod"),
    ],
)
def test_failures_of_kubectl_are_reported_with_what_to_do(kubectl: Kubectl, answers: dict, why: str) -> None:
    kubectl.say(**answers)
    with pytest.raises(UnavailableError, match=f"^cannot connect: .*{why}"):
        cluster.find("team")


def test_without_a_right_to_make_tokens_it_says_so(kubectl: Kubectl) -> None:
    kubectl.say(token=None)
    with pytest.raises(UnavailableError, match="cannot connect: `kubectl create token default --namespace team"):
        cluster.find("team").tokens.token()


def test_without_any_fleet_the_error_lists_the_possibilities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"SANDFLEET_FLEET.*SANDFLEET_KUBECTL") as caught:
        cluster.find("team")
    assert caught.value.reason == "NoFleet"
    monkeypatch.setenv("SANDFLEET_KUBECTL", str(tmp_path / "none"))
    with pytest.raises(UnavailableError, match="kubectl cannot be asked"):
        cluster.find("team")


def test_a_pod_without_the_files_is_told_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    be_a_pod(monkeypatch, tmp_path)
    (tmp_path / "pod" / "token").unlink()
    with pytest.raises(UnavailableError, match=r"projected volume .* serviceAccountToken"):
        cluster.find("team")


@pytest.mark.parametrize("missing", ["SANDFLEET_FLEET_CA", "SANDFLEET_TOKEN_FILE"])
def test_a_named_fleet_needs_a_ca_and_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str) -> None:
    name_it(monkeypatch, tmp_path)
    monkeypatch.delenv(missing)
    with pytest.raises(
        UnavailableError, match=r"cannot connect: the fleet fleet\.example:443 needs SANDFLEET_FLEET_CA"
    ):
        cluster.find("team")
    monkeypatch.setenv(missing, str(tmp_path / "absent"))
    with pytest.raises(UnavailableError, match="cannot be read"):
        cluster.find("team").tokens.token()


def test_an_invalid_address_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name_it(monkeypatch, tmp_path, "fleet")
    with pytest.raises(UnavailableError, match="'fleet' is not HOST:PORT"):
        cluster.find("team")


def test_a_token_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    tokens = cluster.TokenFile(tmp_path / "token")
    assert tokens.token() == "first"
    # As the kubelet does it: another file under the same name.
    (tmp_path / "next").write_text("other")
    (tmp_path / "next").replace(tmp_path / "token")
    assert tokens.token() == "other"
    (tmp_path / "token").unlink()
    with pytest.raises(UnavailableError, match="the token cannot be read"):
        tokens.token()


def test_a_place_does_not_show_its_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name_it(monkeypatch, tmp_path)
    place = cluster.find("team")
    place.tokens.token()
    assert repr(place) == "Place(address='fleet.example:443', name='fleet.example')"


async def test_a_sandbox_of_a_cluster_is_looked_for_there_alone(
    monkeypatch: pytest.MonkeyPatch, kubectl: Kubectl
) -> None:
    monkeypatch.setenv("SANDFLEET_ADDRESS", "unix:/nowhere")
    kubectl.say(configmap=None)
    with pytest.raises(UnavailableError, match="kubectl get configmap"):
        await AsyncSandbox.connect("team/one")
    with pytest.raises(UnavailableError, match="cannot reach the fleet at unix:/nowhere"):
        await AsyncSandbox.connect("one")
    assert len(kubectl.asked()) == 1


async def test_a_fleet_of_a_cluster_can_be_given_by_hand(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="needs SANDFLEET_FLEET_CA"):
        await AsyncFleet.connect("h:1", token_file=str(tmp_path / "token"))
    made = await AsyncFleet.connect("h:1", ca_file=str(tmp_path / "ca"), token_file=str(tmp_path / "token"))
    assert made.address == "h:1"
    await made.close()


class Slow:
    """A fleet whose answers are a script."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    async def access(self, sandbox_id: str, *, wait: float) -> tuple[object, object]:
        raise self.answers.pop(0)

    async def renew(self, sandbox_id: str, lease: float) -> tuple[object, object]:
        raise self.answers.pop(0)

    def relay(self, sandbox_id: str, access: object) -> None:
        """Its address can be used."""


def link(*answers: object) -> Link:
    sandbox, access = api.fleet.Sandbox(sandbox_id="s", sandbox_uid="u"), api.fleet.Access(address="unix:/nowhere")
    return Link(Slow(*answers), sandbox, access, rpc_timeout=5.0)


async def test_a_sandbox_that_comes_back_is_waited_for_and_one_that_does_not_is_not() -> None:
    coming = PreconditionFailed("x", reason="PodDeleted", retryable=True)
    late = RpcTimeout("x")
    never = PreconditionFailed("x", reason="ImagePullFailed")
    one = link(coming, late, coming, never)
    with pytest.raises(PreconditionFailed) as caught:
        await one.recover(await one.connection())
    assert caught.value.reason == "ImagePullFailed"
    await one.close()


async def test_a_fleet_without_leases_is_not_asked_to_renew_again() -> None:
    one = link(SandboxError("x", reason="Unimplemented"), UnavailableError("x"))
    assert await one.keep(10.0) is None
    assert await one.keep(10.0) == 1.0
    await one.close()
    await asyncio.sleep(0)
