"""The pod and the volume of a sandbox."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.services import parse
from sandfleet_executor.core.session import bwrap
from sandfleet_operator.api.kinds.placement import PREFERRED, REQUIRED
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    Retention,
    SecretEnv,
    TemplateSpec,
    Workspace,
    sandbox_template,
)
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.names import bounded, class_policy, own_policy
from sandfleet_operator.plan.pods.podspec import PodRequest, PodState, literal, sandbox_pod, spec_hash
from sandfleet_operator.plan.pods.volume import READ_WRITE_ONCE_POD, workspace_claim
from support.examples import examples
from support.operator.builders import GIB, IMAGE, MIB, SETTINGS, a_meta, a_spec, a_template, opens, pairs
from support.operator.crd_strategies import an_object
from support.pod_security import violations

GOLDEN = Path(__file__).parent / "golden" / "pod.json"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def wanted(template=None, **changes):
    return effective(template or a_template(), a_spec(**changes), SETTINGS)


def a_request(**changes) -> PodRequest:
    return replace(PodRequest(namespace="team-a", name="demo", wanted=wanted()), **changes)


def a_pod(settings=SETTINGS, **changes):
    return sandbox_pod(a_request(**changes), settings)


def executor_of(pod):
    return pod["spec"]["containers"][0]


def kubelet_expands(text: str, variables: dict[str, str]) -> str:
    """Expands a value as the kubelet does: `$$` is a dollar, `$(NAME)` an existing variable."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def told(pod) -> dict:
    """The configuration that the executor reads."""
    text = next(one["value"] for one in executor_of(pod)["env"] if one["name"] == "SANDFLEET_EXECUTOR_CONFIG")
    return json.loads(kubelet_expands(text, {"HOME": "expanded", "SANDFLEET_USER_TOKEN": "expanded"}))


def test_a_full_pod_equals_the_golden_file() -> None:
    template = a_template(
        image_pull_secrets=("pull",),
        envs={"PRICE": "$(SANDFLEET_USER_TOKEN)"},
        secret_envs=(SecretEnv("tokens", "MY_", optional=True),),
        egress=opens(("203.0.113.0/24", 443), dns=True),
        max_lifetime=3600.0,
        max_idle_timeout=600.0,
        node_selector={"pool": "sandboxes"},
        tolerations=({"key": "sandboxes", "operator": "Exists"},),
        priority_class="sandboxes",
    )
    pod = a_pod(
        replace(SETTINGS, copied_labels=("team",)),
        wanted=wanted(template),
        owner=a_meta(),
        labels={"team": "a", "app": "web", "sandfleet.io/state": "warm", "sandfleet.io/client": "true"},
        traceparent=TRACE,
        lease=1800.0,
        user_namespace=True,
    )
    assert json.dumps(pod, indent=2) + "\n" == GOLDEN.read_text()
    assert violations(pod) == ()


def test_the_executor_accepts_its_configuration() -> None:
    config = ExecutorConfig.parse({**told(a_pod(lease=60.0)), "sandbox_uid": "u1", "keys_authority": "a certificate"})
    assert (config.listen, config.network, config.isolation) == ("0.0.0.0:50051", "pod", "namespace")
    assert (config.lease, config.limits.memory_bytes) == (60.0, 2 * GIB - 192 * MIB)


def test_modules_to_preload_are_in_the_executor_s_configuration_where_the_template_names_some() -> None:
    template = sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, "preload": ["pandas", "a.b"]})).spec
    assert ExecutorConfig.parse(
        {**told(a_pod(wanted=wanted(template))), "sandbox_uid": "u1", "keys_authority": "a certificate"}
    ).preload == [
        "pandas",
        "a.b",
    ]
    assert "preload" not in told(a_pod())
    refused = wanted(replace(template, preload=("a b",)))
    assert isinstance(refused, Refusal)
    assert "'a b' is no name of a module" in refused.message


def test_a_template_without_a_longest_timeout_gives_an_executor_without_one() -> None:
    template = sandbox_template(
        an_object("SandboxTemplate", {"image": IMAGE, "executionLimits": {"maxTimeoutSeconds": 0}})
    ).spec
    config = ExecutorConfig.parse(
        {**told(a_pod(wanted=wanted(template))), "sandbox_uid": "u1", "keys_authority": "a certificate"}
    )
    assert (config.limits.max_timeout, config.limits.longest_timeout) == (0, math.inf)
    # Control: the default template has one.
    assert (
        ExecutorConfig.parse(
            {**told(a_pod()), "sandbox_uid": "u1", "keys_authority": "a certificate"}
        ).limits.longest_timeout
        == 3600
    )


@given(st.text(st.sampled_from("$()HOMEx {}")))
@settings(max_examples=examples(50))
def test_users_text_is_never_expanded(text) -> None:
    assert kubelet_expands(literal(text), {"HOME": "expanded", "": "expanded"}) == text


def test_a_warm_pod_has_no_end_and_no_owner_yet() -> None:
    pod = a_pod(state=PodState.WARM, wanted=wanted(a_template(max_idle_timeout=60.0)), lease=60.0)
    assert (told(pod)["lease"], told(pod)["idle_timeout"]) == (None, None)
    assert pod["metadata"]["labels"]["sandfleet.io/state"] == "warm"
    assert "ownerReferences" not in pod["metadata"]


@pytest.mark.parametrize(
    ("state", "safe"), [(PodState.WARM, "true"), (PodState.CLAIMED, "false"), (PodState.RETIRING, "true")]
)
def test_only_a_session_keeps_its_node_from_being_removed(state, safe) -> None:
    annotations = a_pod(state=state)["metadata"]["annotations"]
    assert annotations[names.SAFE_TO_EVICT] == safe
    assert annotations["karpenter.sh/do-not-disrupt"] == ("true" if safe == "false" else "false")


OWN = {"matchLabels": {"sandfleet.io/component": "sandbox", "sandfleet.io/template": "python"}}
OTHERS = {"matchLabels": {"app": "cache"}}
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PLACED = {
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]},
            PREFERRED: [{"weight": 7, "preference": {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}}],
        },
        "podAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": OTHERS}]},
        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": HOST}}]},
    },
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3, "nodeTaintsPolicy": "Honor"}
    ],
    "podAnnotations": {"example.com/team": "a"},
    "podLabels": {"kueue.x-k8s.io/queue-name": "agents"},
}  # fmt: skip


def placed(**changes: object) -> TemplateSpec:
    return sandbox_template(an_object("SandboxTemplate", {"image": IMAGE, **PLACED, **changes})).spec


def test_a_pod_is_placed_as_its_template_says_and_beside_the_templates_own_sandboxes() -> None:
    pod = a_pod(wanted=wanted(placed()))
    expected = json.loads(json.dumps(PLACED))
    expected["affinity"]["podAntiAffinity"][PREFERRED][0]["podAffinityTerm"]["labelSelector"] = OWN
    expected["topologySpreadConstraints"][0]["labelSelector"] = OWN
    assert pod["spec"]["affinity"] == expected["affinity"]
    assert pod["spec"]["topologySpreadConstraints"] == expected["topologySpreadConstraints"]
    assert OWN["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["annotations"]["example.com/team"] == "a"
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "agents"


@pytest.mark.parametrize(
    "changed", [{"affinity": {}}, {"topologySpreadConstraints": []}, {"podAnnotations": {}}, {"podLabels": {}}]
)
def test_another_placement_is_another_revision(changed) -> None:
    hashes = {a_pod(wanted=wanted(one))["metadata"]["annotations"][names.SPEC_HASH] for one in (placed(), placed(**changed))}  # fmt: skip
    assert len(hashes) == 2


LABELS = [
    ("nothing is open", Egress(), None, {}),
    ("the template's list", opens("203.0.113.0/24"), None, {"sandfleet.io/egress-class": "python"}),
    ("a list of its own", opens("203.0.113.0/24"), opens(("203.0.113.0/24", 1)), {"sandfleet.io/egress-own": "demo"}),
    ("an own list of nothing", opens("203.0.113.0/24"), Egress(), {}),
    ("names only", Egress(dns=True), None, {"sandfleet.io/egress-class": "python"}),
]


@pytest.mark.parametrize(("what", "template", "own", "expected"), LABELS, ids=[row[0] for row in LABELS])
def test_which_policy_selects_a_pod(what, template, own, expected) -> None:
    labels = a_pod(wanted=wanted(a_template(egress=template), egress=own))["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if "egress" in key} == expected


def test_labels_of_the_sandbox_reach_its_pod_only_when_the_platform_says_so_and_never_ours() -> None:
    ours = a_pod()["metadata"]["labels"]
    labels = {"app": "web", "team": "a", **dict.fromkeys(ours, "mine"), "example.k8s.io/x": "y"}
    generous = replace(SETTINGS, copied_labels=("team", "example.k8s.io/x", *ours))
    assert a_pod(labels=labels)["metadata"]["labels"] == ours
    assert a_pod(generous, labels=labels)["metadata"]["labels"] == {"team": "a", **ours}


def test_a_pod_resolves_names_only_where_its_egress_says_so() -> None:
    closed = a_pod()["spec"]
    assert (closed["dnsPolicy"], closed["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})
    open_ = a_pod(wanted=wanted(a_template(egress=Egress(dns=True))))["spec"]
    assert (open_["dnsPolicy"], open_["dnsConfig"]) == ("ClusterFirst", {"options": [{"name": "ndots", "value": "1"}]})


def test_a_bad_traceparent_is_not_passed_on() -> None:
    assert a_pod(traceparent=TRACE)["metadata"]["annotations"]["sandfleet.io/traceparent"] == TRACE
    assert "sandfleet.io/traceparent" not in a_pod(traceparent="nonsense")["metadata"]["annotations"]


def test_the_spec_hash_ignores_the_sandbox() -> None:
    one = spec_hash(wanted(), SETTINGS)
    for pod in (
        a_pod(),
        a_pod(name="other", lease=5.0, owner=a_meta()),
        a_pod(state=PodState.WARM, user_namespace=True),
    ):
        assert pod["metadata"]["annotations"]["sandfleet.io/spec-hash"] == one
    changed = [
        wanted(a_template(**one)) for one in ({"envs": {"A": "1"}}, {"runtime_class": "x"}, {"max_idle_timeout": 1.0})
    ]
    assert len({one, *(spec_hash(each, SETTINGS) for each in changed)}) == 4
    # Its policies follow without a new pod.
    assert spec_hash(wanted(a_template(egress=opens("203.0.113.0/24"))), SETTINGS) == one


@given(pairs(), st.sampled_from(PodState), st.booleans())
@settings(max_examples=examples(50))
def test_any_template_and_spec_give_a_refusal_or_a_pod_that_may_run(pair, state, user_namespace) -> None:
    result = effective(*pair, SETTINGS)
    if isinstance(result, Refusal):
        return
    pod = a_pod(wanted=result, state=state, user_namespace=user_namespace)
    assert violations(pod) == ()
    assert told(pod)["envs"] == dict(result.envs)
    ExecutorConfig.parse({**told(pod), "sandbox_uid": "u1", "keys_authority": "a certificate"})


# Names.


def test_names_stay_or_become_63_unique_characters() -> None:
    assert class_policy("python") == "sandfleet-egress-python"
    assert own_policy("x") != class_policy("own-x")
    long = [bounded("a" * length) for length in range(60, 70)] + [bounded(f"{'a' * 49}-.{tail * 20}") for tail in "bc"]
    assert all(len(name) <= 63 and re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name) for name in long)
    assert len(set(long)) == len(long)
    assert bounded(bounded("a" * 64)) != bounded("a" * 64)


# The volume.


def test_a_workspace_is_owned_by_its_sandbox() -> None:
    claim = workspace_claim("team-a", "demo", wanted(), owner=a_meta())
    assert claim == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "namespace": "team-a",
            "name": "workspace-demo",
            "labels": {
                "app.kubernetes.io/managed-by": "sandfleet",
                "sandfleet.io/component": "sandbox",
                "sandfleet.io/sandbox": "demo",
            },
            "ownerReferences": [
                {
                    "apiVersion": "sandfleet.io/v1alpha1",
                    "kind": "CodeSandbox",
                    "name": "demo",
                    "uid": a_meta().uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def test_a_retained_workspace_has_no_owner() -> None:
    kept = wanted(workspace=Workspace(retention=Retention.RETAIN, storage_class="fast"))
    claim = workspace_claim("team-a", "demo", kept, owner=a_meta(), access_mode=READ_WRITE_ONCE_POD)
    assert "ownerReferences" not in claim["metadata"]
    assert (claim["spec"]["accessModes"], claim["spec"]["storageClassName"]) == (["ReadWriteOncePod"], "fast")


def test_the_executor_accepts_the_templates_services() -> None:
    template = sandbox_template(
        {
            "apiVersion": "sandfleet.io/v1alpha1",
            "kind": "SandboxTemplate",
            "metadata": {"name": "python", "namespace": "team"},
            "spec": {
                "image": a_template().image,
                "services": [
                    {
                        "name": "db",
                        "command": ["db", "$HOME"],
                        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 2},
                    },
                    {
                        "name": "app",
                        "command": ["app"],
                        "workingDir": "app",
                        "env": [{"name": "A", "value": "1"}],
                        "readinessProbe": {"httpGet": {"port": 80, "path": "/up"}},
                        "livenessProbe": {"exec": {"command": ["test", "-e", "x"]}},
                        "restartPolicy": "Always",
                        "after": ["db"],
                        "stopSignal": "SIGINT",
                        "terminationGracePeriodSeconds": 0,
                    },
                ],
            },
        }
    ).spec
    config = ExecutorConfig.parse(
        {**told(a_pod(wanted=wanted(template))), "sandbox_uid": "u", "keys_authority": "a certificate"}
    )
    db, app = parse.services(list(config.services), bwrap.WORKSPACE)
    assert (db.payload, db.readiness.interval) == (b"db\0$HOME", 2)
    assert (app.after, app.cwd, app.envs, app.stop_signal) == (("db",), b"/workspace/app", {"A": "1"}, 2)
    # For the operator, which polls only pods with services.
    assert a_pod(wanted=wanted(template))["metadata"]["annotations"][names.SERVICES] == "db,app"


def test_a_template_without_services_configures_none() -> None:
    assert "services" not in told(a_pod())
    assert names.SERVICES not in a_pod()["metadata"]["annotations"]


def test_the_executor_accepts_the_templates_packages() -> None:
    manifest = {
        "apiVersion": "sandfleet.io/v1alpha1",
        "kind": "SandboxTemplate",
        "metadata": {"name": "python", "namespace": "team"},
        "spec": {"image": a_template().image, "packages": ["a>=1; python_version>'3'"], "packagesTimeoutSeconds": 60},
    }
    config = ExecutorConfig.parse(
        {
            **told(a_pod(wanted=wanted(sandbox_template(manifest).spec))),
            "sandbox_uid": "u",
            "keys_authority": "a certificate",
        }
    )
    assert (config.packages, config.packages_timeout) == (["a>=1; python_version>'3'"], 60)


def test_the_executor_accepts_the_mounts_of_template_and_sandbox() -> None:
    manifest = {
        "apiVersion": "sandfleet.io/v1alpha1",
        "kind": "SandboxTemplate",
        "metadata": {"name": "python", "namespace": "team"},
        "spec": {"image": a_template().image, "mounts": [{"path": "/app"}, {"path": "/logs", "folder": "out/logs"}]},
    }
    template = sandbox_template(manifest).spec
    config = ExecutorConfig.parse(
        {**told(a_pod(wanted=wanted(template))), "sandbox_uid": "u", "keys_authority": "a certificate"}
    )
    assert config.mounts == {"/app": "", "/logs": "out/logs"}
    more = effective(template, a_spec(mounts={"/app": "mine"}), SETTINGS)
    assert told(a_pod(wanted=more))["mounts"] == {"/app": "mine", "/logs": "out/logs"}
    assert "mounts" not in told(a_pod())


def test_a_template_without_packages_configures_none() -> None:
    assert not {"packages", "packages_timeout"} & told(a_pod()).keys()


def test_the_contract_is_fixed_when_a_brokered_pod_is_made_and_gives_it_no_way_out() -> None:
    template = a_template(egress=opens("203.0.113.0/24", dns=True), contracts=(Contract.AUTONOMOUS, Contract.BROKERED))
    plain, brokered = (a_pod(wanted=wanted(template, contract=one)) for one in template.contracts)
    assert plain["metadata"]["annotations"][names.SPEC_HASH] != brokered["metadata"]["annotations"][names.SPEC_HASH]
    assert brokered["metadata"]["labels"][names.CONTRACT] == "brokered"
    assert names.CONTRACT not in plain["metadata"]["labels"]
    assert not {names.EGRESS_CLASS, names.EGRESS_OWN} & brokered["metadata"]["labels"].keys()
    assert (brokered["spec"]["dnsPolicy"], brokered["spec"]["automountServiceAccountToken"]) == ("None", False)
    said = [json.loads(one["spec"]["containers"][0]["env"][1]["value"]) for one in (plain, brokered)]
    assert [one.get("contract") for one in said] == [None, "brokered"]
