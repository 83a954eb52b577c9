"""The custom resources' schemas keep their own rules, and the reference says what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from crd_schemas import CRDS, SCHEMAS, nodes
from sandfleet_api.executor.v1 import service_pb2
from sandfleet_operator.api.conditions import ConditionType, PoolReason, Reason, ServiceReason
from sandfleet_operator.api.parse import pool_status_json
from sandfleet_operator.api.resources import Contract, OperatingMode, PoolStatus, Retention, ServiceState
from sandfleet_operator.effects.servicelist import MAX_PORTS, STATES
from sandfleet_operator.plan.sandbox.services import MAX_MESSAGE, MAX_SERVICES

ROOT = Path(__file__).parents[2]
# Kubernetes describes it itself, and lets nobody else.
DESCRIBED_ELSEWHERE = {"metadata"}
NEVER_THE_OWNERS = {
    "rollback",
    "runtimeClassName",
    "envFrom",
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
    "packages",
    "packagesTimeoutSeconds",
    "services",
}
EVERY = [pytest.param(path, schema, id=f"{kind}:{path}") for kind in SCHEMAS for path, schema in nodes(SCHEMAS[kind])]


def rules(schema: dict) -> list[dict]:
    return [rule for _, inner in nodes(schema) for rule in inner.get("x-kubernetes-validations", ())]


@pytest.mark.parametrize(("path", "schema"), EVERY)
def test_every_field_is_described_and_bounded(path: str, schema: dict):
    if path not in DESCRIBED_ELSEWHERE:
        assert re.fullmatch(r"[A-Z].*[.]", schema["description"], re.DOTALL)
    kind = schema.get("type")
    assert kind or schema["x-kubernetes-int-or-string"]
    if kind == "string" or not kind:
        assert schema["maxLength"] <= 32768
    if kind == "array":
        assert schema["maxItems"] <= 256
        assert schema["x-kubernetes-list-type"] in {"map", "set", "atomic"}
    if "additionalProperties" in schema:
        assert schema["maxProperties"] <= 256
    if kind in {"integer", "number"}:
        assert "minimum" in schema
        assert "maximum" in schema or path.startswith("status.")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_refuses_says_why(kind: str):
    messages = [rule["message"] for rule in rules(SCHEMAS[kind])]
    assert messages
    assert [text for text in messages if not text.startswith("cannot ")] == []


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("CodeSandbox", ("codesandboxes", "csb")),
        ("SandboxTemplate", ("sandboxtemplates", "sbt")),
        ("SandboxPool", ("sandboxpools", "sbp")),
        ("SandboxQueue", ("sandboxqueues", "sbq")),
    ],
)
def test_the_kinds_have_their_names(kind: str, names: tuple[str, str]):
    spec = CRDS[kind]["spec"]
    assert (spec["names"]["plural"], spec["names"]["shortNames"][0]) == names
    assert (spec["group"], spec["scope"], spec["names"]["categories"]) == ("sandfleet.io", "Namespaced", ["sandfleet"])
    assert CRDS[kind]["metadata"]["name"] == f"{names[0]}.sandfleet.io"
    assert [version["name"] for version in spec["versions"]] == ["v1alpha1"]
    # A status that its owner may write would be no status.
    has_status = "status" in SCHEMAS[kind]["properties"]
    assert has_status == ("status" in spec["versions"][0].get("subresources", {})) == (kind != "SandboxTemplate")


def without_defaults(schema: dict) -> dict:
    inner = {name: without_defaults(one) for name, one in schema.get("properties", {}).items()}
    return {k: v for k, v in schema.items() if k != "default"} | ({"properties": inner} if inner else {})


# What is not written there is the default only where the settings allow so much: the API server is not to fill it in.
OPEN_INLINE = {"resources", "limits", "contracts"}


def test_a_template_in_place_has_what_a_template_has_but_what_is_never_its_owners():
    whole = SCHEMAS["SandboxTemplate"]["properties"]["spec"]
    inline = SCHEMAS["CodeSandbox"]["properties"]["spec"]["properties"]["inline"]
    theirs = {k: v for k, v in whole["properties"].items() if k not in NEVER_THE_OWNERS}
    open_ = {k: without_defaults(v) if k in OPEN_INLINE else v for k, v in theirs.items()}
    sizeless = {k: v for k, v in theirs["workspace"]["properties"]["size"].items() if k != "default"}
    workspace = {**theirs["workspace"], "properties": {**theirs["workspace"]["properties"], "size": sizeless}}
    assert inline["properties"] == {**open_, "workspace": workspace}
    assert inline["required"] == whole["required"]


def test_only_the_template_of_a_pool_is_fixed():
    spec = SCHEMAS["SandboxPool"]["properties"]["spec"]
    assert {rule["fieldPath"] for rule in rules(spec) if "oldSelf" in rule["rule"]} == {".template"}


@pytest.mark.parametrize(
    "status", [PoolStatus(), PoolStatus(warm=3, starting=2, hit_rate=0.98765, observed_generation=4)]
)
def test_what_is_written_of_a_pool_is_in_its_schema(status: PoolStatus):
    written = pool_status_json(status)
    schema = SCHEMAS["SandboxPool"]["properties"]["status"]["properties"]
    assert set(written) == set(schema)
    assert written["size"] == status.warm + status.starting
    assert written["hitRate"] in {None, 0.988}


def test_what_of_a_sandbox_is_fixed_when_it_is_made():
    spec = SCHEMAS["CodeSandbox"]["properties"]["spec"]
    fixed = {rule["fieldPath"][1:] for rule in rules(spec) if "oldSelf" in rule["rule"]}
    mutable = {"operatingMode", "egress", "lifetimeSeconds", "idleTimeoutSeconds"}
    of_volume = {"workspace.size", "workspace.storageClassName", "workspace.claimName"}
    assert fixed == set(spec["properties"]) - mutable - {"workspace"} | of_volume
    fields = {"size", "storageClassName", "claimName", "retention"}
    assert set(spec["properties"]["workspace"]["properties"]) == fields


@pytest.mark.parametrize(
    ("path", "words"),
    [("operatingMode", OperatingMode), ("workspace.retention", Retention), ("contract", Contract)],
)
def test_the_schema_knows_the_words_of_the_values(path: str, words: type):
    schema = dict(nodes(SCHEMAS["CodeSandbox"]))[f"spec.{path}"]
    assert schema["enum"] == [one.value for one in words]


def test_the_schema_knows_what_executors_say_of_services():
    fields = dict(nodes(SCHEMAS["CodeSandbox"]))
    assert fields["status.services[].state"]["enum"] == [one.value for one in ServiceState]
    assert {state.value for state in STATES.values()} == {one.value for one in ServiceState} - {"Unknown"}
    # Every one that the executor's API has.
    assert set(STATES) == set(service_pb2.ServiceState.values()) - {service_pb2.SERVICE_STATE_UNSPECIFIED}
    declared = dict(nodes(SCHEMAS["SandboxTemplate"]))["spec.services"]["maxItems"]
    assert fields["status.services"]["maxItems"] == MAX_SERVICES == declared
    assert fields["status.services[].message"]["maxLength"] == MAX_MESSAGE
    assert fields["status.services[].ports"]["maxItems"] == MAX_PORTS


@pytest.mark.parametrize("kind", ["CodeSandbox", "SandboxPool", "SandboxQueue"])
def test_conditions_have_one_shape_and_the_reasons_fit_it(kind: str):
    conditions = SCHEMAS[kind]["properties"]["status"]["properties"]["conditions"]
    assert conditions == SCHEMAS["CodeSandbox"]["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    shape = conditions["items"]["properties"]
    assert all(re.search(shape["reason"]["pattern"], one.value) for one in (*Reason, *PoolReason))
    assert max(len(one.value) for one in (*Reason, *PoolReason)) <= shape["reason"]["maxLength"]
    assert len(ConditionType) <= conditions["maxItems"]


@pytest.mark.parametrize("reason", [*Reason, *PoolReason, *ServiceReason])
def test_a_reason_says_what_it_means_and_what_to_do(reason: Reason | PoolReason | ServiceReason):
    assert reason.name == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", reason.value).upper()
    assert reason.meaning.endswith(".")
    assert reason.remedy.endswith(".")


def test_the_runbook_has_an_entry_for_each_reason_of_a_pool_and_of_services():
    text = (ROOT / "docs/howto/runbook.md").read_text()
    assert [one.value for one in (*PoolReason, *ServiceReason) if f"### {one.value}\n" not in text] == []


def test_the_reference_is_made_from_what_it_speaks_of():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
