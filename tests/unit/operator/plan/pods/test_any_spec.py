"""Any objects that the schemas admit give a clear refusal, or a pod that may run within its template's limits."""

import json
from collections import Counter
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.placement import PREFERRED, REQUIRED
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import Resources, TemplateSpec, sandbox_template
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.table import table
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.egress import first_outside
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from sandfleet_operator.plan.sandbox.actions import CreatePod
from sandfleet_operator.plan.sandbox.observed import Observed
from sandfleet_operator.plan.sandbox.plan import plan
from support.operator.builders import IMAGE, SETTINGS, a_meta
from support.operator.crd_schemas import SCHEMAS, filled, nodes
from support.operator.crd_strategies import NAMES, an_object, meaning, refusals, rules_of, specs
from support.pod_security import violations

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
    "spec.affinity": st.just(
        {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}}
    ),
    "spec.topologySpreadConstraints": st.just(
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    ),
    "spec.podAnnotations": st.just({"example.com/team": "a"}),
    "spec.podLabels": st.just({"kueue.x-k8s.io/queue-name": "agents"}),
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


@pytest.mark.slow
@given(specs("SandboxTemplate"))
@MANY
def test_any_template_can_be_read_and_reads_the_same_when_its_defaults_are_filled_in(spec) -> None:
    assert refusals("SandboxTemplate", spec) == []
    plain = sandbox_template(an_object("SandboxTemplate", spec)).spec
    assert sandbox_template(an_object("SandboxTemplate", filled(SCHEMAS["SandboxTemplate"]["properties"]["spec"], spec))).spec == plain  # fmt: skip


@pytest.mark.slow
@given(specs("CodeSandbox", **NAMED) | specs("CodeSandbox", **INLINE))
@MANY
def test_any_sandbox_can_be_read_and_reads_the_same_when_its_defaults_are_filled_in(spec) -> None:
    assert refusals("CodeSandbox", spec) == []
    plain = code_sandbox(an_object("CodeSandbox", spec)).spec
    assert code_sandbox(an_object("CodeSandbox", filled(SCHEMAS["CodeSandbox"]["properties"]["spec"], spec))).spec == plain  # fmt: skip


@pytest.mark.slow
def test_any_template_alone_gives_a_refusal_or_a_pod_that_may_run() -> None:
    seen = Counter()

    @given(specs("SandboxTemplate", usual=USUAL), NAMES)
    @MANY
    def tried(written, name) -> None:
        template = sandbox_template(an_object("SandboxTemplate", written)).spec
        bare = code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "python"}}, name))
        result = effective(template, bare.spec, SETTINGS)
        # Brokered alone, with Secrets, is a template without any pod.
        seen[judged(result, template, OF_TEMPLATES | {Reason.INVALID_SPEC, Reason.CONTRACT_NOT_ALLOWED}, name)] += 1

    tried()
    assert seen["pod"] > 30 and seen.total() - seen["pod"] > 5, seen


@pytest.mark.slow
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


@pytest.mark.slow
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
    same += ("affinity", "spread", "pod_annotations", "pod_labels")
    assert {name: getattr(result, name) for name in same} == {name: getattr(allowed, name) for name in same}


def may_run(pod: dict, result: Effective) -> None:
    assert violations(pod) == ()
    assert pod["spec"]["runtimeClassName"] == result.runtime_class
    (container,) = pod["spec"]["containers"]
    config = next(one["value"] for one in container["env"] if one["name"] == "SANDFLEET_EXECUTOR_CONFIG")
    told = json.loads(config.replace("$$", "$"))
    assert told["envs"] == dict(result.envs)
    ExecutorConfig.parse({**told, "sandbox_uid": "u1", "keys_authority": "a certificate"})


@pytest.mark.slow
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


RESERVED = (
    names.SAFE_TO_EVICT, names.CLAIM, names.SPEC_HASH, "kubernetes.io/x", "seccomp.security.alpha.kubernetes.io/pod", "x.k8s.io/y",
    "k8s.v1.cni.cncf.io/networks", "cni.projectcalico.org/ipAddrs", "sidecar.istio.io/inject", "io.cilium.io/x", "CNI.ProjectCalico.org/x",
)  # fmt: skip


def nodes_with(*expressions: tuple[str, ...]) -> dict:
    said = [
        {"key": key, "operator": how, **({"values": values} if values else {})} for key, how, *values in expressions
    ]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": said}]}}}}


def near(selector: dict | None, key: str = "zone") -> dict:
    term = {"topologyKey": key, **({} if selector is None else {"labelSelector": selector})}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def spread(**changes: object) -> dict:
    return {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **changes}
        ]
    }


PLACEMENTS = [
    ({"nodeSelector": {"a b": "c"}}, "cannot place pods: 'a b' is no label key"),
    ({"nodeSelector": {"a..b/c": "d"}}, "cannot place pods: 'a..b/c' is no label key"),
    ({"nodeSelector": {"zone": "$(ZONE)"}}, "cannot place pods: the value '$(ZONE)' of label 'zone' is not at most 63"),
    ({"tolerations": [{"value": "x"}]}, "cannot place pods: tolerations[0] names no key, which only operator Exists may leave out"),
    ({"tolerations": [{"operator": "Exists"}, {"key": "a", "operator": "Exists", "value": "b"}]}, "cannot place pods: tolerations[1] has a value, which operator Exists does not compare"),
    ({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "cannot place pods: tolerations[0] has tolerationSeconds, which only effect NoExecute may have"),
    ({"tolerations": [{"key": "-a", "operator": "Exists"}]}, "cannot place pods: '-a' is no label key"),
    (nodes_with(), "cannot place pods: a term of the node affinity has no expression"),
    (nodes_with(("a b", "Exists")), "cannot place pods: 'a b' is no label key"),
    (nodes_with(("a", "In")), "cannot place pods: the expression on 'a' has no values, which operator In needs"),
    (nodes_with(("a", "Exists", "b")), "cannot place pods: the expression on 'a' has values, which operator Exists does not compare"),
    (nodes_with(("a", "Gt", "1", "2")), "cannot place pods: the expression on 'a' has operator Gt, which needs one whole number"),
    (nodes_with(("a", "Lt", "-1")), "cannot place pods: the expression on 'a' has operator Lt, which needs one whole number"),
    (nodes_with(("a", "Lt", "x")), "cannot place pods: the expression on 'a' has operator Lt, which needs one whole number"),
    (nodes_with(("a", "In", "$(B)")), "cannot place pods: the value '$(B)' of label 'a' is not at most 63"),
    ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, "cannot place pods: the required node affinity has no term"),
    ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}}}, "cannot place pods: the weight 101 of a preference is not from 1 to 100"),
    (near({"matchLabels": {names.STATE: "warm"}}), "cannot place pods: label 'sandfleet.io/state' is the control plane's"),
    (near({"matchLabels": {names.MANAGED_BY: "sandfleet"}}), "cannot place pods: label 'app.kubernetes.io/managed-by' is the control plane's"),
    (near({"matchExpressions": [{"key": "x.sandfleet.io/y", "operator": "Exists"}]}), "cannot place pods: label 'x.sandfleet.io/y' is the control plane's"),
    (near({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}), "cannot place pods: the expression on 'a' has operator Gt, which only a node's labels have"),
    (near({"matchLabels": {"a": "b c"}}), "cannot place pods: the value 'b c' of label 'a' is not at most 63"),
    (near(None, key="a b"), "cannot place pods: 'a b' is no label key"),
    (spread(topologyKey="-"), "cannot place pods: '-' is no label key"),
    (spread(maxSkew=0), "cannot place pods: topologySpreadConstraints[0] has a maxSkew or minDomains below 1"),
    (spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"), "cannot place pods: topologySpreadConstraints[0] has minDomains, which only whenUnsatisfiable DoNotSchedule may have"),
    ({"topologySpreadConstraints": spread()["topologySpreadConstraints"] * 2}, "cannot place pods: topologySpreadConstraints[1] has the topologyKey and whenUnsatisfiable of one before it"),
    *(({"podAnnotations": {key: "x"}}, f"cannot annotate pods: {key[:100]!r} is Kubernetes' or Sandfleet's, or changes what isolates the pod") for key in RESERVED),
    *(({"podLabels": {key: "x"}}, f"cannot label pods: {key[:100]!r} is Kubernetes' or Sandfleet's, or changes what isolates the pod") for key in (*RESERVED, "istio.io/dataplane-mode")),
    ({"podLabels": {"a.example/b": "not a value"}}, "cannot label pods:"),
    *(({"podAnnotations": {key: "x"}}, f"cannot annotate pods: {key!r} has no domain") for key in ("team", "dev.gvisor.flag.network", "io.katacontainers.config.hypervisor.path")),
    ({"podAnnotations": {"a\n": "x"}}, "cannot annotate pods: 'a\\n' has no domain; write it as 'example.com/a\\n'"),
    ({"podAnnotations": {"a b/c": "x"}}, "cannot annotate pods: 'a b/c' is no label key"),
    ({"podAnnotations": {"a.example/c": "x\0"}}, "cannot annotate pods: the value of 'a.example/c' has control characters"),
    ({"podAnnotations": {f"a.example/{number}": "x" * 4096 for number in range(4)}}, "cannot annotate pods: 16428 bytes of them are more than 16384"),
]  # fmt: skip


@pytest.mark.parametrize("pattern", ["a\n", "*", "a b", ""])
def test_an_image_pattern_that_names_none_is_the_templates_mistake(pattern) -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, "images": [pattern]})).spec
    found = effective(template, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}})).spec, SETTINGS)
    assert isinstance(found, Refusal), found
    assert (found.reason, found.message.startswith(f"cannot use the template: images has {pattern!r}")) == (
        Reason.TEMPLATE_INVALID,
        True,
    )


@pytest.mark.parametrize(("more", "message"), PLACEMENTS)
def test_an_invalid_placement_is_the_templates_mistake(more, message) -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, **more})).spec
    refusal = effective(
        template, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "python"}})).spec, SETTINGS
    )
    assert (refusal.reason, refusal.message.startswith(f"cannot use the template: {message}")) == (Reason.TEMPLATE_INVALID, True), refusal.message  # fmt: skip


@pytest.mark.parametrize("more", [
    nodes_with(("a", "In", "b", "")), nodes_with(("topology.kubernetes.io/zone", "NotIn", "a"), ("b", "DoesNotExist"), ("c", "Gt", "5")),
    near(None), near({}), near({"matchLabels": {"app.kubernetes.io/name": "cache"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
    spread(), spread(minDomains=2, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"), {"podAnnotations": {"prometheus.io/scrape": "true", "a.example/b": "", "a.example/c": "x\ny ü"}},
])  # fmt: skip
def test_a_valid_affinity_spread_or_annotation_is_accepted(more) -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, **more})).spec
    found = effective(template, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}})).spec, SETTINGS)
    assert isinstance(found, Effective), found
    assert violations(sandbox_pod(PodRequest(namespace="team-a", name="a", wanted=found), SETTINGS)) == ()


@pytest.mark.parametrize("toleration", [
    {"operator": "Exists"}, {"key": "a"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}, {"key": "x.example/a", "operator": "Equal", "value": ""},
])  # fmt: skip
def test_a_valid_placement_is_accepted(toleration) -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, "tolerations": [toleration]})).spec
    assert isinstance(effective(template, code_sandbox(an_object("CodeSandbox", {"templateRef": {"name": "a"}})).spec, SETTINGS), Effective)  # fmt: skip
