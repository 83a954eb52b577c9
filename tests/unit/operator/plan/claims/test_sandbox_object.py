"""The CodeSandbox of a claim says of its limits what its schema takes, and what another pod of it is to get."""

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.sandbox import code_sandbox as parse
from sandfleet_operator.api.limits import TEMPLATE_LIMITS, Limits
from sandfleet_operator.api.quantities import MIB, parse_bytes
from sandfleet_operator.plan.claims.record import Record, read_record, record_text
from sandfleet_operator.plan.claims.sandbox_object import code_sandbox
from sandfleet_operator.plan.pods.merge import Effective, effective
from support.operator.builders import SETTINGS, a_template
from support.operator.crd_schemas import SCHEMAS

TEMPLATE = a_template()
MOST = effective(
    TEMPLATE, parse({"metadata": {"name": "x"}, "spec": {"templateRef": {"name": "python"}}}).spec, SETTINGS
).limits


def up_to(most):
    whole = st.integers(0, int(most))
    return whole if isinstance(most, int) else whole.map(float) | st.floats(0, most)


LIMITS = st.builds(Limits, **{one.name: up_to(getattr(MOST, one.name)) for one in fields(Limits)})


def a_record(limits):
    return Record(object="claim-1", request="r", holder="h", fencing=1, at=0.0, lease=60.0, limits=limits)


def an_object(limits):
    made = code_sandbox(
        "team", "pod", "uid", a_record(limits), template="python", pool="", memory_reserve=SETTINGS.memory_reserve
    )
    return made["spec"]


@given(LIMITS)
def test_the_object_of_any_valid_claim_is_accepted_and_its_next_pod_has_the_same_limits(limits):
    spec = an_object(limits)
    wanted = effective(TEMPLATE, parse({"metadata": {"name": "x"}, "spec": spec}).spec, SETTINGS)
    assert isinstance(wanted, Effective), wanted
    assert not wanted.limits.above(MOST)
    for one in fields(Limits):
        asked, given = getattr(limits, one.name), getattr(wanted.limits, one.name)
        if asked and one.name != "default_timeout":
            least = {"memory_bytes": 64 * MIB, "processes": 8, "open_files": 64}
            least |= dict.fromkeys(("tmp_bytes", "output_bytes", "disk_bytes"), MIB)
            assert asked <= given <= max(asked + 1, least.get(one.name, 1))
    assert wanted.limits.default_timeout <= wanted.limits.max_timeout


def test_the_next_pod_of_a_claim_has_its_mounts():
    record = replace(a_record(Limits()), mounts={"/app": "", "/logs": "out/logs"})
    made = code_sandbox("team", "pod", "uid", record, template="python", pool="", memory_reserve=0)
    assert made["spec"]["mounts"] == [{"path": "/app"}, {"path": "/logs", "folder": "out/logs"}]
    assert effective(TEMPLATE, parse(made).spec, SETTINGS).mounts == record.mounts
    assert "mounts" not in an_object(Limits())


@given(LIMITS)
def test_what_is_written_is_within_the_schemas_bounds(limits):
    properties = SCHEMAS["CodeSandbox"]["properties"]["spec"]["properties"]["executionLimits"]["properties"]
    said = an_object(limits).get("limits", {})
    assert set(said) <= set(properties)
    for name, value in said.items():
        if "minimum" in properties[name]:
            assert isinstance(value, int)
            assert properties[name]["minimum"] <= value <= properties[name]["maximum"]
        else:
            assert parse_bytes(value, name) >= MIB
    if {"maxTimeoutSeconds", "defaultTimeoutSeconds"} <= set(said):
        assert said["defaultTimeoutSeconds"] <= said["maxTimeoutSeconds"]


@given(LIMITS, st.sampled_from(["", "workspace-old"]))
def test_a_record_is_read_as_it_was_written(limits, workspace):
    record = replace(a_record(limits), workspace=workspace)
    assert read_record(record_text(record)) == record


def test_the_templates_own_limits_may_be_asked_for():
    assert an_object(MOST)["executionLimits"]["processes"] == TEMPLATE_LIMITS.processes
    assert "limits" not in an_object(Limits())
