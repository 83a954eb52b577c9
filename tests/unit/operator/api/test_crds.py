"""The custom resources' schemas keep their own rules, and the reference says what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sandfleet_api.executor.v1 import service_pb2
from sandfleet_operator.api.conditions import ConditionType, GrantReason, PoolReason, Reason, ServiceReason
from sandfleet_operator.api.kinds.pool import PoolStatus, pool_status_json
from sandfleet_operator.api.kinds.queue import Preemption, QueueStatus, StopPolicy
from sandfleet_operator.api.kinds.sandbox import AdmissionState, OperatingMode, ServiceState
from sandfleet_operator.api.kinds.template import Contract, Retention
from sandfleet_operator.api.limits import BOUNDS, Limits
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.table import encode, table
from sandfleet_operator.executors.service_list import MAX_PORTS, STATES
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import warm_selector
from sandfleet_operator.plan.sandbox.services.status import MAX_MESSAGE, MAX_SERVICES
from support.operator.crd_schemas import CRDS, SCHEMAS, nodes

ROOT = Path(__file__).parents[4]
# Only Kubernetes itself may describe it.
DESCRIBED_ELSEWHERE = {"metadata"}
NEVER_THE_OWNERS = {
    "preload",
    "rollback",
    "runtimeClassName",
    "executor",
    "images",
    "user",
    "envFrom",
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "podAnnotations",
    "podLabels",
    "priorityClassName",
    "packages",
    "packagesTimeoutSeconds",
    "startTimeoutSeconds",
    "services",
    "networkClosure",
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
def test_every_rule_says_why_it_refuses(kind: str):
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
OPEN_INLINE = {"resources", "executionLimits", "contracts"}


def test_inline_has_the_fields_of_a_template_except_the_platform_teams():
    whole = SCHEMAS["SandboxTemplate"]["properties"]["spec"]
    inline = SCHEMAS["CodeSandbox"]["properties"]["spec"]["properties"]["inline"]
    theirs = {k: v for k, v in whole["properties"].items() if k not in NEVER_THE_OWNERS}
    open_ = {k: without_defaults(v) if k in OPEN_INLINE else v for k, v in theirs.items()}
    sizeless = {k: v for k, v in theirs["workspace"]["properties"]["size"].items() if k != "default"}
    workspace = {**theirs["workspace"], "properties": {**theirs["workspace"]["properties"], "size": sizeless}}
    lists = {k: v for k, v in theirs["egress"]["properties"].items() if k not in ("sets", "credentials")}
    egress = {**theirs["egress"], "properties": lists}
    assert inline["properties"] == {**open_, "workspace": workspace, "egress": egress}
    assert inline["required"] == whole["required"]


def test_a_sandbox_lowers_every_limit_of_the_executor_that_a_template_has():
    limits = SCHEMAS["SandboxTemplate"]["properties"]["spec"]["properties"]["executionLimits"]
    own = SCHEMAS["CodeSandbox"]["properties"]["spec"]["properties"]["executionLimits"]
    assert own["properties"] == without_defaults(limits)["properties"]
    assert set(own["properties"]) == {column.at.word for column in table(Limits)}
    said = {column.at.word: column for column in table(Limits)}
    for word, schema in limits["properties"].items():
        wanted = said[word].at.read
        default = schema["default"] if wanted is None else wanted(schema["default"], word)
        assert default == BOUNDS[said[word].name].default
        assert schema.get("minimum", BOUNDS[said[word].name].least) == BOUNDS[said[word].name].least


def test_only_the_template_of_a_pool_is_fixed():
    spec = SCHEMAS["SandboxPool"]["properties"]["spec"]
    assert {rule["fieldPath"] for rule in rules(spec) if "oldSelf" in rule["rule"]} == {".templateRef"}


@pytest.mark.parametrize(
    "status", [PoolStatus(), PoolStatus(warm=3, starting=2, hit_rate=0.98765, observed_generation=4)]
)
def test_the_status_of_a_pool_has_the_fields_of_its_schema(status: PoolStatus):
    written = pool_status_json(status)
    schema = SCHEMAS["SandboxPool"]["properties"]["status"]["properties"]
    assert set(written) == set(schema)
    assert written["replicas"] == status.warm + status.starting
    assert written["hitRate"] in {None, 0.988}


@pytest.mark.parametrize("status", [QueueStatus(), QueueStatus(used="50%", share="0%", oldest=1.0, pending=3)])
def test_the_status_of_a_queue_has_the_fields_of_its_schema(status: QueueStatus):
    schema = SCHEMAS["SandboxQueue"]["properties"]["status"]["properties"]
    written = encode(status)
    assert set(written) == set(schema)
    assert set(written["usage"]) == set(schema["usage"]["properties"])


def test_an_autoscaler_finds_the_replicas_and_the_pods_of_a_pool():
    version = CRDS["SandboxPool"]["spec"]["versions"][0]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    # An autoscaler asks for the pods by it: of this pool alone, and only those that status.replicas counts.
    warm = {**names.own_labels(**{names.STATE: "warm"}), names.POOL: names.bounded("a" * 63)}
    matches = parse_selector(warm_selector("a" * 63))
    assert matches(warm)
    assert not matches({**warm, names.STATE: "claimed"})
    assert not matches({**warm, names.POOL: "other"})
    status = SCHEMAS["SandboxPool"]["properties"]["status"]["properties"]
    assert len(warm_selector("a" * 63)) < status["selector"]["maxLength"]
    assert status["selector"]["type"] == "string"


def test_most_fields_of_a_sandbox_cannot_be_changed():
    spec = SCHEMAS["CodeSandbox"]["properties"]["spec"]
    fixed = {rule["fieldPath"][1:] for rule in rules(spec) if "oldSelf" in rule["rule"]}
    mutable = {"operatingMode", "suspend", "egress", "lifetimeSeconds", "idleTimeoutSeconds"}
    of_volume = {"workspace.size", "workspace.storageClassName", "workspace.claimName"}
    assert fixed == set(spec["properties"]) - mutable - {"workspace"} | of_volume
    fields = {"size", "storageClassName", "claimName", "retention"}
    assert set(spec["properties"]["workspace"]["properties"]) == fields


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("CodeSandbox.spec.operatingMode", OperatingMode),
        ("CodeSandbox.spec.workspace.retention", Retention),
        ("CodeSandbox.spec.contract", Contract),
        ("CodeSandbox.status.admission.state", AdmissionState),
        ("SandboxQueue.spec.stopPolicy", StopPolicy),
        ("SandboxQueue.spec.preemption", Preemption),
    ],
)
def test_the_enums_of_the_schema_are_the_values_words(path: str, words: type):
    kind, _, field = path.partition(".")
    schema = dict(nodes(SCHEMAS[kind]))[field]
    assert schema["enum"] == [getattr(one, "word", one.value) for one in words]


def test_the_schema_knows_the_executors_states_of_services():
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


@pytest.mark.parametrize("reason", [*Reason, *PoolReason, *ServiceReason, *GrantReason])
def test_a_reason_has_a_meaning_and_a_remedy(reason: Reason | PoolReason | ServiceReason | GrantReason):
    assert reason.name == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", reason.value).upper()
    assert reason.meaning.endswith(".")
    assert reason.remedy.endswith(".")


def test_the_runbook_has_an_entry_for_each_reason_of_a_pool_of_a_queue_and_of_services():
    text = (ROOT / "docs/howto/runbook.md").read_text()
    reasons = (*PoolReason, *ServiceReason, *GrantReason)
    assert [one.value for one in reasons if f"### {one.value}\n" not in text] == []


@pytest.mark.process
def test_the_reference_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", sorted(CRDS))
def test_printer_columns_have_the_fields_of_kubernetes_only(kind: str) -> None:
    known = {"name", "type", "jsonPath", "description", "priority", "format"}
    columns = CRDS[kind]["spec"]["versions"][0].get("additionalPrinterColumns", [])
    assert {word for column in columns for word in column} <= known
