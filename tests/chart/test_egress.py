"""The egress process in the chart: off until it is asked for, reached by sandboxes alone, with no right but its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart.helm_chart import NAMESPACE, named, rendered, rights
from sandfleet_operator.__main__ import CREDENTIALS
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.fleet.gateway_signer import NAMES
from sandfleet_operator.fleet.kubernetes.egress_desk import RIGHT
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.networkpolicy import default_deny
from support.pod_security import restricted_violations

ON = ("egress.enabled=true", 'egress.sets={"python":["packages.example.com"]}')
NAME = "sandfleet-egress"


def settings_of(*values: str) -> Settings:
    (made,) = named(rendered(*values), "ConfigMap", "sandfleet-settings")
    return Settings.parse(json.loads(made["data"]["settings.json"]))


def pod(*values: str) -> dict[str, Any]:
    (found,) = named(rendered(*ON, *values), "Deployment", NAME)
    return found["spec"]["template"]


@pytest.mark.parametrize("values", [(), (*ON, "fleet.enabled=false")], ids=["as it comes", "without a fleet"])
def test_nothing_of_it_is_made_until_it_is_asked_for(values: tuple[str, ...]) -> None:
    assert [one for one in rendered(*values) if one["metadata"]["name"].startswith(NAME)] == []
    assert settings_of(*values).egress.service == ""
    kinds = {one["kind"] for one in rendered(*ON) if one["metadata"]["name"] == NAME}
    assert kinds >= {"Deployment", "Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget"}


def test_two_of_it_run_restricted_and_sandboxes_may_reach_them_and_nothing_else() -> None:
    (deployment,) = named(rendered(*ON), "Deployment", NAME)
    assert deployment["spec"]["replicas"] == 2
    assert restricted_violations(pod()) == ()
    settings = settings_of(*ON)
    (rule,) = default_deny("team-a", settings)["spec"]["egress"]
    (peer,) = rule["to"]
    assert peer["podSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": NAMESPACE}
    (container,) = pod()["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert rule["ports"] == [{"protocol": "TCP", "port": ports["egress"]}]
    # The control.
    assert default_deny("team-a", settings_of())["spec"]["egress"] == []


def test_the_service_is_the_one_that_the_settings_name() -> None:
    (service,) = named(rendered(*ON), "Service", NAME)
    settings = settings_of(*ON)
    assert settings.egress.service == f"{NAME}.{NAMESPACE}.svc:{service['spec']['ports'][0]['port']}"
    assert service["spec"]["selector"].items() <= pod()["metadata"]["labels"].items()
    assert settings.egress.sets == {"python": ("packages.example.com",)}


def test_only_sandboxes_and_probes_get_in() -> None:
    (policy,) = named(rendered(*ON), "NetworkPolicy", NAME)
    sandboxes, probes = policy["spec"]["ingress"]
    assert sandboxes["from"][0]["podSelector"]["matchLabels"] == {names.COMPONENT: names.SANDBOX_COMPONENT}
    assert [one["port"] for one in (*sandboxes["ports"], *probes["ports"])] == [3129, 8081]
    assert "from" not in probes


def test_it_reads_the_named_secrets_and_has_one_right_with_the_fleet() -> None:
    assert NAMES[RIGHT] == NAME
    secrets = 'egress.secrets={"team-a":["api","index"]}'
    roles = [one for one in rights(rendered(*ON, secrets)) if one["name"].startswith(NAME) and "rules" in one]
    assert [(one["kind"], one["namespace"], one["rules"]) for one in roles] == [
        ("Role", NAMESPACE, [{"apiGroups": ["sandfleet.io"], "resources": [f"codesandboxes/{RIGHT}"], "verbs": ["create"]}]),
        ("Role", "team-a", [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["api", "index"], "verbs": ["get"]}]),
    ]  # fmt: skip
    assert [one for one in rights(rendered(*ON)) if one["name"].endswith("-secrets")] == []


def test_it_is_told_the_fleet_and_where_its_token_and_settings_are() -> None:
    (container,) = pod()["spec"]["containers"]
    assert container["args"][:2] == ["sandfleet_operator", "egress"]
    assert f"--fleet=sandfleet-fleet.{NAMESPACE}.svc:8443" in container["args"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts["credentials"] == str(CREDENTIALS)
    assert {one["name"] for one in pod()["spec"]["volumes"]} == set(mounts)


def test_authorities_of_a_config_map_are_trusted_beside_the_images_own() -> None:
    (container,) = pod('egress.authorities="company"')["spec"]["containers"]
    file = {one["name"]: one.get("value") for one in container["env"]}["SSL_CERT_FILE"]
    (mount,) = [one for one in container["volumeMounts"] if file.startswith(f"{one['mountPath']}/")]
    (volume,) = [one for one in pod('egress.authorities="company"')["spec"]["volumes"] if one["name"] == mount["name"]]
    assert volume["configMap"]["name"] == "company"
    assert file == f"{mount['mountPath']}/{volume['configMap']['items'][0]['path']}"
