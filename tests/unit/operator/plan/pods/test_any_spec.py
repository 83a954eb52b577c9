"""Any objects that the schemas admit give a clear refusal, or a pod that may run within its template's limits."""

import json
from collections import Counter
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import Resources, TemplateSpec, sandbox_template
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.table import table
from sandfleet_operator.plan.pods.egress import first_outside
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from sandfleet_operator.plan.pods.restricted import violations
from sandfleet_operator.plan.sandbox.actions import CreatePod
from sandfleet_operator.plan.sandbox.observed import Observed
from sandfleet_operator.plan.sandbox.plan import plan
from support.operator.builders import IMAGE, SETTINGS, a_meta
from support.operator.crd_schemas import SCHEMAS, filled, nodes
from support.operator.crd_strategies import NAMES, an_object, meaning, refusals, rules_of, specs

MANY = settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
# Otherwise nearly every draw would have an image that is not allowed.
USUAL = {
    "spec.image": st.just(IMAGE),
    "spec.inline.image": st.just(IMAGE),
    "spec.nodeSelector": st.just({"kubernetes.io/os": "linux"}),
    "spec.services": st.just(
        [
            {"name": "db", "command": ["db"], "readinessProbe": {"tcpSocket": {"port": 5432}}},
            {"name": "app", "command": ["app", "$HOME"], "after": ["db"]},
        ]
    ),
    "spec.packages": st.just(["pandas>=2", "own[x]==1.*; python_version>'3'"]),
    "spec.tolerations": st.just([{"key": "sandboxes", "operator": "Exists"}]),
}
NAMED = {"always": frozenset({"spec.templateRef"}), "never": frozenset({"spec.inline"})}
INLINE = {"always": frozenset({"spec.inline"}), "never": frozenset({"spec.templateRef", "spec.poolRef"})}
# The reasons of refusals of an owner's spec; mistakes of the template have TemplateInvalid.
OF_TEMPLATES = {Reason.TEMPLATE_INVALID, Reason.IMAGE_NOT_ALLOWED}
OF_SPECS = {Reason.INVALID_SPEC, Reason.ABOVE_TEMPLATE, Reason.CONTRACT_NOT_ALLOWED, Reason.EGRESS_NOT_ALLOWED}
CEILING = sandbox_template(
    an_object("SandboxTemplate", {"image": IMAGE, "egress": {"allow": [{"cidr": "0.0.0.0/0"}, {"cidr": "::/0"}], "dns": True}, "maxLifetimeSeconds": 86400})
).spec  # fmt: skip


def test_every_rule_of_the_schemas_is_known() -> None:
    for kind in ("CodeSandbox", "SandboxTemplate"):
        for path, schema in nodes(SCHEMAS[kind]):
            if path.startswith("spec"):
                assert all(callable(meaning(rule)) for rule in rules_of(schema))


@given(specs("SandboxTemplate"))
@MANY
def test_any_template_can_be_read_and_reads_the_same_when_its_defaults_are_filled_in(spec) -> None:
    assert refusals("SandboxTemplate", spec) == []
    plain = sandbox_template(an_object("SandboxTemplate", spec)).spec
    assert sandbox_template(an_object("SandboxTemplate", filled(SCHEMAS["SandboxTemplate"]["properties"]["spec"], spec))).spec == plain  # fmt: skip


@given(specs("CodeSandbox", **NAMED) | specs("CodeSandbox", **INLINE))
@MANY
def test_any_sandbox_can_be_read_and_reads_the_same_when_its_defaults_are_filled_in(spec) -> None:
    assert refusals("CodeSandbox", spec) == []
    plain = code_sandbox(an_object("CodeSandbox", spec)).spec
    assert code_sandbox(an_object("CodeSandbox", filled(SCHEMAS["CodeSandbox"]["properties"]["spec"], spec))).spec == plain  # fmt: skip


def test_any_template_alone_gives_a_refusal_or_a_pod_that_may_run() -> None:
    seen = Counter()

    @given(specs("SandboxTemplate", usual=USUAL), NAMES)
    @MANY
    def tried(written, name) -> None:
        template = sandbox_template(an_object("SandboxTemplate", written)).spec
        bare = code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "python"}}, name))
        result = effective(template, bare.spec, SETTINGS)
        seen[judged(result, template, OF_TEMPLATES | {Reason.INVALID_SPEC}, name)] += 1

    tried()
    assert seen["pod"] > 30 and seen.total() - seen["pod"] > 5, seen


def test_any_sandbox_of_a_template_gives_a_refusal_or_a_pod_within_its_template() -> None:
    seen = Counter()

    @given(specs("SandboxTemplate", usual=USUAL), specs("CodeSandbox", **NAMED), NAMES)
    @MANY
    def tried(written, wish, name) -> None:
        template = sandbox_template(an_object("SandboxTemplate", written)).spec
        sandbox = code_sandbox(an_object("CodeSandbox", wish, name))
        result = effective(template, sandbox.spec, SETTINGS)
        seen[judged(result, template, OF_TEMPLATES | OF_SPECS, name)] += 1

    tried()
    assert seen["pod"] > 30 and seen.total() - seen["pod"] > 5, seen


def test_any_inline_template_gives_a_refusal_or_a_pod_within_the_ceiling() -> None:
    seen, allowing = Counter(), replace(SETTINGS, inline=CEILING)

    @given(specs("CodeSandbox", usual=USUAL, **INLINE), NAMES)
    @MANY
    def tried(wish, name) -> None:
        sandbox = code_sandbox(an_object("CodeSandbox", wish, name))
        assert effective(None, sandbox.spec, SETTINGS).reason is Reason.INLINE_NOT_ALLOWED
        result = effective(None, sandbox.spec, allowing)
        seen[judged(result, replace(CEILING, image=sandbox.spec.inline.image), OF_TEMPLATES | OF_SPECS, name)] += 1

    tried()
    assert seen["pod"] > 30 and seen.total() - seen["pod"] > 5, seen


def judged(result: Effective | Refusal, allowed: TemplateSpec, reasons: set[Reason], name: str) -> str:
    if isinstance(result, Refusal):
        event(result.reason.value)
        assert result.reason in reasons, result
        is_told(result.message)
        return result.reason.value
    within(result, allowed)
    pod = sandbox_pod(PodRequest(namespace="team-a", name=name, wanted=result), SETTINGS)
    may_run(pod, result)
    return "pod"


def is_told(message: str) -> None:
    """The message is one line that says what was refused and why."""
    assert message.startswith("cannot ")
    assert ": " in message
    assert message.isprintable()
    assert len(message) < 700


def within(result: Effective, allowed: TemplateSpec) -> None:
    """No value is above what the owner is allowed, and none is missing."""
    for one in fields(Resources):
        assert 0 < getattr(result.requests, one.name) <= getattr(result.resources, one.name)
        assert getattr(result.resources, one.name) <= getattr(allowed.resources, one.name)
    for limit in (column.name for column in table(Limits)):
        assert 0 < getattr(result.limits, limit) <= getattr(allowed.limits, limit)
    assert result.limits.default_timeout <= result.limits.max_timeout
    assert 0 < result.limits.memory_bytes <= result.resources.memory - SETTINGS.memory_reserve
    assert 0 < result.workspace.size <= allowed.workspace.size
    assert allowed.workspace.storage_class in {None, result.workspace.storage_class}
    for mine, most in ((result.lifetime, allowed.max_lifetime), (result.idle_timeout, allowed.max_idle_timeout)):
        assert most is None or 0 < mine <= most
    assert result.contract in allowed.contracts
    assert not first_outside(result.egress, allowed.egress)
    same = ("image", "runtime_class", "node_selector", "tolerations", "priority_class", "secret_envs")
    assert {name: getattr(result, name) for name in same} == {name: getattr(allowed, name) for name in same}


def may_run(pod: dict, result: Effective) -> None:
    assert violations(pod) == ()
    assert pod["spec"]["runtimeClassName"] == result.runtime_class
    (container,) = pod["spec"]["containers"]
    config = next(one["value"] for one in container["env"] if one["name"] == "SANDFLEET_EXECUTOR_CONFIG")
    told = json.loads(config.replace("$$", "$"))
    assert told["envs"] == dict(result.envs)
    ExecutorConfig.parse({**told, "sandbox_uid": "u1"})


@given(
    specs("SandboxTemplate", usual=USUAL), specs("CodeSandbox", **NAMED) | specs("CodeSandbox", usual=USUAL, **INLINE)
)
@MANY
def test_any_spec_gives_a_pod_or_a_status_that_says_why_not(written, wish) -> None:
    meta = a_meta(created=1000.0, generation=1)
    sandbox = replace(code_sandbox(an_object("CodeSandbox", wish)), meta=meta)
    template = sandbox_template(an_object("SandboxTemplate", written)) if sandbox.spec.template else None
    found = plan(Observed(sandbox=sandbox, template=template), 1000.5, replace(SETTINGS, inline=CEILING))
    (ready,) = (one for one in found.status.conditions if one.type == "Ready")
    assert ready.status == "False"
    assert Reason(ready.reason)
    for action in found.actions:
        if isinstance(action, CreatePod):
            assert violations(action.manifest) == ()
    if not found.actions and Reason(ready.reason) in OF_TEMPLATES | OF_SPECS:
        is_told(ready.message)


PLACEMENTS = [
    ({"nodeSelector": {"a b": "c"}}, "cannot place pods: 'a b' is no label key"),
    ({"nodeSelector": {"a..b/c": "d"}}, "cannot place pods: 'a..b/c' is no label key"),
    ({"nodeSelector": {"zone": "$(ZONE)"}}, "cannot place pods: the value '$(ZONE)' of label 'zone' is not at most 63"),
    ({"tolerations": [{"value": "x"}]}, "cannot place pods: tolerations[0] names no key, which only operator Exists may leave out"),
    ({"tolerations": [{"operator": "Exists"}, {"key": "a", "operator": "Exists", "value": "b"}]}, "cannot place pods: tolerations[1] has a value, which operator Exists does not compare"),
    ({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "cannot place pods: tolerations[0] has tolerationSeconds, which only effect NoExecute may have"),
    ({"tolerations": [{"key": "-a", "operator": "Exists"}]}, "cannot place pods: '-a' is no label key"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "message"), PLACEMENTS)
def test_an_invalid_placement_is_the_templates_mistake(more, message) -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, **more})).spec
    refusal = effective(
        template, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "python"}})).spec, SETTINGS
    )
    assert (refusal.reason, refusal.message.startswith(f"cannot use the template: {message}")) == (Reason.TEMPLATE_INVALID, True), refusal.message  # fmt: skip


@pytest.mark.parametrize("toleration", [
    {"operator": "Exists"}, {"key": "a"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}, {"key": "x.example/a", "operator": "Equal", "value": ""},
])  # fmt: skip
def test_a_valid_placement_is_accepted(toleration) -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, "tolerations": [toleration]})).spec
    assert isinstance(effective(template, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}})).spec, SETTINGS), Effective)  # fmt: skip
