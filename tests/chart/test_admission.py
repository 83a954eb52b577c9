"""The admission policy protects exactly the metadata of control, for the release's accounts and in its namespaces."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from chart.helm_chart import CHART, NAMESPACE, RELEASE, Json, named, rendered
from sandfleet_operator.api.kinds.meta import GROUP
from sandfleet_operator.plan.pods import names
from support.tools import tool

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
# Keys that others may write: owners of sandboxes, for one trace with their callers.
FREE = {names.TRACEPARENT}


def policy(*values: str) -> Json:
    (found,) = [
        one for one in named(rendered(*values), POLICY) if one["metadata"]["name"].endswith("-control-metadata")
    ]
    return found["spec"]


def keys_of(variable: str) -> set[str]:
    expressions = {one["name"]: one["expression"] for one in policy()["variables"]}
    return set(re.findall(rf"'({re.escape(GROUP)}/[a-z-]+)'", expressions[variable]))


def test_the_policy_knows_the_closed_list_of_keys() -> None:
    assert keys_of("writtenLabels") | {names.COMPONENT} == names.CONTROL_LABELS
    assert keys_of("writtenAnnotations") == names.CONTROL_ANNOTATIONS
    assert keys_of("written") == keys_of("components") == {names.COMPONENT}
    (value,) = re.findall(r"'([a-z]+)' in variables.components", policy()["variables"][-1]["expression"])
    assert value == names.SANDBOX_COMPONENT


def test_every_key_of_the_group_is_in_the_list_or_free() -> None:
    written = (value for value in vars(names).values() if isinstance(value, str))
    keys = {value for value in written if re.fullmatch(rf"{re.escape(GROUP)}/[a-z-]+", value)}
    assert keys == names.CONTROL_LABELS | names.CONTROL_ANNOTATIONS | FREE


@pytest.mark.parametrize("values", [(), ('fullnameOverride="box"',), ("fleet.enabled=false",)])
def test_only_the_releases_accounts_pass(values: tuple[str, ...]) -> None:
    accounts = named(rendered(*values), "ServiceAccount")
    control = [
        one for one in accounts if one["metadata"]["labels"]["app.kubernetes.io/component"] in {"operator", "fleet"}
    ]
    policies = named(rendered(*values), POLICY)
    assert len(policies) == 6
    for one in policies:
        condition, *_ = one["spec"]["matchConditions"]
        found = set(re.findall(r"'(system:[^']+)'", condition["expression"]))
        assert found == {f"system:serviceaccount:{NAMESPACE}:{each['metadata']['name']}" for each in control}


def test_no_other_account_writes_a_status_or_an_object_of_the_control_plane() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in named(rendered(), POLICY)}
    statuses, objects = found["sandfleet-status"], found["sandfleet-control-objects"]
    (rule,) = statuses["matchConstraints"]["resourceRules"]
    kinds = {one["spec"]["names"]["plural"] for one in rendered() if one["kind"] == "CustomResourceDefinition"}
    assert {one.partition("/")[0] for one in rule["resources"]} == kinds
    assert [one["expression"] for one in statuses["validations"]] == ["false"]
    covered = {kind for one in objects["matchConstraints"]["resourceRules"] for kind in one["resources"]}
    assert covered == {"configmaps", "controllerrevisions", "networkpolicies"}
    assert names.MANAGED_BY in objects["variables"][-1]["expression"]
    assert f"'{names.PRODUCT}'" in objects["validations"][0]["expression"]
    for one in (statuses, objects):
        assert [each["name"] for each in one["matchConditions"]][1:] == ["by-no-controller-of-kubernetes"]


def test_a_release_speaks_for_its_own_namespaces() -> None:
    assert not [one for one in named(rendered(), BINDING) if "matchResources" in one["spec"]]
    bindings = named(rendered('settings.watchNamespaces=["team-a","team-b"]'), BINDING)
    (own,) = [one for one in bindings if one["metadata"]["name"].endswith("-own-pods")]
    # What the release's accounts may not do they may do nowhere.
    assert "matchResources" not in own["spec"]
    assert own["spec"]["validationActions"] == ["Deny"]
    bindings.remove(own)
    for one in bindings:
        (wanted,) = one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert wanted == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
        assert one["spec"]["validationActions"] == ["Deny"]
    policies = [one["metadata"]["name"] for one in named(rendered(), POLICY)]
    assert sorted(one["spec"]["policyName"] for one in [own, *bindings]) == sorted(policies)


def test_the_policies_can_be_switched_off_and_the_fleet_then_asks_for_none() -> None:
    off, on = rendered("admissionPolicy.enabled=false"), rendered()
    assert not [one for one in off if one["kind"] in (POLICY, BINDING)]
    asked = [settings_of(one).get("admissionPolicies", []) for one in (off, on)]
    assert asked == [[], ["sandfleet-control-metadata"]]
    assert asked[1] == [one["metadata"]["name"] for one in named(on, POLICY, asked[1][0])]
    assert asked[1] == [one["metadata"]["name"] for one in named(on, BINDING, asked[1][0])]


def settings_of(objects: tuple[Json, ...]) -> Json:
    (found,) = named(objects, "ConfigMap", "sandfleet-settings")
    return json.loads(found["data"]["settings.json"])


@pytest.mark.parametrize(
    ("values", "runtimes"),
    [
        ((), {"gvisor"}),
        (('admissionPolicy.runtimeClasses=["kata"]', 'runtimeClass.name="mine"'), {"gvisor", "kata", "mine"}),
    ],
)
def test_the_releases_accounts_write_no_pods_but_sandboxes(values: tuple[str, ...], runtimes: set[str]) -> None:
    (found,) = [
        one["spec"] for one in named(rendered(*values), POLICY) if one["metadata"]["name"].endswith("-own-pods")
    ]
    (rule,) = found["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE", "DELETE"], ["pods"])
    text = " ".join(one["expression"] for one in found["validations"])
    (named_there,) = re.findall(r"runtimeClassName.orValue\(''\) in \[([^]]*)\]", text)
    assert set(re.findall(r"'([^']+)'", named_there)) == runtimes
    # The leader of the fleet marks its own pod.
    assert f"request.operation == 'UPDATE' && request.namespace == '{NAMESPACE}'" in text
    for word in ("kube-", "sandfleet.io/component", "hostNetwork", "hostPath", "serviceAccountToken", "oldObject.spec"):
        assert word in text


@pytest.mark.parametrize(("value", "mark"), [("true", "x"), ("false", " ")])
def test_the_notes_say_whether_the_policy_is_there(value: str, mark: str) -> None:
    command = [
        str(tool("helm")),
        "install",
        RELEASE,
        str(CHART),
        "--dry-run=client",
        "--set",
        f"admissionPolicy.enabled={value}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"[{mark}] metadata of control that only the control plane writes" in done.stdout
    assert ("right to create ValidatingAdmissionPolicies" in done.stdout) == (value == "false")
