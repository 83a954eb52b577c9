"""The checks of an installation, on objects as kubectl shows them, and the file for who helps."""

import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sandfleet import __version__
from sandfleet._fleets import cluster
from sandfleet.cli import OK, PLATFORM, main
from sandfleet.cli.fleets import bundle
from sandfleet.cli.fleets.installation import Seen, examine
from sandfleet.errors import UnavailableError

NOW = 1_800_000_000.0
TEAM = "team-a"


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")


def an_object(name: str, namespace: str = "", labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, **more}


def conditions(**holds: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": "Why"} for kind, status in holds.items()]}


def a_deployment(component: str, ready: int = 2, version: str = __version__) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component, "app.kubernetes.io/version": version}
    status = {"readyReplicas": ready}
    return an_object(f"sandfleet-{component}", "sandfleet-system", labels, spec={"replicas": 2}, status=status)


def a_lease(name: str, renewed: float, holder: str = "one") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": at(renewed), "leaseDurationSeconds": 15}
    return an_object(name, "sandfleet-system", spec=spec)


def a_pod(*containers: str) -> dict[str, Any]:
    return an_object("p", TEAM, spec={"containers": [{"name": name} for name in containers]})


KINDS = ("codesandboxes", "sandboxtemplates", "sandboxpools", "sandboxqueues", "sandboxsnapshots")
DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}, "name": "fast"}
WHOLE: dict[str, list[dict[str, Any]]] = {
    "kinds": [an_object(f"{kind}.sandfleet.io", status=conditions(Established="True")) for kind in KINDS],
    "deployments": [a_deployment("operator"), a_deployment("fleet")],
    "leases": [a_lease("sandfleet-fleet", -3), a_lease("sandfleet-operator", -3), a_lease("other", -9999)],
    "settings": [an_object("ca"), an_object("s", data={"settings.json": '{"gvisorClasses": ["gvisor"]}'})],
    "policies": [an_object("sandfleet-pods")],
    "runtimes": [an_object("gvisor", handler="runsc", scheduling={"nodeSelector": {"gvisor": "yes"}})],
    "nodes": [an_object("n1", labels={"gvisor": "yes"}, status=conditions(Ready="True"))],
    "heartbeats": [an_object("n1", spec={"renewTime": at(-8)}), an_object("gone", spec={"renewTime": at(-99999)})],
    "storage": [{"metadata": DEFAULT}],
    "pools": [an_object("fast", TEAM, status=conditions(Ready="True"))],
    "closures": [an_object("sandfleet-default-deny", TEAM)],
    "quotas": [an_object("q", TEAM, status={"hard": {"pods": "9"}, "used": {"pods": "3"}})],
    "pods": [a_pod("executor")],
}


def judged(version: str = "v1.35.4", **changed: list[dict[str, Any]]) -> dict[str, str]:
    """Name → detail of each check that fails."""
    return {one.name: one.detail for one in examine(Seen(WHOLE | changed, version=version), NOW) if not one.ok}


def test_a_whole_installation_passes() -> None:
    assert judged() == {}


@pytest.mark.parametrize(
    ("changed", "name", "said"),
    [
        ({"version": "v1.31.9"}, "Kubernetes", "upgrade the cluster"),
        ({"version": ""}, "Kubernetes", "1.32 or later"),
        ({"kinds": WHOLE["kinds"][1:]}, "kinds", "codesandboxes missing: `helm upgrade`"),
        ({"deployments": [a_deployment("operator")]}, "fleet", "not installed"),
        ({"deployments": [a_deployment("operator", 1), a_deployment("fleet")]}, "operator", "1 of 2 ready"),
        ({"leases": [a_lease("sandfleet-fleet", -90)]}, "leader fleet", "no process leads for 90 s"),
        ({"leases": [a_lease("sandfleet-fleet", -1, "")]}, "leader fleet", "no process leads: see"),
        ({"policies": []}, "admission policies", "none is bound"),
        ({"runtimes": []}, "gVisor", "no RuntimeClass gvisor"),
        ({"nodes": []}, "gVisor", "no ready node has gvisor=yes"),
        ({"heartbeats": [an_object("n1", spec={"renewTime": at(900)})]}, "clocks", "n1 (+900 s) off"),
        ({"storage": [an_object("slow")]}, "storage", "no StorageClass is the default"),
        ({"closures": []}, "closed namespaces", "sandfleet-default-deny is missing in team-a"),
        ({"pods": [a_pod("executor", "istio-proxy")]}, "sidecars", "istio-proxy in team-a"),
        ({"pools": [an_object("fast", TEAM, status=conditions(Ready="False"))]}, "pools", "team-a/fast: Why"),
        (
            {"quotas": [an_object("q", TEAM, status={"hard": {"pods": "9"}, "used": {"pods": "9"}})]},
            "quotas",
            "used up: team-a/q (pods)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named_with_what_mends_it(changed: dict[str, Any], name: str, said: str) -> None:
    found = judged(**changed)
    assert list(found) == [name]
    assert said in found[name]


def test_another_version_is_said_and_is_no_failure() -> None:
    seen = Seen(
        WHOLE | {"deployments": [a_deployment("operator"), a_deployment("fleet", version="9.9.9")]}, version="v1.40"
    )
    (fleet,) = (one for one in examine(seen, NOW) if one.name == "fleet")
    assert (fleet.ok, fleet.detail) == (True, f"2 of 2 ready, version 9.9.9 (this client is {__version__})")


def test_what_may_not_be_read_is_said() -> None:
    found = examine(Seen(WHOLE, {"quotas": "cannot connect: forbidden"}, "v1.35.4"), NOW)
    assert (found[-1].name, found[-1].ok, found[-1].detail) == ("read quotas", False, "cannot connect: forbidden")


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What kubectl answers, by its first words."""
    said: dict[str, Any] = {"version": {"serverVersion": {"gitVersion": "v1.35.4"}}}
    secret = {"metadata": {"name": "s", "namespace": TEAM, "managedFields": [1]}, "spec": {"envs": {"KEY": "canary"}}}

    def ask(*words: str) -> dict[str, Any]:
        if words[1:2] == ("resourcequotas",):
            raise UnavailableError("cannot connect: forbidden", reason="KubectlFailed")
        pods = [{"metadata": {"name": "sandfleet-fleet-1"}, "spec": {"containers": [{"name": "fleet", "env": [{"name": "A", "value": "canary"}]}]}}]  # fmt: skip
        return said.get(words[0]) or {"items": pods if words[1:4] == ("pods", "-n", "sandfleet-system") else [secret]}

    monkeypatch.setattr(cluster, "ask", ask)
    monkeypatch.setattr(cluster, "log", lambda pod, *_: f"log of {pod}\n")
    return said


@pytest.mark.usefixtures("kubectl")
def test_the_command_prints_json_and_fails_where_something_needed_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--platform", "--json"]) == PLATFORM
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert {"name": "fleet", "ok": False, "detail": "not installed: see docs/howto/install.md", "needed": True} in said[
        "checks"
    ]
    assert said["checks"][-1]["name"] == "read quotas"


@pytest.mark.usefixtures("kubectl")
def test_a_support_bundle_has_checks_objects_and_logs_and_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.tar.gz"
    assert main(["support-bundle", "-o", str(file), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["file"] == str(file)
    with tarfile.open(file) as archive:
        members = {one.name.partition("/")[2]: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    assert {"checks.json", "objects/sandboxes.json", "objects/deployments.json", "logs/sandfleet-fleet-1.log"} <= set(
        members
    )
    assert members["logs/sandfleet-fleet-1.log"] == b"log of sandfleet-fleet-1\n"
    assert b"(hidden)" in members["objects/sandboxes.json"]
    assert b"canary" not in b"".join(members.values())
    # A file that is there is never written over.
    assert main(["support-bundle", "-o", str(file)]) != OK


def test_the_values_of_variables_and_the_records_of_claims_are_hidden() -> None:
    pod = {"metadata": {"annotations": {"sandfleet.io/claim": "canary", "a": "b"}}, "spec": [{"env": [{"name": "A", "value": "canary"}], "envs": {"B": "canary"}}]}  # fmt: skip
    shown = bundle.without_secrets(pod)
    assert shown == {
        "metadata": {"annotations": {"a": "b"}},
        "spec": [{"env": [{"name": "A"}], "envs": {"B": "(hidden)"}}],
    }
    assert "canary" in json.dumps(pod)
