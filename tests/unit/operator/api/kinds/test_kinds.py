"""Objects of the API server become values: every field is read, nothing of a wrong type gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.kinds.meta import Condition, Meta
from sandfleet_operator.api.kinds.pool import sandbox_pool
from sandfleet_operator.api.kinds.queue import Quota, sandbox_queue
from sandfleet_operator.api.kinds.sandbox import (
    AdmissionState,
    AdmissionStatus,
    CodeSandbox,
    Restart,
    SandboxStatus,
    ServiceState,
    ServiceStatus,
    code_sandbox,
    status_json,
)
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    EgressRule,
    Port,
    Resources,
    Retention,
    Workspace,
    sandbox_template,
)
from sandfleet_operator.api.limits import Limits
from support.operator.crd_schemas import SCHEMAS, filled, leaves, sample
from support.operator.crd_strategies import refusals, specs

PARSERS = {
    "CodeSandbox": code_sandbox,
    "SandboxTemplate": sandbox_template,
    "SandboxPool": sandbox_pool,
    "SandboxQueue": sandbox_queue,
}
META = {"namespace": "team", "name": "one", "uid": "u-1", "creationTimestamp": "2026-11-21T10:00:00Z"}
MINIMAL = {
    "CodeSandbox": {"templateRef": {"name": "python"}},
    "SandboxTemplate": {"image": "python:3"},
    "SandboxPool": {"templateRef": {"name": "python"}, "replicas": 3},
    "SandboxQueue": {"nominalQuota": {"sandboxes": 5}},
}
# The status of a pool or a queue is never read back.
READ = [("CodeSandbox", "spec"), ("CodeSandbox", "status"), *((kind, "spec") for kind in MINIMAL if kind[0] == "S")]
LEAVES = [(kind, path) for kind, part in READ for path in leaves(kind, part)]


def an_object(kind: str, spec: object, **more: object) -> dict:
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": META, "spec": spec, **more}


def whole(kind: str, path: str, **how: object) -> dict:
    """With every field, but of templateRef and inline the one that the path is about."""
    value = sample(SCHEMAS[kind], **how)
    value["metadata"] = META
    if kind == "CodeSandbox":
        del value["spec"]["templateRef" if path.startswith("spec.inline") else "inline"]
    return value


@pytest.mark.parametrize(("kind", "path"), LEAVES)
def test_every_field_counts(kind: str, path: str):
    parse = PARSERS[kind]
    assert parse(whole(kind, path)) != parse(whole(kind, path, other=path))


@pytest.mark.parametrize(("kind", "path"), [one for one in LEAVES if "tolerations" not in one[1]])
@pytest.mark.parametrize("wrong", [1.5, ["x"], {"x": 1}], ids=["float", "list", "object"])
def test_a_field_of_a_wrong_type_is_named(kind: str, path: str, wrong: object):
    if path == "spec.targetHitRate" and wrong == 1.5:
        # The one field that is a number with a point.
        wrong = "1.5"
    with pytest.raises(FleetError) as caught:
        PARSERS[kind](whole(kind, path, other=path, wrong=wrong))
    problem = caught.value.problem
    assert problem.code is Code.INVALID_ARGUMENT
    where = path.replace("[]", "[0]").replace("{}", ".key")
    assert problem.message.startswith(f"cannot read {where}: ")


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("CodeSandbox", {}, "cannot read spec: exactly one of templateRef and inline has to be there"),
        (
            "CodeSandbox",
            {"templateRef": {"name": True}},
            "cannot read spec.templateRef.name: true or false stands where a text should be",
        ),
        (
            "CodeSandbox",
            {"templateRef": {"name": "a"}, "env": {}},
            "cannot read spec.env: an object stands where a list should be",
        ),
        (
            "CodeSandbox",
            {"templateRef": {"name": "a"}, "contract": "none"},
            "'none' is none of Autonomous, Brokered, Reviewed",
        ),
        (
            "CodeSandbox",
            {"templateRef": {"name": "a"}, "resources": {"limits": {"cpu": "1x"}}},
            "cannot read spec.resources.limits.cpu: '1x' is no",
        ),
        ("CodeSandbox", {"inline": {}}, "cannot read spec.inline.image: it is missing"),
        ("SandboxTemplate", [], "cannot read spec: a list stands where an object should be"),
        ("SandboxTemplate", {"image": "a", "contracts": ["x"]}, "cannot read spec.contracts[0]: 'x' is none of"),
        ("SandboxTemplate", {"image": "a", "envFrom": [{}]}, "cannot read spec.envFrom[0].secretRef.name: it is"),
        ("SandboxPool", {"templateRef": {"name": "a"}}, "cannot read spec.replicas: it is missing"),
        (
            "SandboxQueue",
            {"nominalQuota": 5},
            "cannot read spec.nominalQuota: a whole number stands where an object should",
        ),
        ("SandboxQueue", {"nominalQuota": {"sandboxes": True}}, "true or false stands where a whole number should be"),
        (
            "SandboxQueue",
            {"nominalQuota": {}, "borrowingLimit": {"cpu": 1}},
            "cannot read spec.borrowingLimit: a queue without a cohort has no queue to borrow from",
        ),
        ("SandboxQueue", {"nominalQuota": {}, "stopPolicy": "Stop"}, "'Stop' is none of None, Hold, HoldAndDrain"),
    ],
)
def test_an_unreadable_field_is_refused_with_the_reason(kind: str, spec: object, message: str):
    with pytest.raises(FleetError) as caught:
        PARSERS[kind](an_object(kind, spec))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        *((kind, {}) for kind in MINIMAL),
        ("CodeSandbox", {"egress": {"allow": [{"cidr": "10.0.0.0/8", "ports": [{"port": 443}]}]}}),
        ("CodeSandbox", {"env": [{"name": "A"}], "workspace": {}, "executionLimits": {}, "resources": {}}),
        (
            "SandboxTemplate",
            {"resources": {"limits": {"memory": "256Mi"}}, "executionLimits": {"maxTimeoutSeconds": 60}},
        ),
        ("SandboxTemplate", {"envFrom": [{"secretRef": {"name": "a"}}], "egress": {}}),
    ],
)
def test_an_object_reads_the_same_before_and_after_the_api_server_filled_it_in(kind: str, more: dict):
    value = an_object(kind, {**MINIMAL[kind], **more})
    assert PARSERS[kind](filled(SCHEMAS[kind], value)) == PARSERS[kind](value)


def test_an_inline_template_reads_like_a_named_one():
    written = filled(SCHEMAS["SandboxTemplate"]["properties"]["spec"], {"image": "a"})
    inline = code_sandbox(an_object("CodeSandbox", {"inline": written}))
    assert inline.spec.inline == sandbox_template(an_object("SandboxTemplate", {"image": "a"})).spec


def test_absent_values_of_an_inline_template_stay_open():
    schema = SCHEMAS["CodeSandbox"]["properties"]["spec"]
    inline = code_sandbox(an_object("CodeSandbox", filled(schema, {"inline": {"image": "a"}}))).spec.inline
    assert (inline.resources, inline.requests, inline.limits) == (Resources(), Resources(), Limits())
    assert (inline.workspace, inline.contracts) == (Workspace(size=0, retention=Retention.DELETE), ())


def test_null_counts_as_absent_and_unknown_fields_are_ignored():
    spec = {
        "templateRef": {"name": "python"},
        "egress": None,
        "workspace": None,
        "lifetimeSeconds": None,
        "brandNew": {"x": 1},
    }
    assert code_sandbox(an_object("CodeSandbox", spec, status=None)) == code_sandbox(
        an_object("CodeSandbox", {"templateRef": {"name": "python"}})
    )


def test_absent_egress_means_the_templates_and_empty_egress_means_none():
    def egress(**spec: object) -> Egress | None:
        return code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}, **spec})).spec.egress

    assert egress() is None
    assert egress(egress={}) == Egress()
    rule = {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"], "ports": [{"port": 1, "endPort": 2, "protocol": "UDP"}]}
    expected = EgressRule("10.0.0.0/8", ("10.1.0.0/16",), (Port("UDP", 1, 2),))
    assert egress(egress={"allow": [rule], "dns": True}) == Egress((expected,), dns=True)


def test_a_limit_below_the_default_request_lowers_the_request():
    spec = {"image": "a", "resources": {"limits": {"cpu": "100m", "memory": "256Mi"}}}
    assert sandbox_template(an_object("SandboxTemplate", spec)).spec.requests == Resources(
        cpu=0.1, memory=256 << 20, ephemeral_storage=1 << 30
    )


def test_metadata_is_read():
    meta = {**META, "generation": 3, "resourceVersion": "9", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    value = {
        **an_object("CodeSandbox", {"templateRef": {"name": "a"}}),
        "metadata": {**meta, "deletionTimestamp": "2026-11-21T10:00:01Z"},
    }
    read = code_sandbox(value)
    assert isinstance(read, CodeSandbox)
    assert read.meta == Meta(
        namespace="team",
        name="one",
        uid="u-1",
        generation=3,
        resource_version="9",
        labels={"a": "b"},
        annotations={"c": "d"},
        created=1795255200.0,
        deleting=True,
    )
    template = sandbox_template(an_object("SandboxTemplate", {"image": "a", "workspace": {"retention": "Retain"}}))
    assert not template.meta.deleting
    assert template.spec.workspace.retention is Retention.RETAIN
    assert template.spec.contracts == (Contract.AUTONOMOUS,)


def test_a_service_state_of_a_later_version_reads_as_unknown():
    status = {"services": [{"name": "db", "state": "Hibernating"}]}
    (found,) = code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}}, status=status)).status.services
    assert found == ServiceStatus(name="db", state=ServiceState.UNKNOWN)


TEXTS = st.text(max_size=20)
COUNTS = st.integers(0, 1 << 31)
MOMENTS = st.integers(0, 4 * 10**15).map(lambda microseconds: microseconds / 10**6)
STATUSES = st.builds(
    SandboxStatus,
    conditions=st.lists(
        st.builds(
            Condition,
            type=st.text("Ab", min_size=1),
            status=st.sampled_from(["True", "False", "Unknown"]),
            reason=TEXTS,
            message=TEXTS,
            changed=MOMENTS,
            observed_generation=COUNTS,
        ),
        max_size=3,
    ).map(tuple),
    restart_history=st.lists(
        st.builds(Restart, reason=st.text("Ab", min_size=1), time=MOMENTS, message=TEXTS), max_size=3
    ).map(tuple),
    services=st.lists(
        st.builds(
            ServiceStatus,
            name=st.text("Ab", min_size=1),
            state=st.sampled_from(ServiceState),
            reason=TEXTS,
            message=TEXTS,
            restarts=COUNTS,
            ports=st.lists(COUNTS, max_size=3).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    **dict.fromkeys(
        (
            "pod",
            "pod_uid",
            "node",
            "address",
            "runtime",
            "image_digest",
            "workspace_claim",
            "services_ready",
            "restores_from",
        ),
        TEXTS,
    ),
    **dict.fromkeys(("observed_generation", "restarts", "crashes", "fencing"), COUNTS),
)


@given(STATUSES)
def test_a_written_status_reads_as_itself(status: SandboxStatus):
    written = status_json(status)
    assert code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}}, status=written)).status == status
    # A merge patch removes only what it names; the binding is the fleet's to write.
    fleets = {"binding", "admission", "review", "received", "callVotes", "snapshot"}
    assert {*written, *fleets} == set(SCHEMAS["CodeSandbox"]["properties"]["status"]["properties"])
    assert not fleets & set(written)


def test_the_operators_status_never_says_what_the_fleet_has_decided():
    admission = AdmissionStatus(queue="team", state=AdmissionState.ADMITTED, time=1.0)
    assert "admission" not in status_json(SandboxStatus(admission=admission))


def test_a_queue_is_read_in_millicores_and_bytes():
    spec = {"nominalQuota": {"sandboxes": 3, "cpu": "1.5", "memory": "2Gi"}, "cohort": "c", "lendingLimit": {"cpu": 1}}
    read = sandbox_queue(an_object("SandboxQueue", spec)).spec
    assert (read.nominal, read.lending) == (Quota(sandboxes=3, cpu=1500, memory=2 << 30), Quota(cpu=1000))
    assert read.borrowing == Quota()


@given(specs("SandboxQueue"))
def test_every_queue_that_the_schema_lets_through_is_read(spec: dict):
    assert refusals("SandboxQueue", spec) == []
    read = sandbox_queue(an_object("SandboxQueue", spec)).spec
    assert read.cohort == spec.get("cohort", "")
    for name, lent in vars_of(read.lending).items():
        nominal = vars_of(read.nominal)[name]
        assert lent is None or nominal is None or lent <= nominal


def vars_of(quota: Quota) -> dict[str, int | None]:
    return {"sandboxes": quota.sandboxes, "cpu": quota.cpu, "memory": quota.memory}
