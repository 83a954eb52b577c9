"""What the chart makes, beside rights and settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from chart.helm_chart import CHART, NAMESPACE, ROOT, documents, named, rendered
from sandfleet._fleets.cluster import GATEWAY, GATEWAY_PORT
from sandfleet_operator.__main__ import CREDENTIALS
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.lease import STUCK_SECONDS
from sandfleet_operator.cluster.reviews import AUDIENCE
from sandfleet_operator.executors.signing import CA_CERTIFICATE
from sandfleet_operator.fleet.gateway import serve
from sandfleet_operator.fleet.kubernetes.service_place import LEADS
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.networkpolicy import default_deny, own_egress, template_egress
from sandfleet_operator.plan.pods.podspec import PodRequest, keys_config_map, sandbox_pod
from sandfleet_operator.plan.pods.volume import workspace_claim
from support.operator.builders import SETTINGS, a_sandbox, a_sandbox_template, opens
from support.operator.crd_schemas import CRDS
from support.pod_security import restricted_violations
from support.tools import tool

FULL = (
    "operator.podDisruptionBudget.enabled=true", "fleet.podDisruptionBudget.enabled=true", "runtimeClass.create=true",
    "gateway.podDisruptionBudget.enabled=true",
    "cniPolicies.cilium.enabled=true", "cniPolicies.calico.enabled=true", 'cniPolicies.calico.nodeCidrs=["192.0.2.0/24"]',
    'imagePullSecrets=[{"name":"registry"}]', 'image.digest="sha256:0"', 'operator.priorityClassName="system-cluster-critical"',
    'operator.podLabels={"team":"platform","app.kubernetes.io/part-of":"else"}', 'fleet.env=[{"name":"A","value":"b"}]',
)  # fmt: skip


def pods(*values: str) -> dict[str, dict]:
    """By component, the test's included."""
    objects = rendered(*values)
    found = {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"]
        for one in named(objects, "Deployment")
    }
    return found | {one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in named(objects, "Pod")}


def test_the_runtime_class_has_the_overhead_of_the_values() -> None:
    made = rendered("runtimeClass.create=true", 'runtimeClass.overhead={"memory":"64Mi","cpu":"20m"}')
    (runtime,) = named(made, "RuntimeClass")
    assert runtime["overhead"] == {"podFixed": {"memory": "64Mi", "cpu": "20m"}}


@pytest.mark.parametrize("values", [(), FULL], ids=["as it comes", "with everything"])
@pytest.mark.parametrize("component", ["operator", "fleet", "gateway", "test"])
def test_every_pod_passes_restricted_and_cannot_write_its_root(values: tuple[str, ...], component: str) -> None:
    pod = pods(*values)[component]
    assert restricted_violations(pod) == ()
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsUser"] == 65532
    assert {"requests", "limits"} <= set(container["resources"])


@pytest.mark.parametrize("component", ["operator", "fleet", "gateway"])
def test_executors_let_the_control_plane_in_and_not_the_test(component: str) -> None:
    from sandfleet_operator.api.settings import Settings

    policy = default_deny("team-a", Settings(control_plane_namespace=NAMESPACE))
    wanted = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert wanted.items() <= pods(*FULL)[component]["metadata"]["labels"].items()
    assert not wanted.items() <= pods()["test"]["metadata"]["labels"].items()


@pytest.mark.parametrize("component", ["operator", "fleet"])
def test_a_process_is_told_who_and_where_it_is(component: str) -> None:
    (container,) = pods()[component]["spec"]["containers"]
    assert container["image"] == "sandfleet/operator:0.1.0"
    assert container["args"] == ["sandfleet_operator", component, "--health-port=8081"]
    environment = {one["name"]: one for one in container["env"]}
    assert set(environment) == {"SANDFLEET_SETTINGS", "SANDFLEET_AUDIT", "POD_NAME", "POD_NAMESPACE", "POD_IP"}
    assert environment["SANDFLEET_AUDIT"]["value"] == "-"
    folder, _, file = environment["SANDFLEET_SETTINGS"]["value"].rpartition("/")
    (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == folder]
    (volume,) = [one for one in pods()[component]["spec"]["volumes"] if one["name"] == mount["name"]]
    (config_map,) = named(rendered(), "ConfigMap", volume["configMap"]["name"])
    assert list(config_map["data"]) == [file]


def test_the_operator_finds_its_own_pod_and_nothing_hides_it() -> None:
    hidden = 'operator.podLabels={"sandfleet.io/component":"else"}'
    assert pods(hidden)["operator"]["metadata"]["labels"][names.COMPONENT] == "operator"


def test_values_of_a_component_reach_its_pods_only() -> None:
    operator, fleet = pods(*FULL)["operator"], pods(*FULL)["fleet"]
    assert operator["spec"]["priorityClassName"] == "system-cluster-critical"
    assert "priorityClassName" not in fleet["spec"]
    assert operator["metadata"]["labels"]["team"] == "platform"
    assert {"name": "A", "value": "b"} in fleet["spec"]["containers"][0]["env"]
    assert operator["spec"]["imagePullSecrets"] == fleet["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert operator["spec"]["containers"][0]["image"] == "sandfleet/operator:0.1.0@sha256:0"


def test_objects_that_the_processes_fill_are_created_empty() -> None:
    """What Helm does not write it neither takes back at an upgrade."""
    for kind, name in (
        ("Secret", "sandfleet-signing"),
        ("ConfigMap", "sandfleet-ca"),
        ("ConfigMap", "sandfleet-ended"),
    ):
        (one,) = named(rendered(), kind, name)
        assert not {"data", "stringData", "spec"} & set(one)


def test_an_uninstall_keeps_the_keys_and_the_leases() -> None:
    """Sandboxes that run on trust the keys, and the Leases count who has led: the processes make them."""
    (secret,) = named(rendered(), "Secret", "sandfleet-signing")
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert named(rendered(*FULL), "Lease") == []


@pytest.mark.parametrize(
    ("upgrade", "found", "kept"),
    [
        (True, {"metadata": {"name": "sandfleet-fleet", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}, True),
        (True, {"metadata": {"name": "sandfleet-fleet"}}, False),
        (True, {}, False),
        (False, {"metadata": {"name": "sandfleet-fleet", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}, False),
    ],
    ids=["helm made it", "a process made it", "there is none", "a new release"],
)
def test_a_lease_that_an_earlier_release_made_is_not_deleted_by_an_upgrade(
    tmp_path: Path, upgrade: bool, found: dict, kept: bool
) -> None:
    made = tmp_path / "decides"
    (made / "templates").mkdir(parents=True)
    (made / "Chart.yaml").write_text("apiVersion: v2\nname: decides\nversion: 0.1.0\n")
    (made / "values.yaml").write_text("")
    for name in ("_leases.tpl", "_helpers.tpl"):
        shutil.copy(CHART / "templates" / name, made / "templates")
    decide = '{{ include "sandfleet.earlierLease" (dict "root" $ "found" .Values.found) }}'
    (made / "templates/decide.yaml").write_text(decide)
    (made / "given.yaml").write_text(json.dumps({"found": found, "commonLabels": {}}))
    command = [
        tool("helm"),
        "template",
        "one",
        made,
        "--values",
        made / "given.yaml",
        *(["--is-upgrade"] if upgrade else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    leases = documents(done.stdout)
    assert [one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in leases] == ["keep"] * kept
    assert not any("spec" in one for one in leases)


@pytest.mark.parametrize(("component", "ports"), [("operator", [8081]), ("fleet", [8443, 8081])])
def test_policies_close_the_control_plane_but_for_the_ports_that_it_serves(component: str, ports: list) -> None:
    (policy,) = named(rendered(), "NetworkPolicy", f"sandfleet-{component}")
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pods()[component]["metadata"]["labels"].items()
    (container,) = pods()[component]["spec"]["containers"]
    assert [one["containerPort"] for one in container["ports"]] == ports
    assert named(rendered("networkPolicy.enabled=false"), "NetworkPolicy") == []


def test_the_gateway_has_the_credentials_of_a_client_and_none_of_the_api_servers() -> None:
    pod = pods("gateway.maxTunnels=7", "gateway.maxTunnelsPerCaller=3")["gateway"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    (container,) = pod["spec"]["containers"]
    assert container["args"] == [
        "sandfleet_operator", "gateway", "--health-port=8081", f"--fleet=sandfleet-fleet.{NAMESPACE}.svc:8443",
        "--max-tunnels=7", "--max-tunnels-per-caller=3",
    ]  # fmt: skip
    (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == str(CREDENTIALS)]
    (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == mount["name"]]
    token, authority = volume["projected"]["sources"]
    assert (token["serviceAccountToken"]["audience"], token["serviceAccountToken"]["path"]) == (AUDIENCE, "token")
    assert authority["configMap"] == {"name": "sandfleet-ca", "items": [{"key": CA_CERTIFICATE, "path": "ca.crt"}]}
    # Other settings of the platform do not cut its connections.
    assert pod["metadata"].get("annotations") == pods("settings.executorPort=1")["gateway"]["metadata"].get(
        "annotations"
    )


@pytest.mark.parametrize("watched", [[], ["team-a", "team-b"]])
def test_the_gateway_reaches_executors_and_the_fleet_and_nothing_else(watched: list[str]) -> None:
    objects = rendered(f"settings.watchNamespaces={json.dumps(watched)}", "settings.executorPort=6000")
    (policy,) = named(objects, "NetworkPolicy", "sandfleet-gateway")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8081}]}]
    executors, fleet, dns = policy["spec"]["egress"]
    (peer,) = executors["to"]
    assert peer["podSelector"]["matchLabels"] == {names.COMPONENT: names.SANDBOX_COMPONENT}
    assert executors["ports"] == [{"protocol": "TCP", "port": 6000}]
    only = peer["namespaceSelector"].get("matchExpressions", [{}])
    assert [one.get("values", []) for one in only] == [watched]
    (peer,) = fleet["to"]
    assert peer["podSelector"]["matchLabels"].items() <= pods()["fleet"]["metadata"]["labels"].items()
    assert (set(peer), fleet["ports"]) == ({"podSelector"}, [{"protocol": "TCP", "port": 8443}])
    assert {one["port"] for one in dns["ports"]} == {53}


def test_a_port_forward_finds_the_gateway_by_its_service_and_nothing_else_gets_through() -> None:
    (service,) = named(rendered(), "Service", GATEWAY)
    assert service["spec"]["selector"].items() <= pods()["gateway"]["metadata"]["labels"].items()
    assert [one["port"] for one in service["spec"]["ports"]] == [GATEWAY_PORT]
    ports = {one["name"]: one["containerPort"] for one in pods()["gateway"]["spec"]["containers"][0]["ports"]}
    assert ports == {"tunnels": serve.PORT, "health": 8081}
    assert serve.HOST == "127.0.0.1"


@pytest.mark.parametrize("without", ["gateway.enabled=false", "fleet.enabled=false"])
def test_without_a_gateway_nothing_of_it_is_made(without: str) -> None:
    kept = [one for one in rendered(without) if one["metadata"]["name"].endswith("-gateway")]
    assert kept == []


@pytest.mark.parametrize("component", ["operator", "fleet", "gateway"])
def test_probes_ask_the_event_loop_and_never_only_the_port(component: str) -> None:
    (container,) = pods()[component]["spec"]["containers"]
    (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == "health"]
    assert f"--health-port={port}" in container["args"]
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for name, path in paths.items():
        assert container[name]["httpGet"] == {"path": path, "port": "health"}
        assert "tcpSocket" not in container[name]
    # A stuck leader is restarted before it would give up its leadership by itself.
    assert container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"] < STUCK_SECONDS


def test_optional_objects_exist_only_when_chosen() -> None:
    chosen = {"RuntimeClass", "CiliumClusterwideNetworkPolicy", "GlobalNetworkPolicy"}
    assert chosen <= {one["kind"] for one in rendered(*FULL)}
    assert not chosen & {one["kind"] for one in rendered()}


@pytest.mark.parametrize(
    ("port", "closed"),
    [
        (50051, [("1", 50050, "TCP"), ("50052", 65535, "TCP"), ("1", 65535, "UDP")]),
        (1, [("2", 65535, "TCP"), ("1", 65535, "UDP")]),
        (65535, [("1", 65534, "TCP"), ("1", 65535, "UDP")]),
    ],
)
def test_under_cilium_a_sandboxs_own_node_reaches_the_executors_port_only(port: int, closed: list) -> None:
    objects = rendered("cniPolicies.cilium.enabled=true", f"settings.executorPort={port}")
    (policy,) = named(objects, "CiliumClusterwideNetworkPolicy")
    assert policy["spec"]["endpointSelector"]["matchLabels"] == {names.COMPONENT: names.SANDBOX_COMPONENT}
    (rule,) = policy["spec"]["ingressDeny"]
    assert rule["fromEntities"] == ["host"]
    assert [(one["port"], one["endPort"], one["protocol"]) for one in rule["toPorts"][0]["ports"]] == closed
    assert policy["spec"]["egressDeny"] == [{"toEntities": ["host", "remote-node", "kube-apiserver"]}]


def test_under_calico_sandboxes_are_kept_from_api_servers_and_nodes() -> None:
    (policy,) = named(rendered(*FULL), "GlobalNetworkPolicy")
    assert policy["spec"]["selector"] == f"{names.COMPONENT} == '{names.SANDBOX_COMPONENT}'"
    assert [one["destination"] for one in policy["spec"]["egress"]] == [
        {"services": {"name": "kubernetes", "namespace": "default"}},
        {"nets": ["192.0.2.0/24"]},
    ]
    assert {one["action"] for one in policy["spec"]["egress"]} == {"Deny"}


def test_the_custom_resources_are_the_sources_and_stay_at_uninstall() -> None:
    made = {one["spec"]["names"]["kind"]: one for one in named(rendered(), "CustomResourceDefinition")}
    assert {kind: one["spec"] for kind, one in made.items()} == {kind: one["spec"] for kind, one in CRDS.items()}
    kept = [one["metadata"].get("annotations") for one in made.values()]
    assert kept == [{"helm.sh/resource-policy": "keep"}] * len(CRDS)
    removable = named(rendered("crds.keep=false"), "CustomResourceDefinition")
    assert [one["metadata"].get("annotations") for one in removable] == [None] * len(CRDS)
    assert named(rendered("crds.enabled=false"), "CustomResourceDefinition") == []


def test_a_release_of_another_name_has_it_in_all_names_but_the_contracts_with_the_processes() -> None:
    fixed = {"sandfleet-signing", "sandfleet-ca", "sandfleet-ended", "sandfleet-fleet", "sandfleet-gateway"}
    objects = rendered('fullnameOverride="box"', "crds.enabled=false")
    assert {one["metadata"]["name"] for one in objects if not one["metadata"]["name"].startswith("box-")} == fixed


@pytest.mark.parametrize(
    ("watched", "where"), [([], NAMESPACE), (["team-a", NAMESPACE], NAMESPACE), (["team-a", "team-b"], "team-a")]
)
def test_the_test_makes_its_sandbox_where_sandboxes_may_be(watched: list[str], where: str) -> None:
    objects = rendered(f"settings.watchNamespaces={json.dumps(watched)}")
    (pod,) = named(objects, "Pod")
    assert {"name": "SANDBOX_NAMESPACE", "value": where} in pod["spec"]["containers"][0]["env"]
    for kind, name in (("Pod", "sandfleet-test"), ("Role", "sandfleet-test"), ("ServiceAccount", "sandfleet-test")):
        (one,) = named(objects, kind, name)
        assert one["metadata"]["namespace"] == where


def test_executors_let_the_test_in_as_a_client_of_its_own_namespace() -> None:
    from sandfleet_operator.api.settings import Settings

    label = "example.com/client"
    objects = rendered(f'settings.clientLabel="{label}"')
    policy = default_deny(NAMESPACE, Settings(control_plane_namespace=NAMESPACE, client_label=label))
    own = policy["spec"]["ingress"][0]["from"][-1]
    assert set(own) == {"podSelector"}
    (pod,) = named(objects, "Pod")
    assert own["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_without_a_fleet_the_test_claims_nothing() -> None:
    objects = rendered("fleet.enabled=false")
    (pod,) = named(objects, "Pod")
    assert {"name": "FLEET_NAMESPACE", "value": ""} in pod["spec"]["containers"][0]["env"]
    assert named(objects, "Role", "sandfleet-test-ca") == []
    (with_one,) = named(rendered(), "Pod")
    assert {"name": "FLEET_NAMESPACE", "value": NAMESPACE} in with_one["spec"]["containers"][0]["env"]


def test_the_tests_objects_are_deleted_when_it_ends() -> None:
    hooks = [one for one in rendered() if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    assert {one["kind"] for one in hooks} == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Pod"}
    for one in hooks:
        policy = one["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert set(policy.split(",")) == {"before-hook-creation", "hook-succeeded", "hook-failed"}


def test_what_the_operator_makes_in_a_namespace_has_the_label_by_which_it_is_removed() -> None:
    removal = (ROOT / "docs/howto/install.md").read_text().partition("## Remove it")[2]
    (selector,) = set(re.findall(r"--selector (\S+)", removal))
    key, _, value = selector.partition("=")
    template, sandbox = a_sandbox_template(egress=opens("203.0.113.0/24")), a_sandbox()
    settings = Settings(control_plane_namespace=NAMESPACE)
    wanted = effective(template.spec, sandbox.spec, SETTINGS)
    assert not isinstance(wanted, Refusal)
    made = [
        default_deny("team-a", settings),
        template_egress(template, settings),
        own_egress(sandbox, template.spec.egress, settings),
        keys_config_map("team-a", "{}"),
        workspace_claim("team-a", "demo", wanted, owner=None),
        sandbox_pod(PodRequest(namespace="team-a", name="demo", wanted=wanted), SETTINGS),
    ]
    assert [one["metadata"]["labels"].get(key) for one in made] == [value] * len(made)


def test_the_service_of_the_fleet_selects_the_pod_that_leads_and_no_standby() -> None:
    (service,) = named(rendered(), "Service", "sandfleet-fleet")
    selector, labels = service["spec"]["selector"], pods()["fleet"]["metadata"]["labels"]
    # The label comes from the leader, not from the chart.
    assert selector.items() - labels.items() == {(LEADS, "true")}


@pytest.mark.parametrize("component", ["operator", "fleet"])
def test_two_replicas_of_the_control_plane_stand_on_two_nodes_and_outlive_a_drain(component: str) -> None:
    (deployment,) = named(rendered(), "Deployment", f"sandfleet-{component}")
    (budget,) = named(rendered(), "PodDisruptionBudget", f"sandfleet-{component}")
    pod = deployment["spec"]["template"]
    (spread,) = pod["spec"]["topologySpreadConstraints"]
    assert (deployment["spec"]["replicas"], budget["spec"]["maxUnavailable"]) == (2, 1)
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    for selected in (spread["labelSelector"], budget["spec"]["selector"]):
        assert selected["matchLabels"].items() <= pod["metadata"]["labels"].items()
    chosen = f'{component}.topologySpreadConstraints=[{{"maxSkew":2,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}}]'
    (deployment,) = named(rendered(chosen), "Deployment", f"sandfleet-{component}")
    assert [one["maxSkew"] for one in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]] == [2]
