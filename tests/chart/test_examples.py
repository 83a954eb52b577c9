"""The examples are what the schema, the values and the planner take, with the chart's own defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from chart.helm_chart import CHART, ROOT, named, rendered
from sandfleet._fleets import cluster
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import sandbox_template
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.reviews import AUDIENCE
from sandfleet_operator.executors.signing import CA_CERTIFICATE
from sandfleet_operator.plan.pods.merge import Effective, effective
from support.operator.crd_schemas import SCHEMAS, filled

AGENT = ROOT / "examples/agent.yaml"
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml") if path != AGENT)
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())["settings"]
SETTINGS = Settings.parse({**VALUES, "controlPlaneNamespace": "sandfleet", "executor": {}})
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]


def objects(path: Path) -> dict[tuple[str, str], dict]:
    values = list(yaml.safe_load_all(path.read_text()))
    return {(one["kind"], one["metadata"]["name"]): one for one in values}


def unknown(schema: dict, value: object, path: str = "") -> list[str]:
    """Fields that the schema does not have: kubectl refuses them."""
    if isinstance(value, list):
        return [found for one in value for found in unknown(schema["items"], one, f"{path}[]")]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    found = [f"{path}.{name}" for name in value if name not in schema["properties"]]
    known = {name: inner for name, inner in value.items() if name in schema["properties"]}
    return found + [
        one for name, inner in known.items() for one in unknown(schema["properties"][name], inner, f"{path}.{name}")
    ]


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "egress",
        "persistent-workspace",
        "pool",
        "quickstart",
        "services",
        "suspended",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_stands_alone_and_works_in_any_namespace(path: Path) -> None:
    found = objects(path)
    for (kind, _), one in found.items():
        assert one["apiVersion"] == "sandfleet.io/v1alpha1"
        assert set(one["metadata"]) == {"name"}
        assert unknown(SCHEMAS[kind], {"spec": one["spec"]}) == []
        if kind != "SandboxTemplate":
            assert ("SandboxTemplate", one["spec"]["templateRef"]["name"]) in found
            assert "poolRef" not in one["spec"] or ("SandboxPool", one["spec"]["poolRef"]["name"]) in found


def test_no_two_examples_share_an_object() -> None:
    """Deleting one takes nothing from another."""
    every = [key for path in EXAMPLES for key in objects(path)]
    assert len(every) == len(set(every))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_sandboxes_of_an_example_are_valid_with_the_charts_defaults(path: Path) -> None:
    found = objects(path)
    stored = {
        key: {**one, "spec": filled(SCHEMAS[one["kind"]]["properties"]["spec"], one["spec"])}
        for key, one in found.items()
    }
    made = 0
    for (kind, _), one in stored.items():
        if kind == "CodeSandbox":
            template = sandbox_template(stored["SandboxTemplate", one["spec"]["templateRef"]["name"]])
            result = effective(template.spec, code_sandbox(one).spec, SETTINGS)
            assert isinstance(result, Effective), result
            assert result.image == f"sandfleet/executor:{VERSION}"
            assert result.lifetime
            made += 1
    assert made


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_commands_in_its_comments_speak_of_its_own_objects(path: Path) -> None:
    named = {name for _, name in objects(path)}
    said = set(re.findall(r"(?:csb|sbp)[/ ]([a-z][a-z-]*)", path.read_text())) | set(
        re.findall(r"-f examples/([a-z-]+)\.yaml", path.read_text())
    )
    assert said
    assert said <= named | {path.stem}


def test_an_agents_pod_has_what_its_client_looks_for_and_the_role_that_it_needs() -> None:
    found = objects(AGENT)
    account, grant, pod = found["ServiceAccount", "agent"], found["RoleBinding", "agent"], found["Pod", "agent"]
    assert pod["spec"]["serviceAccountName"] == account["metadata"]["name"] == grant["subjects"][0]["name"]
    (role,) = named(rendered(), "ClusterRole", grant["roleRef"]["name"])
    assert not role["metadata"]["labels"].keys() & {"rbac.authorization.k8s.io/aggregate-to-edit"}
    (container,) = pod["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == str(cluster.POD_FILES)
    token, certificate = pod["spec"]["volumes"][0]["projected"]["sources"]
    assert (token["serviceAccountToken"]["audience"], token["serviceAccountToken"]["path"]) == (AUDIENCE, "token")
    assert certificate["configMap"]["items"] == [{"key": CA_CERTIFICATE, "path": "ca.crt"}]
    assert pod["metadata"]["labels"] == {SETTINGS.client_label: "true"}
    assert [one["name"] for one in container["env"]] == ["SANDFLEET_SANDBOX_NAMESPACE"]
