"""The snapshotter in the chart: off until it is asked for, and with no way but those that it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart.helm_chart import NAMESPACE, named, rendered, rights
from sandfleet_operator.__main__ import CREDENTIALS
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.fleet.kubernetes.snapshots.link import RIGHT
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.networkpolicy import default_deny
from sandfleet_operator.snapshots.backends.places import keys_path, store_url
from support.pod_security import restricted_violations

ON = (
    "snapshotter.enabled=true",
    'snapshotter.store.url="s3://bucket/prefix?region=here"',
    'snapshotter.keysSecret="keys"',
    'snapshotter.store.credentialsSecret="bucket"',
)
NAME = "sandfleet-snapshotter"


def deployment(*values: str) -> dict[str, Any]:
    (found,) = named(rendered(*ON, *values), "Deployment", NAME)
    return found["spec"]["template"]


@pytest.mark.parametrize("values", [(), (*ON, "fleet.enabled=false")], ids=["as it comes", "without a fleet"])
def test_nothing_of_it_is_made_until_it_is_asked_for(values: tuple[str, ...]) -> None:
    assert [one for one in rendered(*values) if one["metadata"]["name"] == NAME] == []
    assert [one for one in rendered(*ON) if one["metadata"]["name"] == NAME] != []


@pytest.mark.parametrize(("values", "installed"), [((), False), (ON, True)], ids=["as it comes", "with one"])
def test_the_fleet_knows_whether_there_is_one(values: tuple[str, ...], installed: bool) -> None:
    (made,) = named(rendered(*values), "ConfigMap", "sandfleet-settings")
    assert Settings.parse(json.loads(made["data"]["settings.json"])).snapshotter is installed


def test_its_pod_passes_restricted_and_executors_let_it_in() -> None:
    pod = deployment()
    assert restricted_violations(pod) == ()
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    policy = default_deny("team-a", Settings(control_plane_namespace=NAMESPACE))
    wanted = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert wanted.items() <= pod["metadata"]["labels"].items()


def test_it_alone_has_keys_and_credentials_of_the_store_and_none_of_the_api_server() -> None:
    pod = deployment()
    assert pod["spec"]["automountServiceAccountToken"] is False
    (container,) = pod["spec"]["containers"]
    assert container["args"] == [
        "sandfleet_operator", "snapshotter", "--health-port=8081", f"--fleet=sandfleet-fleet.{NAMESPACE}.svc:8443",
    ]  # fmt: skip
    said = {one["name"]: one.get("value") for one in container["env"]}
    assert store_url(said) == "s3://bucket/prefix?region=here"
    paths = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert keys_path(said) == (keys_path({"SANDFLEET_SNAPSHOT_KEYS": f"{paths['keys']}/keys.json"}))
    assert paths["credentials"] == str(CREDENTIALS)
    secret = {"name": "bucket", "key": "AWS_SECRET_ACCESS_KEY"}
    assert {"name": secret["key"], "valueFrom": {"secretKeyRef": secret}} in container["env"]
    others = [one for one in rendered(*ON) if one["kind"] == "Deployment" and one["metadata"]["name"] != NAME]
    assert len(others) == 3
    assert not any(word in json.dumps(others) for word in ("AWS_", "keys.json", '"bucket"'))


@pytest.mark.parametrize("to", [[], [{"ipBlock": {"cidr": "192.0.2.0/24"}}]], ids=["anywhere", "one network"])
def test_it_reaches_executors_the_fleet_and_the_store_and_nothing_reaches_it(to: list[Any]) -> None:
    values = (f"snapshotter.store.to={json.dumps(to)}", "snapshotter.store.port=9000")
    (policy,) = named(rendered(*ON, *values), "NetworkPolicy", NAME)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8081}]}]
    executors, fleet, store, dns = policy["spec"]["egress"]
    assert executors["to"][0]["podSelector"]["matchLabels"] == {names.COMPONENT: names.SANDBOX_COMPONENT}
    assert fleet["ports"] == [{"protocol": "TCP", "port": 8443}]
    assert (store.get("to", []), store["ports"]) == (to, [{"protocol": "TCP", "port": 9000}])
    assert {one["port"] for one in dns["ports"]} == {53}


def test_it_may_take_jobs_and_nothing_else() -> None:
    objects = rendered(*ON)
    granted = [rule for one in named(objects, "Role", NAME) for rule in one["rules"]]
    assert granted == [{"apiGroups": ["sandfleet.io"], "resources": [f"codesandboxes/{RIGHT}"], "verbs": ["create"]}]
    assert named(objects, "ClusterRole", NAME) == []
    (binding,) = named(objects, "RoleBinding", NAME)
    assert [(one["namespace"], one["name"]) for one in binding["subjects"]] == [(NAMESPACE, NAME)]


def test_other_rights_do_not_change_with_it() -> None:
    def others(*values: str) -> str:
        return json.dumps([one for one in rights(rendered(*values)) if one["name"] != NAME])

    assert others(*ON) == others()


@pytest.mark.parametrize(("without", "why"), [("store.url", "cannot keep"), ("keysSecret", "cannot encrypt")])
def test_what_it_cannot_do_without_is_asked_for(without: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        rendered(*ON, f'snapshotter.{without}=""')
