"""The custom resources as a real API server and kubectl take them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cluster.harness.api import ApiError, path_of
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from support.operator.crd_schemas import CRDS

pytestmark = pytest.mark.usefixtures("kinds")
Json = dict[str, object]
CHART = Path(__file__).parents[2] / "charts/sandfleet"
MADE = "it is fixed when the sandbox is made; make another sandbox"
NAME = "write at most 63 of a-z, 0-9 and -, with a letter or digit at both ends"
SIZE = "cannot be a size: write 1Mi to 1Pi with a unit, like 512Mi or 2Gi (m means thousandths)"
MEMORY = "cannot be the memory of a sandbox: write 64Mi to 1Pi with a unit, like 512Mi or 2Gi (m means thousandths)"
CIDR = "cannot be a network: write address/bits, like 203.0.113.0/24 or 2001:db8::/32"
BITS = "cannot be a network: bits of the address behind the prefix are set; write the network's first address, like 10.0.0.0/8"
LOOPBACK = "cannot allow loopback: it is the sandbox itself"
LINK_LOCAL = "cannot allow link-local addresses: cloud metadata and the node answer there"
METADATA = "cannot allow this address: a cloud's metadata service answers there"
MULTICAST = "cannot allow multicast, reserved and broadcast addresses: connections have one other end"
EXCEPT = "cannot except a network that is not inside of cidr and smaller than it"
IMAGE = (
    "cannot be an image: write registry/name:tag or registry/name@sha256:digest, without https:// and without blanks"
)


def an_object(kind: str, namespace: str, spec: Json, name: str = "one") -> Json:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def refusal(cluster: Cluster, kind: str, spec: Json, name: str = "one") -> str:
    """A dry run: what is accepted by mistake stays nowhere."""
    with pytest.raises(ApiError) as caught:
        cluster.api.call("POST", f"{path_of(kind, 'default')}?dryRun=All", an_object(kind, "default", spec, name))
    assert caught.value.status == 422
    return str(caught.value)


def to(cidr: str, **more: object) -> Json:
    return {"templateRef": {"name": "a"}, "egress": {"allow": [{"cidr": cidr, **more}]}}


BAD = [
    ({}, "spec: Forbidden: cannot tell what to make: write either templateRef (the name of a SandboxTemplate) or inline, and not both"),
    ({"templateRef": {"name": "a"}, "inline": {"image": "b"}}, "spec: Forbidden: cannot tell what to make: write either templateRef"),
    ({"inline": {"image": "b"}, "poolRef": {"name": "p"}}, "spec.poolRef: Forbidden: cannot take a sandbox of a pool: a pool's sandboxes are made of a template"),
    ({"templateRef": {"name": "Not_A_Name"}}, f'spec.templateRef.name: Invalid value: "Not_A_Name": cannot be a name: {NAME}'),
    ({"templateRef": {"name": "a" * 64}}, "spec.templateRef.name: Too long"),
    ({"templateRef": {"name": "a"}, "queueRef": {"name": "q."}}, f'spec.queueRef.name: Invalid value: "q.": cannot be a name: {NAME}'),
    ({"templateRef": {"name": "a"}, "operatingMode": "Paused"}, 'spec.operatingMode: Unsupported value: "Paused": supported values: "Running", "Suspended"'),
    ({"templateRef": {"name": "a"}, "resources": {"limits": {"memory": "512m"}}}, f'spec.resources.limits.memory: Invalid value: "512m": {MEMORY}'),
    ({"templateRef": {"name": "a"}, "resources": {"limits": {"memory": 512}}}, f"spec.resources.limits.memory: Invalid value: 512: {MEMORY}"),
    ({"templateRef": {"name": "a"}, "resources": {"limits": {"cpu": "-1"}}}, 'spec.resources.limits.cpu: Invalid value: "-1": cannot be an amount of CPU: write 1m to 1000 cores'),
    ({"templateRef": {"name": "a"}, "workspace": {"size": "2GB"}}, f'spec.workspace.size: Invalid value: "2GB": {SIZE}'),
    ({"templateRef": {"name": "a"}, "workspace": {"retention": "Keep"}}, 'spec.workspace.retention: Unsupported value: "Keep": supported values: "Delete", "Retain"'),
    ({"templateRef": {"name": "a"}, "workspace": {"claimName": "-a"}}, 'spec.workspace.claimName: Invalid value: "-a": cannot be a name'),
    ({"templateRef": {"name": "a"}, "workspace": {"claimName": "a", "size": "1Gi"}}, "spec.workspace.claimName: Forbidden: cannot give an earlier workspace a size or a class"),
    ({"templateRef": {"name": "a"}, "executionLimits": {"maxTimeoutSeconds": 5, "defaultTimeoutSeconds": 6}}, "spec.executionLimits.defaultTimeoutSeconds: Forbidden: cannot use these timeouts"),
    ({"templateRef": {"name": "a"}, "env": [{"name": "1A"}]}, 'spec.env[0].name: Invalid value: "1A": cannot be a variable\'s name: write letters, digits and _'),
    ({"templateRef": {"name": "a"}, "env": [{"name": "A"}, {"name": "A"}]}, "spec.env[1]: Duplicate value"),
    ({"templateRef": {"name": "a"}, "contract": "free"}, 'spec.contract: Unsupported value: "free"'),
    ({"templateRef": {"name": "a"}, "lifetimeSeconds": 0}, "spec.lifetimeSeconds: Invalid value: 0: spec.lifetimeSeconds in body should be greater than or equal to 1"),
    ({"inline": {"image": "https://a/b"}}, f'spec.inline.image: Invalid value: "https://a/b": {IMAGE}'),
    ({"inline": {"image": "a", "egress": {"allow": [{"cidr": "::1/128"}]}}}, f'spec.inline.egress.allow[0].cidr: Invalid value: "::1/128": {LOOPBACK}'),
    (to("example.com"), f'spec.egress.allow[0].cidr: Invalid value: "example.com": {CIDR}'),
    (to("10.0.0.0"), CIDR),
    (to("10.0.0.0/33"), CIDR),
    (to("::ffff:10.0.0.0/104"), CIDR),
    (to("10.0.0.1/8"), BITS),
    (to("2001:db8::1/32"), BITS),
    (to("127.0.0.0/8"), LOOPBACK),
    (to("127.0.0.53/32"), LOOPBACK),
    (to("0.0.0.0/8"), LOOPBACK),
    (to("169.254.0.0/16"), LINK_LOCAL),
    (to("169.254.169.254/32"), LINK_LOCAL),
    (to("fe80::/64"), LINK_LOCAL),
    (to("fd00:ec2::254/128"), METADATA),
    (to("100.100.100.200/32"), METADATA),
    (to("224.0.0.0/4"), MULTICAST),
    (to("255.255.255.255/32"), MULTICAST),
    (to("ff02::/16"), MULTICAST),
    (to("10.0.0.0/8", **{"except": ["11.0.0.0/16"]}), f"spec.egress.allow[0].except: Forbidden: {EXCEPT}"),
    (to("10.0.0.0/8", **{"except": ["10.0.0.0/8"]}), EXCEPT),
    (to("10.0.0.0/8", **{"except": ["0.0.0.0/0"]}), EXCEPT),
    (to("10.0.0.0/8", **{"except": ["2001:db8::/48"]}), EXCEPT),
    (to("10.0.0.0/8", **{"except": ["x"]}), 'spec.egress.allow[0].except[0]: Invalid value: "x": cannot be a network'),
    (to("10.0.0.0/8", ports=[{"port": 443, "endPort": 80}]), "spec.egress.allow[0].ports[0].endPort: Forbidden: cannot be a range of ports: endPort is below port"),
    (to("10.0.0.0/8", ports=[{"port": 0}]), "spec.egress.allow[0].ports[0].port: Invalid value: 0"),
    (to("10.0.0.0/8", ports=[{"port": 1, "protocol": "SCTP"}]), 'Unsupported value: "SCTP": supported values: "TCP", "UDP"'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), BAD)
def test_an_invalid_sandbox_is_refused_with_its_reason(cluster: Cluster, spec: Json, message: str):
    assert message in refusal(cluster, "CodeSandbox", spec)


@pytest.mark.parametrize(
    "field", ["runtimeClassName", "envFrom", "nodeSelector", "securityContext", "serviceAccountName"]
)
def test_fields_that_the_owner_may_not_set_are_dropped(cluster: Cluster, namespace: str, field: str):
    """Unknown to the schema, as kubectl says before it sends them."""
    spec = {"inline": {"image": "a", field: "x"}, field: "x"}
    stored = cluster.api.create(an_object("CodeSandbox", namespace, spec))["spec"]
    assert field not in stored
    assert field not in stored["inline"]
    with pytest.raises(ClusterError, match=f'unknown field "spec.{field}"'):
        cluster.kubectl("create", "-f", "-", given=yaml.safe_dump(an_object("CodeSandbox", namespace, spec, "two")))


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("SandboxTemplate", {}, "spec.image: Required value"),
        ("SandboxTemplate", {"image": "a b"}, IMAGE),
        ("SandboxTemplate", {"image": "a", "contracts": []}, "spec.contracts: Invalid value: 0: spec.contracts in body should have at least 1 items"),
        ("SandboxTemplate", {"image": "a", "contracts": ["Reviewed", "Reviewed"]}, "spec.contracts[1]: Duplicate value"),
        ("SandboxTemplate", {"image": "a", "runtimeClassName": ""}, "spec.runtimeClassName: Invalid value"),
        ("SandboxTemplate", {"image": "a", "envFrom": [{"secretRef": {"name": "a"}, "prefix": "1"}]}, "cannot be a prefix: write letters, digits and _"),
        ("SandboxTemplate", {"image": "a", "egress": {"allow": [{"cidr": "169.254.169.254/32"}]}}, LINK_LOCAL),
        ("SandboxPool", {"templateRef": {"name": "a"}}, "spec.replicas: Required value"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 10001}, "should be less than or equal to 10000"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 3, "maxSize": 2}, "spec.maxSize: Forbidden: cannot keep this many sandboxes warm: maxSize is below replicas"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 1, "targetHitRate": 1}, "spec.targetHitRate: Invalid value"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 1, "targetHitRate": 0.4}, "should be greater than or equal to 0.5"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 1, "maxStarting": 0}, "should be greater than or equal to 1"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 1, "startTimeoutSeconds": 9}, "should be greater than or equal to 10"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 1, "maxWarm": 2}, "without targetHitRate the pool keeps replicas sandboxes warm"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 3, "maxWarm": 2, "targetHitRate": 0.9}, "cannot keep this many sandboxes warm: maxWarm is below replicas"),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 1, "maxWarm": 9, "maxSize": 8, "targetHitRate": 0.9}, "is below maxWarm"),
        ("SandboxQueue", {"nominalQuota": {"sandboxes": 1}, "borrowingLimit": {"sandboxes": 1}}, "spec.borrowingLimit: Forbidden: cannot borrow: a queue without a cohort has no queue to borrow from"),
        ("SandboxQueue", {"nominalQuota": {"sandboxes": 1}, "lendingLimit": {"sandboxes": 1}}, "cannot lend: a queue without a cohort has no queue to lend to"),
        ("SandboxQueue", {"nominalQuota": {"sandboxes": 1}, "cohort": "c", "lendingLimit": {"sandboxes": 2}}, "cannot lend more than there is: lendingLimit.sandboxes is above nominalQuota.sandboxes"),
        ("SandboxQueue", {"nominalQuota": {"cpu": "1500m"}, "cohort": "c", "lendingLimit": {"cpu": 2}}, "lendingLimit.cpu is above nominalQuota.cpu"),
        ("SandboxQueue", {"nominalQuota": {"memory": "1Gi"}, "cohort": "c", "lendingLimit": {"memory": "1025Mi"}}, "lendingLimit.memory is above nominalQuota.memory"),
        ("SandboxSnapshot", {}, "cannot be both or neither: write sandboxRef to take a snapshot"),
        ("SandboxQueue", {"nominalQuota": {}, "weight": 0}, "spec.weight: Invalid value: 0"),
        ("SandboxQueue", {"nominalQuota": {"cpu": "-1"}}, 'spec.nominalQuota.cpu: Invalid value: "-1": cannot be an amount of CPU: write 0 to 10M cores'),
        ("SandboxQueue", {"nominalQuota": {"memory": "1GB"}}, "cannot be an amount of memory: write 0 to 1Ei with a unit"),
        ("SandboxQueue", {"nominalQuota": {}, "stopPolicy": "Stop"}, 'spec.stopPolicy: Unsupported value: "Stop": supported values: "None", "Hold", "HoldAndDrain"'),
        ("SandboxQueue", {"nominalQuota": {}, "priorityClasses": [{"name": "a"}, {"name": "a"}]}, "spec.priorityClasses[1]: Duplicate value"),
        ("SandboxQueue", {"nominalQuota": {}, "cohort": ""}, "spec.cohort: Invalid value"),
    ],
)  # fmt: skip
def test_the_other_kinds_refuse_with_a_reason(cluster: Cluster, kind: str, spec: Json, message: str):
    assert message in refusal(cluster, kind, spec)


@pytest.mark.parametrize("kind", CRDS)
@pytest.mark.parametrize("name", ["with.dots", "a" * 64])
def test_a_name_is_a_dns_label_since_it_becomes_a_labels_value(cluster: Cluster, kind: str, name: str):
    spec = {"templateRef": {"name": "a"}, "replicas": 1, "image": "b", "nominalQuota": {}}
    assert "metadata.name" in (said := refusal(cluster, kind, spec, name))
    assert "with a letter or digit at both ends" in said or "Too long" in said


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0", "10.0.0.0/8", "203.0.113.7/32", "2001:db8::/32", "168.0.0.0/6"])
def test_any_other_network_may_be_allowed(cluster: Cluster, namespace: str, cidr: str):
    """Also where it covers what stays closed: that is cut out of the policy."""
    spec = to(cidr, ports=[{"port": 80, "endPort": 80}, {"port": 53, "protocol": "UDP"}])
    assert cluster.api.create(an_object("CodeSandbox", namespace, spec))["spec"]["egress"]["allow"][0]["cidr"] == cidr


@pytest.mark.parametrize(
    ("cidr", "excluded"), [("10.0.0.0/8", ["10.1.0.0/16", "10.2.0.0/32"]), ("2001:db8::/32", ["2001:db8:1::/48"])]
)
def test_smaller_networks_may_be_cut_out(cluster: Cluster, namespace: str, cidr: str, excluded: list[str]):
    made = cluster.api.create(an_object("CodeSandbox", namespace, to(cidr, **{"except": excluded})))
    assert made["spec"]["egress"]["allow"][0]["except"] == excluded


FULL = {
    "templateRef": {"name": "a"},
    "poolRef": {"name": "p"},
    "queueRef": {"name": "q"},
    "priorityClass": "high",
    "workspace": {"size": "1Gi", "storageClassName": "s", "retention": "Delete"},
    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
    "executionLimits": {"processes": 20},
    "env": [{"name": "A", "value": "1"}],
    "contract": "Reviewed",
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"templateRef": {"name": "b"}}, "templateRef"),
        ({"templateRef": None, "inline": {"image": "a"}}, "templateRef"),
        ({"poolRef": {"name": "o"}}, "poolRef"),
        ({"poolRef": None}, "poolRef"),
        ({"queueRef": {"name": "o"}}, "queueRef"),
        ({"priorityClass": "low"}, "priorityClass"),
        ({"workspace": {"size": "2Gi"}}, "workspace.size"),
        ({"workspace": {"size": None}}, "workspace.size"),
        ({"workspace": None}, "workspace.size"),
        ({"workspace": {"storageClassName": "t"}}, "workspace.storageClassName"),
        ({"workspace": {"claimName": "c"}}, "workspace.claimName"),
        ({"resources": {"limits": {"cpu": 2}}}, "resources"),
        ({"resources": {"limits": {"ephemeral-storage": "1Gi"}}}, "resources"),
        ({"executionLimits": {"executions": 2}}, "executionLimits"),
        ({"executionLimits": None}, "executionLimits"),
        ({"env": [{"name": "A", "value": "2"}]}, "env"),
        ({"env": []}, "env"),
        ({"contract": "Autonomous"}, "contract"),
        ({"contract": None}, "contract"),
    ],
)
def test_fixed_fields_cannot_be_changed(cluster: Cluster, namespace: str, change: Json, field: str):
    cluster.api.create(an_object("CodeSandbox", namespace, FULL))
    with pytest.raises(ApiError) as caught:
        merge(cluster, namespace, change)
    assert f"spec.{field}: Forbidden: cannot change {field}: {MADE}" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"inline": {"image": "b"}},
        {"inline": {"egress": {"dns": True}}},
        {"contract": "Reviewed"},
        {"workspace": {"size": "1Gi"}},
    ],
)
def test_a_sandbox_with_an_inline_template_is_fixed_as_well(cluster: Cluster, namespace: str, change: Json):
    cluster.api.create(an_object("CodeSandbox", namespace, {"inline": {"image": "a"}}))
    with pytest.raises(ApiError, match=f"cannot change .*: {MADE}"):
        merge(cluster, namespace, change)


def merge(cluster: Cluster, namespace: str, spec: Json, *, part: str = "spec", below: str = "") -> Json:
    path = f"apis/sandfleet.io/v1alpha1/namespaces/{namespace}/codesandboxes/one{below}"
    return cluster.api.call("PATCH", path, {part: spec}, "application/merge-patch+json")


def test_other_fields_can_be_changed(cluster: Cluster, namespace: str):
    cluster.api.create(an_object("CodeSandbox", namespace, FULL))
    changes = {
        "operatingMode": "Suspended",
        "egress": {"allow": [{"cidr": "10.0.0.0/8"}]},
        "lifetimeSeconds": 60,
        "idleTimeoutSeconds": 30,
        "workspace": {"retention": "Retain"},
    }
    changed = merge(cluster, namespace, changes)["spec"]
    assert changed["workspace"] == {"size": "1Gi", "storageClassName": "s", "retention": "Retain"}
    assert changed["egress"] == {"allow": [{"cidr": "10.0.0.0/8"}], "dns": False}
    assert (changed["operatingMode"], changed["lifetimeSeconds"]) == ("Suspended", 60)


def test_a_sandbox_without_workspace_settings_can_get_a_retention(cluster: Cluster, namespace: str):
    cluster.api.create(an_object("CodeSandbox", namespace, {"templateRef": {"name": "a"}}))
    assert merge(cluster, namespace, {"workspace": {"retention": "Retain"}})["spec"]["workspace"] == {
        "retention": "Retain"
    }


def test_an_autoscaler_reads_a_pools_scale(cluster: Cluster, namespace: str):
    cluster.api.create(an_object("SandboxPool", namespace, {"templateRef": {"name": "a"}, "replicas": 2}))
    path = path_of("SandboxPool", namespace, "one")
    selector = "sandfleet.io/pool=one,sandfleet.io/state=warm"
    status = {"status": {"replicas": 1, "selector": selector}}
    cluster.api.call("PATCH", f"{path}/status", status, "application/merge-patch+json")
    scale = cluster.api.call("GET", f"{path}/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": selector})


# Tests of the chart write the definitions, too.
@pytest.mark.alone(on="cluster")
def test_an_upgrade_over_an_object_of_an_earlier_release_is_refused(
    cluster: Cluster, namespace: str, helm: Callable[..., str]
):
    """The definition keeps old fields for a moment, as the definition of that release did."""
    definition = path_of("CustomResourceDefinition", "", "sandboxpools.sandfleet.io")
    spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
    keeps = [{"op": "add", "path": f"{spec}/x-kubernetes-preserve-unknown-fields", "value": True}]
    earlier = an_object(
        "SandboxPool", namespace, {"templateRef": {"name": "a"}, "replicas": 1, "template": "a", "size": 1}
    )
    values = "crds.enabled=false,operator.replicas=0,fleet.replicas=0"
    install = ("install", "earlier", str(CHART), "--namespace", namespace, "--dry-run=server", "--set")
    try:
        cluster.api.call("PATCH", definition, keeps, "application/json-patch+json")
        cluster.api.wait("old fields to be kept", lambda: "size" in cluster.api.apply(earlier)["spec"])
        for where in (f"{values},settings.watchNamespaces={{{namespace}}}", values):
            with pytest.raises(ClusterError) as caught:
                helm(*install, where)
            assert f"SandboxPool {namespace}/one (spec.template, spec.size)" in str(caught.value)
            assert "cannot upgrade: fields of an earlier release would be lost: " in str(caught.value)
    finally:
        cluster.api.delete("SandboxPool", "one", namespace)
        back = [{"op": "remove", "path": f"{spec}/x-kubernetes-preserve-unknown-fields"}]
        cluster.api.call("PATCH", definition, back, "application/json-patch+json")
    assert "STATUS: pending-install" in helm(*install, f"{values},settings.watchNamespaces={{{namespace}}}")


def test_a_pools_template_is_fixed_and_its_size_can_be_scaled(cluster: Cluster, namespace: str):
    cluster.api.create(an_object("SandboxPool", namespace, {"templateRef": {"name": "a"}, "replicas": 1, "maxSize": 5}))
    cluster.kubectl("scale", "sbp/one", "--replicas=4", "-n", namespace)
    assert cluster.api.get("SandboxPool", "one", namespace)["spec"]["replicas"] == 4
    with pytest.raises(ClusterError, match="maxSize is below replicas"):
        cluster.kubectl("scale", "sbp/one", "--replicas=6", "-n", namespace)
    with pytest.raises(ClusterError, match="cannot change templateRef: the sandboxes of this pool are made of it"):
        cluster.kubectl(
            "patch", "sbp/one", "--type=merge", "-p", '{"spec":{"templateRef":{"name":"b"}}}', "-n", namespace
        )


def test_a_template_with_only_an_image_gets_defaults(cluster: Cluster, namespace: str):
    stored = cluster.api.create(an_object("SandboxTemplate", namespace, {"image": "python:3"}))["spec"]
    filled = {
        "image": "python:3",
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "4Gi"},
            "requests": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
        },
        "executionLimits": {"tmp": "256Mi", "output": "16Mi", "processes": 256, "executions": 32, "maxTimeoutSeconds": 3600, "defaultTimeoutSeconds": 300, "openFiles": 4096, "disk": "10Gi"},
        "workspace": {"size": "1Gi", "retention": "Delete", "ephemeral": False},
        "egress": {"dns": False},
        "contracts": ["Autonomous"],
        "approvals": 1,
    }  # fmt: skip
    assert stored == {
        **filled,
        "executor": "Auto",
        "runtimeClassName": "gvisor",
        "networkClosure": "Reported",
        "rollback": {"enabled": True, "maxMemory": "1Gi"},
        "packagesTimeoutSeconds": 300,
        "startTimeoutSeconds": 120,
    }
    sandbox = cluster.api.create(an_object("CodeSandbox", namespace, {"inline": {"image": "python:3"}}))["spec"]
    # What is left open there depends on what the settings allow.
    inline = {**filled, "workspace": {"retention": "Delete", "ephemeral": False}}
    for name in ("resources", "executionLimits", "contracts"):
        del inline[name]
    assert sandbox == {"operatingMode": "Running", "onIdle": "End", "recovery": "Workspace", "inline": inline}


def test_kubectl_explains_the_fields(cluster: Cluster):
    text = " ".join(cluster.kubectl("explain", "csb.spec.egress").split())
    assert "Which of the template's networks and hosts this sandbox may reach." in text
    assert "Networks that a sandbox may open connections to." in text


def test_kubectl_get_says_at_a_glance_what_is_wrong(cluster: Cluster, namespace: str):
    cluster.api.create(an_object("CodeSandbox", namespace, {"templateRef": {"name": "python"}}))
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "TemplateNotFound",
        "message": "cannot start: no template",
        "lastTransitionTime": "2026-11-21T10:00:00Z",
    }
    said = {
        "conditions": [condition],
        "runtime": "gvisor",
        "restarts": 2,
        "nodeName": "n1",
        "address": "10.0.0.1:50051",
    }
    merge(cluster, namespace, said, part="status", below="/status")
    head, row = (line.split() for line in cluster.kubectl("get", "csb", "-n", namespace).splitlines())
    assert head == ["NAME", "READY", "REASON", "REVIEW", "TEMPLATE", "RUNTIME", "RESTARTS", "AGE"]
    # Nothing waits for review.
    assert row[:-1] == ["one", "False", "TemplateNotFound", "python", "gvisor", "2"]
    wide = cluster.kubectl("get", "csb", "-n", namespace, "-o", "wide").splitlines()
    assert wide[0].split()[7:9] == ["NODE", "ADDRESS"]
    assert wide[1].split()[6:8] == ["n1", "10.0.0.1:50051"]
    cluster.kubectl("wait", "--for=condition=Ready=false", "csb/one", "-n", namespace, "--timeout=5s")


def test_the_category_lists_every_kind(cluster: Cluster, namespace: str):
    for kind, spec in (
        ("SandboxTemplate", {"image": "a"}),
        ("SandboxPool", {"templateRef": {"name": "a"}, "replicas": 0}),
        ("SandboxQueue", {"nominalQuota": {"sandboxes": 1}}),
    ):
        cluster.api.create(an_object(kind, namespace, spec))
    listed = cluster.kubectl("get", "sandfleet", "-n", namespace, "-o", "name").split()
    assert sorted(listed) == [f"{kind}.sandfleet.io/one" for kind in ("sandboxpool", "sandboxqueue", "sandboxtemplate")]


def test_the_owner_cannot_write_the_status(cluster: Cluster, namespace: str):
    value = an_object("CodeSandbox", namespace, {"templateRef": {"name": "a"}})
    assert "status" not in cluster.api.create({**value, "status": {"restarts": 1}})


@pytest.mark.parametrize("keep", [True, False])
def test_the_chart_emits_the_sources_and_keeps_them_on_request(helm: Callable[..., str], tmp_path: Path, keep: bool):
    chart = tmp_path / "sandfleet"
    for part in ("files", "templates/crds"):
        shutil.copytree(CHART / part, chart / part)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: sandfleet\nversion: 0.0.1\n")
    (chart / "values.yaml").write_text("crds: {enabled: true, keep: true}\n")
    emitted = list(yaml.safe_load_all(helm("template", str(chart), "--set", f"crds.keep={str(keep).lower()}")))
    kept = {"annotations": {"helm.sh/resource-policy": "keep"}} if keep else {}
    expected = [{**crd, "metadata": {**crd["metadata"], **kept}} for crd in CRDS.values()]
    assert sorted(emitted, key=lambda crd: crd["metadata"]["name"]) == sorted(
        expected, key=lambda crd: crd["metadata"]["name"]
    )
    assert helm("template", str(chart), "--set", "crds.enabled=false").strip() == ""
