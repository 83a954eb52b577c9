"""The fleet and the namespace of a new sandbox, as the environment says. kubectl is a script here."""

import os
from pathlib import Path

import pytest
from sandfleet import errors
from sandfleet._fleets import cluster, discovery, embedded
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.sandbox import Isolation
from support.client.fake_kubectl import Kubectl

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("SANDFLEET_", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    monkeypatch.setattr(embedded, "start_or_join", lambda _: "unix:/own")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    (tmp_path / "bin").mkdir()
    made = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return made


def be_a_client_pod(monkeypatch: pytest.MonkeyPatch, folder: Path, *, files: bool = True) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(cluster, "POD_FILES", folder)
    monkeypatch.setattr(cluster, "POD_NAMESPACE", folder / "namespace")
    (folder / "namespace").write_text("pods-own\n")
    if files:
        (folder / "ca.crt").write_text("CA")
        (folder / "token").write_text("projected")


@pytest.mark.parametrize(
    ("variables", "wishes", "found"),
    [
        ({}, {}, "own"),
        ({"KUBECONFIG": "/some/config"}, {}, "own"),
        ({}, {"pool": "fast"}, "cluster"),
        ({}, {"namespace": "team"}, "cluster"),
        ({"SANDFLEET_SANDBOX_NAMESPACE": "team"}, {}, "cluster"),
        ({"SANDFLEET_NAMESPACE": "system"}, {}, "cluster"),
        ({"SANDFLEET_FLEET": "kubernetes"}, {}, "cluster"),
        ({"SANDFLEET_FLEET": "embedded"}, {"pool": "fast"}, "own"),
        ({"SANDFLEET_ADDRESS": "unix:/named", "SANDFLEET_FLEET": "kubernetes"}, {"pool": "fast"}, "unix:/named"),
    ],
)
async def test_the_environment_alone_decides_which_fleet_is_used(
    monkeypatch: pytest.MonkeyPatch,
    kubectl: Kubectl,
    variables: dict[str, str],
    wishes: dict[str, str],
    found: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    fleet = await discovery.default_fleet(isolation=Isolation.NAMESPACE, **wishes)
    assert fleet.address == {"own": "unix:/own", "cluster": "10.1.0.5:8443"}.get(found, found)
    # A kubeconfig of some cluster does not delay the caller.
    assert bool(kubectl.asked()) == (found == "cluster")


@pytest.mark.parametrize(
    ("files", "found"), [(True, "sandfleet-fleet.sandfleet-system.svc:8443"), (False, "unix:/own")]
)
async def test_a_pod_with_the_clients_volume_uses_its_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: bool, found: str
) -> None:
    be_a_client_pod(monkeypatch, tmp_path, files=files)
    fleet = await discovery.default_fleet(isolation=Isolation.NAMESPACE)
    assert (fleet.address, fleet.namespace) == (found, "pods-own" if files else "")


async def test_a_pod_that_asks_for_a_pool_without_the_volume_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    be_a_client_pod(monkeypatch, tmp_path, files=False)
    with pytest.raises(errors.UnavailableError, match=r"projected volume .* SANDFLEET_FLEET=embedded"):
        await AsyncSandbox.create(pool="fast")


@pytest.mark.parametrize(
    ("variables", "view", "namespace"),
    [
        ({"SANDFLEET_SANDBOX_NAMESPACE": "said"}, None, "said"),
        ({}, {"contexts": [{"context": {"namespace": "theirs"}}]}, "theirs"),
        ({}, {"contexts": [{"context": {"cluster": "c"}}]}, "default"),
        ({}, {"contexts": None}, "default"),
        ({"SANDFLEET_FLEET": "fleet.example:443"}, None, "default"),
    ],
)
def test_the_namespace_is_the_named_one_else_the_contexts(
    monkeypatch: pytest.MonkeyPatch, kubectl: Kubectl, variables: dict[str, str], view: object, namespace: str
) -> None:
    kubectl.say(view=view)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cluster.sandbox_namespace() == namespace


async def test_the_other_pod_of_the_fleet_is_taken_when_one_does_not_serve(kubectl: Kubectl) -> None:
    kubectl.say(endpointslices={"items": [{"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}]})
    assert [cluster.find("team", avoid).address for avoid in ("", "10.0.0.1:8443", "10.0.0.2:8443")] == [
        "10.0.0.1:8443",
        "10.0.0.2:8443",
        "10.0.0.1:8443",
    ]
