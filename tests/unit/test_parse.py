"""Objects of the API server become values: every field is read, nothing of a wrong type gets through."""

import pytest
from crd_schemas import SCHEMAS, filled, leaves, sample
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.parse import code_sandbox, sandbox_pool, sandbox_queue, sandbox_template, status_json
from sandfleet_operator.api.resources import (
    CodeSandbox,
    Condition,
    Contract,
    Egress,
    EgressRule,
    Meta,
    Port,
    Resources,
    Restart,
    Retention,
    SandboxStatus,
    ServiceState,
    ServiceStatus,
    Workspace,
)
from sandfleet_operator.api.values import Limits

PARSERS = {
    "CodeSandbox": code_sandbox,
    "SandboxTemplate": sandbox_template,
    "SandboxPool": sandbox_pool,
    "SandboxQueue": sandbox_queue,
}
META = {"namespace": "team", "name": "one", "uid": "u-1", "creationTimestamp": "2026-11-21T10:00:00Z"}
MINIMAL = {
    "CodeSandbox": {"template": "python"},
    "SandboxTemplate": {"image": "python:3"},
    "SandboxPool": {"template": "python", "size": 3},
    "SandboxQueue": {"nominalQuota": 5},
}
# Nobody reads the status of a pool or a queue back.
READ = [("CodeSandbox", "spec"), ("CodeSandbox", "status"), *((kind, "spec") for kind in MINIMAL if kind[0] == "S")]
LEAVES = [(kind, path) for kind, part in READ for path in leaves(kind, part)]


def an_object(kind: str, spec: object, **more: object) -> dict:
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": META, "spec": spec, **more}


def whole(kind: str, path: str, **how: object) -> dict:
    """With every field, but of template and inline the one that the path is about."""
    value = sample(SCHEMAS[kind], **how)
    value["metadata"] = META
    if kind == "CodeSandbox":
        del value["spec"]["template" if path.startswith("spec.inline") else "inline"]
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
        ("CodeSandbox", {}, "cannot read spec: exactly one of template and inline has to be there"),
        ("CodeSandbox", {"template": True}, "cannot read spec.template: true or false stands where a text should be"),
        ("CodeSandbox", {"template": "a", "env": {}}, "cannot read spec.env: an object stands where a list should be"),
        ("CodeSandbox", {"template": "a", "contract": "none"}, "'none' is none of autonomous, brokered, reviewed"),
        ("CodeSandbox", {"template": "a", "resources": {"cpu": "1x"}}, "cannot read spec.resources.cpu: '1x' is no"),
        ("CodeSandbox", {"inline": {}}, "cannot read spec.inline.image: it is missing"),
        ("SandboxTemplate", [], "cannot read spec: a list stands where an object should be"),
        ("SandboxTemplate", {"image": "a", "contracts": ["x"]}, "cannot read spec.contracts[0]: 'x' is none of"),
        ("SandboxTemplate", {"image": "a", "envFrom": [{}]}, "cannot read spec.envFrom[0].secretRef.name: it is"),
        ("SandboxPool", {"template": "a"}, "cannot read spec.size: it is missing"),
        ("SandboxQueue", {"nominalQuota": True}, "true or false stands where a whole number should be"),
    ],
)
def test_what_cannot_be_read_says_why(kind: str, spec: object, message: str):
    with pytest.raises(FleetError) as caught:
        PARSERS[kind](an_object(kind, spec))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        *((kind, {}) for kind in MINIMAL),
        ("CodeSandbox", {"egress": {"allow": [{"cidr": "10.0.0.0/8", "ports": [{"port": 443}]}]}}),
        ("CodeSandbox", {"env": [{"name": "A"}], "workspace": {}, "limits": {}, "resources": {}}),
        ("SandboxTemplate", {"resources": {"limits": {"memory": "256Mi"}}, "limits": {"maxTimeoutSeconds": 60}}),
        ("SandboxTemplate", {"envFrom": [{"secretRef": {"name": "a"}}], "egress": {}}),
    ],
)
def test_an_object_reads_the_same_before_and_after_the_api_server_filled_it_in(kind: str, more: dict):
    value = an_object(kind, {**MINIMAL[kind], **more})
    assert PARSERS[kind](filled(SCHEMAS[kind], value)) == PARSERS[kind](value)


def test_a_template_in_place_reads_as_the_same_template_does():
    written = filled(SCHEMAS["SandboxTemplate"]["properties"]["spec"], {"image": "a"})
    inline = code_sandbox(an_object("CodeSandbox", {"inline": written}))
    assert inline.spec.inline == sandbox_template(an_object("SandboxTemplate", {"image": "a"})).spec


def test_what_is_not_written_of_a_template_in_place_stays_open():
    schema = SCHEMAS["CodeSandbox"]["properties"]["spec"]
    inline = code_sandbox(an_object("CodeSandbox", filled(schema, {"inline": {"image": "a"}}))).spec.inline
    assert (inline.resources, inline.requests, inline.limits) == (Resources(), Resources(), Limits())
    assert (inline.workspace, inline.contracts) == (Workspace(size=0, retention=Retention.DELETE), ())


def test_null_is_absent_and_unknown_fields_are_nobodys():
    spec = {"template": "python", "egress": None, "workspace": None, "lifetimeSeconds": None, "brandNew": {"x": 1}}
    assert code_sandbox(an_object("CodeSandbox", spec, status=None)) == code_sandbox(
        an_object("CodeSandbox", {"template": "python"})
    )


def test_no_egress_is_the_templates_and_an_empty_one_is_none_at_all():
    def egress(**spec: object) -> Egress | None:
        return code_sandbox(an_object("CodeSandbox", {"template": "a", **spec})).spec.egress

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
        **an_object("CodeSandbox", {"template": "a"}),
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


def test_a_state_of_a_later_version_is_unknown_and_makes_no_sandbox_unreadable():
    status = {"services": [{"name": "db", "state": "Hibernating"}]}
    (found,) = code_sandbox(an_object("CodeSandbox", {"template": "a"}, status=status)).status.services
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
        ("pod", "pod_uid", "node", "address", "runtime", "image_digest", "workspace_claim", "services_ready"), TEXTS
    ),
    **dict.fromkeys(("observed_generation", "restarts", "crashes", "fencing"), COUNTS),
)


@given(STATUSES)
def test_a_status_that_was_written_is_read_again(status: SandboxStatus):
    written = status_json(status)
    assert code_sandbox(an_object("CodeSandbox", {"template": "a"}, status=written)).status == status
    # A merge patch removes only what it names.
    assert set(written) == set(SCHEMAS["CodeSandbox"]["properties"]["status"]["properties"])
